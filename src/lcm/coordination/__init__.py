"""Keys, leases and watches shared by a fleet of processes: the port's names.

The adapters are `memory`, `etcd` and `namespaced`; they are imported by name where things are wired, so that reading
this package costs nothing and loads no gRPC.
"""

from lcm.core.coordination import (
    NO_LEASE,
    Compacted,
    Coordination,
    CoordinationError,
    Denied,
    EventKind,
    KeyValue,
    LeaseGrant,
    LeaseNotFound,
    Listing,
    OutcomeUnknown,
    Swap,
    Unavailable,
    WatchBatch,
    WatchEvent,
    WatchLost,
)

__all__ = [
    "NO_LEASE",
    "Compacted",
    "Coordination",
    "CoordinationError",
    "Denied",
    "EventKind",
    "KeyValue",
    "LeaseGrant",
    "LeaseNotFound",
    "Listing",
    "OutcomeUnknown",
    "Swap",
    "Unavailable",
    "WatchBatch",
    "WatchEvent",
    "WatchLost",
]
