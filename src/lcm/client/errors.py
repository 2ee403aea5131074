"""Errors of the client.

- `ApiError`: the control plane rejected the request with a problem document and changed nothing.
- `UnreachableError`: the request was not delivered, or a read got no response. Nothing was changed.
- `OutcomeUnknownError`: a write was sent and it is unknown whether it happened. Read back before deciding anything.
- `ProtocolError`: the response is not one of a control plane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lcm.model.problems import FieldProblem, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class InvalidAddressError(ValueError):
    """The address of the control plane cannot be used."""


class ClientError(Exception):
    """A request to the control plane failed. `outcome` is the metric label."""

    outcome: ClassVar[str] = "failed"


class UnreachableError(ClientError):
    """No connection, or a read whose connection broke: nothing was changed."""

    outcome = "unreachable"


class UntrustedCertificateError(UnreachableError):
    """The certificate of the server was not accepted, so nothing was sent."""

    outcome = "untrusted"


class ClientTimeoutError(UnreachableError):
    """A read got no complete response in time."""

    outcome = "timeout"


class ProtocolError(ClientError):
    """The response is not one of a control plane: too large, not JSON, or a redirect. Check the address."""

    outcome = "protocol"


class OutcomeUnknownError(ClientError):
    """A write may or may not have happened.

    It can be sent again with the same `idempotency_key` without being executed twice. `server_error` is the server's
    error response, if there was one.
    """

    outcome = "unknown"

    def __init__(
        self, message: str, *, idempotency_key: str | None = None, server_error: ApiError | None = None
    ) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key
        self.server_error = server_error


class ApiError(ClientError):
    """The server's problem document. `code` is a `ProblemCode` unless the server is newer than this client."""

    outcome = "refused"

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        current: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.current = dict(current) if current is not None else None
        self.retry_after = retry_after


class InvalidRequestError(ApiError):
    """The request is invalid; `errors` lists the fields and what is wrong with them."""

    outcome = "invalid"


class UnauthenticatedError(ApiError):
    """The token is missing, unknown, expired or revoked."""

    outcome = "not_signed_in"


class PermissionDeniedError(ApiError):
    """The role does not allow it."""

    outcome = "not_allowed"


class NotFoundError(ApiError):
    """The resource does not exist."""

    outcome = "not_found"


class ConflictError(ApiError):
    """The request conflicts with the current state, which is in `current`."""

    outcome = "conflict"


class NameTakenError(ConflictError):
    """Another worker has this name."""


class VersionConflictError(ConflictError):
    """The record changed meanwhile: read it again, then decide again."""


class IllegalTransitionError(ConflictError):
    """There is no transition from the current status to the requested one."""


class StaleLeaderError(ConflictError):
    """A newer leader has written: the sender must stop acting. Nothing was changed."""

    outcome = "stale_leader"


class AttemptMismatchError(ConflictError):
    """Another launch is recorded under this attempt, or the attempt is neither the current nor the next."""


class IdempotencyKeyReusedError(ConflictError):
    """The Idempotency-Key was used with another request."""


class NotPossibleNowError(ConflictError):
    """The current state forbids it: a limit, a cooldown, or the status of the worker."""


class HeldError(NotPossibleNowError):
    """An operator has placed a hold on it."""


class BreakerOpenError(NotPossibleNowError):
    """Too many workers of the region were lost: no more are marked as lost until the breaker is closed."""


class BookingRefusedError(NotPossibleNowError):
    """A booking, or a change of one, does not fit; `current` has what is short and when it would fit."""


class TooManyAttemptsError(ApiError):
    """Too many failed sign-ins from this address."""

    outcome = "too_many_attempts"


class ServiceUnavailableError(ApiError):
    """Not now: a dependency is missing, too many streams are open, or the request arrived too slowly; retry."""

    outcome = "unavailable"


class ServerError(ApiError):
    """An internal error of the control plane; see its log."""

    outcome = "server_fault"


ERRORS_BY_CODE: dict[ProblemCode, type[ApiError]] = {
    ProblemCode.INVALID: InvalidRequestError,
    ProblemCode.UNAUTHENTICATED: UnauthenticatedError,
    ProblemCode.FORBIDDEN: PermissionDeniedError,
    ProblemCode.NOT_FOUND: NotFoundError,
    ProblemCode.METHOD_NOT_ALLOWED: InvalidRequestError,
    ProblemCode.NAME_TAKEN: NameTakenError,
    ProblemCode.VERSION_CONFLICT: VersionConflictError,
    ProblemCode.ILLEGAL_TRANSITION: IllegalTransitionError,
    ProblemCode.NOT_POSSIBLE_NOW: NotPossibleNowError,
    ProblemCode.STALE_LEADER: StaleLeaderError,
    ProblemCode.LEADER_HEADERS_MISSING: InvalidRequestError,
    ProblemCode.ATTEMPT_MISMATCH: AttemptMismatchError,
    ProblemCode.MIN_WORKERS: NotPossibleNowError,
    ProblemCode.COOLDOWN: NotPossibleNowError,
    ProblemCode.MAX_WORKERS: NotPossibleNowError,
    ProblemCode.BOOKED: NotPossibleNowError,
    ProblemCode.BOOKING_REFUSED: BookingRefusedError,
    ProblemCode.HELD: HeldError,
    ProblemCode.BREAKER_OPEN: BreakerOpenError,
    ProblemCode.IDEMPOTENCY_MISMATCH: IdempotencyKeyReusedError,
    ProblemCode.CSRF: PermissionDeniedError,
    ProblemCode.TOO_MANY_ATTEMPTS: TooManyAttemptsError,
    ProblemCode.TOO_MANY_STREAMS: ServiceUnavailableError,
    ProblemCode.TOO_LARGE: InvalidRequestError,
    ProblemCode.REQUEST_TIMEOUT: ServiceUnavailableError,
    ProblemCode.UNAVAILABLE: ServiceUnavailableError,
    ProblemCode.INTERNAL: ServerError,
}

_ERRORS_BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthenticatedError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    412: ConflictError,
    429: TooManyAttemptsError,
    503: ServiceUnavailableError,
}


def error_class(status: int, code: str) -> type[ApiError]:
    """The error class for a code; an unknown code falls back to the status."""
    try:
        return ERRORS_BY_CODE[ProblemCode(code)]
    except ValueError:
        return _ERRORS_BY_STATUS.get(status, ServerError if status >= 500 else InvalidRequestError)
