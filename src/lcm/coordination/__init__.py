"""Keys, leases and watches shared by a fleet of processes: the port's names.

The adapters are `memory`, `etcd` and `namespaced`; they are imported by name where things are wired, so that reading
this package costs nothing and loads no gRPC.
"""

from lcm.core.coordination import (
    NO_LEASE,
    CompactedError,
    Coordination,
    CoordinationDeniedError,
    CoordinationError,
    CoordinationOutcomeUnknownError,
    CoordinationUnavailableError,
    EventKind,
    KeyValue,
    LeaseGrant,
    LeaseNotFoundError,
    Listing,
    SwapResult,
    WatchBatch,
    WatchEvent,
    WatchLostError,
)

__all__ = [
    "NO_LEASE",
    "CompactedError",
    "Coordination",
    "CoordinationDeniedError",
    "CoordinationError",
    "CoordinationOutcomeUnknownError",
    "CoordinationUnavailableError",
    "EventKind",
    "KeyValue",
    "LeaseGrant",
    "LeaseNotFoundError",
    "Listing",
    "SwapResult",
    "WatchBatch",
    "WatchEvent",
    "WatchLostError",
]
