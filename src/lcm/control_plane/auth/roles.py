"""Callers, and what each role may do.

`viewer` reads, `operator` also changes workers, `admin` also does everything else that people do. `controller` is
separate: only it reads secrets and writes observations, and it may do nothing that people do. No admin is a controller.
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
"""The roles of people. Each includes the permissions of those before it."""


_SETTINGS_BY_PREFIX = {"bootstrap": "LCM_BOOTSTRAP_TOKEN", "controller": "LCM_CONTROLLER_TOKEN"}


def allows(role: Role, needed: Role) -> bool:
    """Whether `role` includes the permissions of `needed`."""
    if role not in PERSON_ROLES or needed not in PERSON_ROLES:
        return role is needed
    return PERSON_ROLES.index(role) >= PERSON_ROLES.index(needed)


class AccessError(Exception):
    """Access was denied. The message is for the caller: it says what to do and contains no secret."""

    code: ClassVar[ProblemCode] = ProblemCode.UNAUTHENTICATED


class UnauthenticatedError(AccessError):
    """The credentials are missing, invalid, expired or revoked."""


class ForbiddenError(AccessError):
    """The caller is authenticated but lacks the required role."""

    code = ProblemCode.FORBIDDEN


class CsrfError(AccessError):
    """A change with a session cookie lacks a valid CSRF token."""

    code = ProblemCode.CSRF


class TooManyAttemptsError(AccessError):
    """Too many sign-ins failed, or as `what` says; retry after `retry_after` whole seconds."""

    code = ProblemCode.TOO_MANY_ATTEMPTS

    def __init__(self, retry_after: int, what: str = "Too many failed sign-ins") -> None:
        super().__init__(f"{what}. Try again in {retry_after} s.")
        self.retry_after = retry_after


class IdentityProviderUnavailableError(AccessError):
    """The sign-in cannot be verified because the identity provider's keys were never read."""

    code = ProblemCode.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling. `token_id` is the token that was used to sign in, also for a session; None if there is none.

    `subject` is who this is at the identity provider: issuer and subject. Names are chosen by people and may be equal.
    `session_key` is the session that the provider confirms again and again: what this caller opens ends with it.
    """

    name: str
    kind: CallerKind
    role: Role
    token_id: str | None = None
    expires_at: datetime | None = None
    subject: str | None = None
    session_key: str | None = None

    @property
    def identity(self) -> str:
        """What proves the name: a token by its id, or a subject of the identity provider; empty if there is neither."""
        if self.subject is not None:
            return f"oidc:{self.subject}"
        if self.token_id is None:
            return ""
        # The id of a token of the settings is a hash of it: no reader of the audit may try guesses against that.
        setting = _SETTINGS_BY_PREFIX.get(self.token_id.partition("-")[0])
        return f"token:{self.token_id}" if setting is None else f"setting:{setting}"

    @property
    def unique_name(self) -> str:
        """The name of a token, which no other token has; for others with the identity, as names may be equal."""
        return self.name if self.subject is None else f"{self.name} {self.identity}"

    @property
    def actor(self) -> Actor:
        """The caller as recorded in the audit."""
        kind = ActorKind.CONTROLLER if self.role is Role.CONTROLLER else ActorKind.PERSON
        return Actor(kind=kind, name=self.name, identity=self.identity)

    def require(self, needed: Role) -> None:
        """Raises `ForbiddenError` unless the caller's role includes `needed`."""
        if not allows(self.role, needed):
            raise ForbiddenError(f"This needs the role {needed}; {self.name} has the role {self.role}.")
