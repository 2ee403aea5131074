"""Errors of calls to a CML server, distinguished by who can resolve them."""

from __future__ import annotations

from typing import ClassVar


class CMLError(Exception):
    """A call failed. `address` is the address of the server, `cause` describes what happened."""

    outcome: ClassVar[str] = "error"

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(f"CML at {address}: {cause}")
        self.address = address
        self.cause = cause

    def __reduce__(self) -> tuple[type[CMLError], tuple[str, ...]]:
        """A poller process sends errors to the controller."""
        return type(self), (self.address, self.cause)


class CMLNotReadyError(CMLError):
    """The server does not respond yet, or only the web server in front of a CML that is still starting."""

    outcome = "not_ready"


class CMLOutcomeUnknownError(CMLNotReadyError):
    """A mutating call was sent and its response was lost, so it may have taken effect. Check before retrying."""

    outcome = "unknown"


class CMLAuthenticationError(CMLError):
    """User name, password or permissions do not allow the call. A retry with the same credentials fails again."""

    outcome = "auth_failed"


class CMLUnauthorizedError(CMLError):
    """The session was rejected, even with a new token."""

    outcome = "unauthorized"


class CMLThrottledError(CMLError):
    """The server received too many requests. The request had no effect; retry later."""

    outcome = "throttled"


class CMLTlsError(CMLError):
    """The server could not prove its identity. Nothing was sent to it."""

    outcome = "tls"


class CMLCertificateChangedError(CMLTlsError):
    """The server presents another certificate than the pinned one. Both are known by their SHA-256 fingerprints."""

    def __init__(self, address: str, pinned: str, presented: str) -> None:
        super().__init__(address, f"it presents the certificate {presented}, but {pinned} is pinned")
        self.pinned = pinned
        self.presented = presented

    def __reduce__(self) -> tuple[type[CMLError], tuple[str, ...]]:
        """The arguments that make the same error."""
        return type(self), (self.address, self.pinned, self.presented)


class CMLNotFoundError(CMLError):
    """The server does not have this object."""

    outcome = "not_found"


class CMLConflictError(CMLError):
    """The server is busy with a conflicting operation, or its state does not allow this one."""

    outcome = "conflict"


class CMLInvalidRequestError(CMLError):
    """The server understood the request and rejected its content."""

    outcome = "invalid"


class CMLProtocolError(CMLError):
    """The response is not one that CML sends: too long, of another type or shape, or a redirect."""

    outcome = "protocol"


class CMLPollerError(CMLError):
    """The server was not asked, because the poller process that polls it does not run. It says nothing about CML."""

    outcome = "not_polled"
