"""What can go wrong with a call to a CML server, told apart by who can do something about it."""

from __future__ import annotations

from typing import ClassVar


class CMLError(Exception):
    """A call failed. `address` is the server's, `cause` says in words what happened."""

    outcome: ClassVar[str] = "error"

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(f"CML at {address}: {cause}")
        self.address = address
        self.cause = cause


class CMLNotReadyError(CMLError):
    """Nobody answers there yet, or only the web server in front of a CML that is still starting."""

    outcome = "not_ready"


class CMLOutcomeUnknownError(CMLNotReadyError):
    """A call that changes things was sent and its answer was lost: it may have happened. Look before trying again."""

    outcome = "unknown"


class CMLAuthenticationError(CMLError):
    """User name, password or permissions do not allow it. Trying again with the same ones changes nothing."""

    outcome = "auth_failed"


class CMLUnauthorizedError(CMLError):
    """The session was refused, also with a token that was fresh."""

    outcome = "unauthorized"


class CMLThrottledError(CMLError):
    """Too many requests, by the server's count. Nothing happened; try later."""

    outcome = "throttled"


class CMLTlsError(CMLError):
    """The server cannot prove that it is the one that is meant. Nothing was sent to it."""

    outcome = "tls"


class CMLNotFoundError(CMLError):
    """The server knows no such thing."""

    outcome = "not_found"


class CMLConflictError(CMLError):
    """The server is busy with something that excludes this, or its state does not allow it."""

    outcome = "conflict"


class CMLInvalidRequestError(CMLError):
    """The server understood the request and refuses its content."""

    outcome = "invalid"


class CMLProtocolError(CMLError):
    """The answer is not one that CML gives: too long, of another kind or shape, or a way to somewhere else."""

    outcome = "protocol"
