"""The typed client of the control plane, for controllers and the command line.

Reads, and writes with an Idempotency-Key, are retried when there is no response; other writes are sent once, and a lost
response raises `OutcomeUnknownError`.
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
    """Import events lazily: they load logging and more, which most commands do not need."""
    if name == "Event":
        from lcm.client.events import Event

        return Event
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
