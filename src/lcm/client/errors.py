"""What can go wrong when the control plane is asked.

- `ApiError`: it answered, in its own words, and changed nothing. One class for each family of codes.
- `UnreachableError`: it did not hear the request, or a read got no answer. Nothing was changed.
- `OutcomeUnknownError`: a write was sent and it is not known whether it happened. Read back before deciding anything.
- `CMLProtocolError`: whoever answered does not talk like a control plane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lcm.model.problems import FieldProblem, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class ClientError(Exception):
    """The control plane could not be asked, or refused. `outcome` is the word for it in metrics."""

    outcome: ClassVar[str] = "failed"


class UnreachableError(ClientError):
    """No connection, or a read whose connection broke: nothing was changed."""

    outcome = "unreachable"


class ClientTimeoutError(UnreachableError):
    """A read had no whole answer in time."""

    outcome = "timeout"


class ProtocolError(ClientError):
    """The answer is not one of a control plane: too long, not JSON, or led elsewhere. Is the address right?"""

    outcome = "protocol"


class OutcomeUnknownError(ClientError):
    """A write may or may not have happened.

    With the same `idempotency_key` it can be sent again: what was done once is not done twice. `told` is what the
    server said, if it said anything.
    """

    outcome = "unknown"

    def __init__(self, message: str, *, idempotency_key: str | None = None, told: ApiError | None = None) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key
        self.told = told


class ApiError(ClientError):
    """The server's own words. `code` is a `ProblemCode` unless the server is newer than this client."""

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
    """The request is not right; `errors` says which field and what would be."""

    outcome = "invalid"


class UnauthenticatedError(ApiError):
    """The token is missing, unknown, expired or revoked."""

    outcome = "not_signed_in"


class PermissionDeniedError(ApiError):
    """The role does not allow it."""

    outcome = "not_allowed"


class NotFoundError(ApiError):
    """There is no such thing."""

    outcome = "not_found"


class ConflictError(ApiError):
    """It does not fit what is; `current` says what is."""

    outcome = "conflict"


class NameTakenError(ConflictError):
    """Another worker has this name."""


class VersionConflictError(ConflictError):
    """Somebody else was faster: read again, then decide again."""


class IllegalTransitionError(ConflictError):
    """There is no way from the status it has to the one that was written."""


class StaleLeaderError(ConflictError):
    """A newer leader has written: whoever sent this must stop acting. Nothing was changed."""

    outcome = "stale_leader"


class AttemptMismatchError(ConflictError):
    """Another launch is recorded under this attempt, or the attempt is neither the current nor the next."""


class IdempotencyKeyReusedError(ConflictError):
    """The Idempotency-Key was used with another request."""


class NotPossibleNowError(ConflictError):
    """Not as things are: a limit, a cooldown, or the state of the worker."""


class HeldError(NotPossibleNowError):
    """A person has put a hold on it."""


class TooManyAttemptsError(ApiError):
    """Too many failed sign-ins from here."""

    outcome = "too_many_attempts"


class ServiceUnavailableError(ApiError):
    """The control plane cannot reach what it needs; try again."""

    outcome = "unavailable"


class ServerError(ApiError):
    """Something went wrong in the control plane; its log says what."""

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
    ProblemCode.HELD: HeldError,
    ProblemCode.IDEMPOTENCY_MISMATCH: IdempotencyKeyReusedError,
    ProblemCode.CSRF: PermissionDeniedError,
    ProblemCode.TOO_MANY_ATTEMPTS: TooManyAttemptsError,
    ProblemCode.TOO_LARGE: InvalidRequestError,
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
    """The class for a refusal; a code that is not known yet is told by its status."""
    try:
        return ERRORS_BY_CODE[ProblemCode(code)]
    except ValueError:
        return _ERRORS_BY_STATUS.get(status, ServerError if status >= 500 else InvalidRequestError)
