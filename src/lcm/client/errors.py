"""What can go wrong when the control plane is asked.

- `Refused`: it answered, in its own words, and changed nothing. One class for each family of codes.
- `Unreachable`: it did not hear the request, or a read got no answer. Nothing was changed.
- `OutcomeUnknown`: a write was sent and it is not known whether it happened. Read back before deciding anything.
- `ProtocolError`: whoever answered does not talk like a control plane.
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


class Unreachable(ClientError):
    """No connection, or a read whose connection broke: nothing was changed."""

    outcome = "unreachable"


class TimedOut(Unreachable):
    """A read had no whole answer in time."""

    outcome = "timeout"


class ProtocolError(ClientError):
    """The answer is not one of a control plane: too long, not JSON, or led elsewhere. Is the address right?"""

    outcome = "protocol"


class OutcomeUnknown(ClientError):
    """A write may or may not have happened.

    With the same `idempotency_key` it can be sent again: what was done once is not done twice. `told` is what the
    server said, if it said anything.
    """

    outcome = "unknown"

    def __init__(self, message: str, *, idempotency_key: str | None = None, told: Refused | None = None) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key
        self.told = told


class Refused(ClientError):
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


class Invalid(Refused):
    """The request is not right; `errors` says which field and what would be."""

    outcome = "invalid"


class NotSignedIn(Refused):
    """The token is missing, unknown, expired or revoked."""

    outcome = "not_signed_in"


class NotAllowed(Refused):
    """The role does not allow it."""

    outcome = "not_allowed"


class NotFound(Refused):
    """There is no such thing."""

    outcome = "not_found"


class Conflict(Refused):
    """It does not fit what is; `current` says what is."""

    outcome = "conflict"


class NameTaken(Conflict):
    """Another worker has this name."""


class VersionConflict(Conflict):
    """Somebody else was faster: read again, then decide again."""


class TransitionRefused(Conflict):
    """There is no way from the status it has to the one that was written."""


class StaleLeader(Conflict):
    """A newer leader has written: whoever sent this must stop acting. Nothing was changed."""

    outcome = "stale_leader"


class AttemptMismatch(Conflict):
    """Another launch is recorded under this attempt, or the attempt is neither the current nor the next."""


class KeyReused(Conflict):
    """The Idempotency-Key was used with another request."""


class NotPossibleNow(Conflict):
    """Not as things are: a limit, a cooldown, or the state of the worker."""


class Held(NotPossibleNow):
    """A person has put a hold on it."""


class TooManyAttempts(Refused):
    """Too many failed sign-ins from here."""

    outcome = "too_many_attempts"


class Unavailable(Refused):
    """The control plane cannot reach what it needs; try again."""

    outcome = "unavailable"


class ServerFault(Refused):
    """Something went wrong in the control plane; its log says what."""

    outcome = "server_fault"


FAMILIES: dict[ProblemCode, type[Refused]] = {
    ProblemCode.INVALID: Invalid,
    ProblemCode.UNAUTHENTICATED: NotSignedIn,
    ProblemCode.FORBIDDEN: NotAllowed,
    ProblemCode.NOT_FOUND: NotFound,
    ProblemCode.METHOD_NOT_ALLOWED: Invalid,
    ProblemCode.NAME_TAKEN: NameTaken,
    ProblemCode.VERSION_CONFLICT: VersionConflict,
    ProblemCode.ILLEGAL_TRANSITION: TransitionRefused,
    ProblemCode.NOT_POSSIBLE_NOW: NotPossibleNow,
    ProblemCode.STALE_LEADER: StaleLeader,
    ProblemCode.LEADER_HEADERS_MISSING: Invalid,
    ProblemCode.ATTEMPT_MISMATCH: AttemptMismatch,
    ProblemCode.MIN_WORKERS: NotPossibleNow,
    ProblemCode.COOLDOWN: NotPossibleNow,
    ProblemCode.MAX_WORKERS: NotPossibleNow,
    ProblemCode.HELD: Held,
    ProblemCode.IDEMPOTENCY_MISMATCH: KeyReused,
    ProblemCode.CSRF: NotAllowed,
    ProblemCode.TOO_MANY_ATTEMPTS: TooManyAttempts,
    ProblemCode.TOO_LARGE: Invalid,
    ProblemCode.UNAVAILABLE: Unavailable,
    ProblemCode.INTERNAL: ServerFault,
}

_BY_STATUS: dict[int, type[Refused]] = {
    401: NotSignedIn,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    429: TooManyAttempts,
    503: Unavailable,
}


def family(status: int, code: str) -> type[Refused]:
    """The class for a refusal; a code that is not known yet is told by its status."""
    try:
        return FAMILIES[ProblemCode(code)]
    except ValueError:
        return _BY_STATUS.get(status, ServerFault if status >= 500 else Invalid)
