"""MongoDB's errors in words for whoever runs the control plane."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError

from lcm.control_plane.store.port import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 300
_DENIED = (13, 18, 8000)  # Unauthorized, AuthenticationFailed, Atlas


def in_words(error: PyMongoError) -> StoreUnavailable:
    """What happened and what to do. The driver's text names servers but never the password."""
    text = str(error)[:_LONGEST]
    if isinstance(error, OperationFailure) and error.code in _DENIED:
        return StoreUnavailable(f"MongoDB refuses this user. Check name, password and roles in the address ({text})")
    if isinstance(error, ServerSelectionTimeoutError):
        return StoreUnavailable(f"MongoDB has no primary that can be reached. Check servers and network ({text})")
    return StoreUnavailable(f"MongoDB failed or could not be reached ({text})")


@contextmanager
def spoken() -> Iterator[None]:
    """Errors of the driver inside become errors of the port."""
    try:
        yield
    except PyMongoError as error:
        raise in_words(error) from error
