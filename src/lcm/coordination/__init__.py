"""Adapters of the coordination port (`lcm.core.coordination`).

`memory`, `etcd` and `namespaced` are imported by name where processes are wired, so that importing this package loads
no gRPC.
"""
