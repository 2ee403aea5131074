"""The typed client of the control plane, for controllers and the command line.

Reads, and writes with an Idempotency-Key, are tried again when no answer came; other writes are sent once, and one
whose answer was lost is `OutcomeUnknown`.
"""

from lcm.client.asking import Leader
from lcm.client.client import Client
from lcm.client.errors import ClientError, OutcomeUnknown, ProtocolError, Refused, StaleLeader, Unreachable
from lcm.client.events import Event
from lcm.client.transport import Limits

__all__ = [
    "Client",
    "ClientError",
    "Event",
    "Leader",
    "Limits",
    "OutcomeUnknown",
    "ProtocolError",
    "Refused",
    "StaleLeader",
    "Unreachable",
]
