"""Who is calling and what they may do.

`viewer` reads, `operator` also changes workers, `admin` also everything else that people do. `controller` stands apart:
it alone reads secrets and reports what it saw, and it may do nothing that people do; no admin is a controller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lcm.model.access import CallerKind, Role
from lcm.model.audit import Actor, ActorKind
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from datetime import datetime


PERSON_ROLES = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
"""The roles of people, each of which may do what those before it may."""


def allows(role: Role, needed: Role) -> bool:
    """Whether somebody with `role` may do what `needed` is asked for."""
    if role not in PERSON_ROLES or needed not in PERSON_ROLES:
        return role is needed
    return PERSON_ROLES.index(role) >= PERSON_ROLES.index(needed)


class AccessError(Exception):
    """Somebody may not come in. The message is for them: it says what to do and holds no secret."""

    code: ClassVar[ProblemCode] = ProblemCode.UNAUTHENTICATED


class UnauthenticatedError(AccessError):
    """What was shown proves nothing, or no longer does."""


class ForbiddenError(AccessError):
    """It is clear who is calling, and they may not do this."""

    code = ProblemCode.FORBIDDEN


class CsrfError(AccessError):
    """A change came by cookie without the proof that it came from our own page."""

    code = ProblemCode.CSRF


class TooManyAttemptsError(AccessError):
    """Too many failed sign-ins; the next may be tried after `retry_after` whole seconds."""

    code = ProblemCode.TOO_MANY_ATTEMPTS

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"Too many failed sign-ins. Try again in {retry_after} s.")
        self.retry_after = retry_after


class IdentityProviderUnavailableError(AccessError):
    """Whoever could confirm the sign-in cannot be asked now."""

    code = ProblemCode.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling. `token_id` is the token behind it all, also behind a session; None when there is none."""

    name: str
    kind: CallerKind
    role: Role
    token_id: str | None = None
    expires_at: datetime | None = None

    @property
    def actor(self) -> Actor:
        """The caller as the audit names them."""
        kind = ActorKind.CONTROLLER if self.role is Role.CONTROLLER else ActorKind.PERSON
        return Actor(kind=kind, name=self.name)

    def require(self, needed: Role) -> None:
        """Returns if the caller may do what `needed` is asked for, else raises `ForbiddenError`."""
        if not allows(self.role, needed):
            raise ForbiddenError(f"This needs the role {needed}; {self.name} has the role {self.role}.")
