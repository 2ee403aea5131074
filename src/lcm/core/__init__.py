"""Controller machinery. It knows nothing of workers: any controller can be built on it.

A request carries a key, never the event that caused it; a reconcile starts from what is, not from what happened.
"""
