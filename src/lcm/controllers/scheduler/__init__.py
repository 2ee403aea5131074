"""The resource scheduler: finds a worker for each lablet, requests more if none has capacity, and records why."""
