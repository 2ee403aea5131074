"""Where records live: one port, adapters for SQLite, MongoDB and the memory of one process."""
