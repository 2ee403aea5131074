"""MongoDB's errors in words for whoever runs the control plane."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError

from lcm.control_plane.store.port import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_TEXT = 300
_ACCESS_DENIED_CODES = (13, 18, 8000)  # Unauthorized, AuthenticationFailed, Atlas


def translate_error(error: PyMongoError) -> StoreUnavailableError:
    """What happened and what to do. The driver's text names servers but never the password."""
    text = str(error)[:_MAX_TEXT]
    if isinstance(error, OperationFailure) and error.code in _ACCESS_DENIED_CODES:
        return StoreUnavailableError(
            f"MongoDB refuses this user. Check name, password and roles in the address ({text})"
        )
    if isinstance(error, ServerSelectionTimeoutError):
        return StoreUnavailableError(f"MongoDB has no primary that can be reached. Check servers and network ({text})")
    return StoreUnavailableError(f"MongoDB failed or could not be reached ({text})")


@contextmanager
def translated_errors() -> Iterator[None]:
    """Errors of the driver inside become errors of the port."""
    try:
        yield
    except PyMongoError as error:
        raise translate_error(error) from error
