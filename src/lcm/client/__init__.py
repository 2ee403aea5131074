"""The typed client of the control plane, for controllers and the command line.

Reads, and writes with an Idempotency-Key, are tried again when no answer came; other writes are sent once, and one
whose answer was lost is `OutcomeUnknownError`.
"""

from typing import TYPE_CHECKING, Any

from lcm.client.base import Leader
from lcm.client.client import Client
from lcm.client.errors import (
    ApiError,
    ClientError,
    OutcomeUnknownError,
    ProtocolError,
    StaleLeaderError,
    UnreachableError,
)
from lcm.client.transport import Limits

if TYPE_CHECKING:
    from lcm.client.events import Event

__all__ = [
    "ApiError",
    "Client",
    "ClientError",
    "Event",
    "Leader",
    "Limits",
    "OutcomeUnknownError",
    "ProtocolError",
    "StaleLeaderError",
    "UnreachableError",
]


def __getattr__(name: str) -> Any:
    """Events bring logs and more along: whoever wants none of them need not wait for it."""
    if name == "Event":
        from lcm.client.events import Event

        return Event
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
