"""The routes of the simulated server, by subject."""
