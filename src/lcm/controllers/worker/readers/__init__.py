"""Readers: the replicas of the worker controller that read CML servers and metrics for the leader, each a part."""
