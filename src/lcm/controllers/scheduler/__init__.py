"""The resource scheduler: it finds a worker for each lablet, asks for more where none has room, and says why."""
