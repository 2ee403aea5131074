"""Readers: the replicas of the worker controller that read CML servers for the leader, each a part of them."""
