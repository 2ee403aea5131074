"""The worker controller: it brings each worker's instance and CML to what is wanted, and says why."""
