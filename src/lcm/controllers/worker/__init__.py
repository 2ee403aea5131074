"""The worker controller: it brings the instance and the CML of each worker to its desired state, and reports why."""
