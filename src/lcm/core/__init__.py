"""Controller machinery. It knows nothing about workers: any controller can be built on it.

A reconcile request carries a key, never the event that caused it; a pass starts from the current state.
"""
