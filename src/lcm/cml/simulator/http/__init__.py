"""The HTTP API of the simulated server, one module per subject."""
