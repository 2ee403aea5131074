"""Callers, and what each role may do.

`viewer` reads, `operator` also changes workers, `admin` also does everything else that people do. `controller` is
separate: only it reads secrets and writes observations, and it may do nothing that people do. No admin is a controller.
`instructor` and `learner` are granted in a team: a caller has at most one role for the whole fleet, and any grants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from lcm.model.access import CallerKind, Role, describe_roles
from lcm.model.audit import Actor, ActorKind
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.access import Grant

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


class HasActor(Protocol):
    """Whoever requests a change: the audit records the actor."""

    @property
    def actor(self) -> Actor:
        """Who it is, for the audit."""

    @property
    def unique_name(self) -> str:
        """What no other caller has; idempotency keys belong to it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling. `token_id` is the token that was used to sign in, also for a session; None if there is none.

    `subject` is who this is at the identity provider: issuer and subject. Names are chosen by people and may be equal.
    `session_key` is the session that the provider confirms again and again: what this caller opens ends with it.
    `groups` and `email` (verified) are what the provider says; teams name their members by them.
    """

    name: str
    kind: CallerKind
    role: Role | None
    token_id: str | None = None
    expires_at: datetime | None = None
    subject: str | None = None
    session_key: str | None = None
    grants: tuple[Grant, ...] = ()
    groups: tuple[str, ...] = ()
    email: str | None = None

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
        """The name of a token, which no other token has; for others with the identity, as names may be equal.

        So it is for tokens of a team: the next token with the name of a revoked one may be of another team.
        """
        named = self.subject is None and self.role is not None
        return self.name if named else f"{self.name} {self.identity}"

    @property
    def actor(self) -> Actor:
        """The caller as recorded in the audit."""
        kind = ActorKind.CONTROLLER if self.role is Role.CONTROLLER else ActorKind.PERSON
        return Actor(kind=kind, name=self.name, identity=self.identity)

    @property
    def role_text(self) -> str:
        """The role as people read it; for a person with roles in teams only, the highest of these."""
        return describe_roles(self.role, self.grants)

    @property
    def own_lablets(self) -> frozenset[tuple[str, str]]:
        """As a learner: teams, each with what the caller's lablets there have as owner."""
        return frozenset(
            (grant.team, owner)
            for grant in self.grants
            if grant.role is Role.LEARNER
            for owner in (self.identity, email_owner(grant.email))
            if owner
        )

    @property
    def scope(self) -> Scope:
        """Which objects of teams the caller may see."""
        return Scope.of(self)

    def allows(self, needed: Role) -> bool:
        """Whether the caller's role for the whole fleet includes `needed`."""
        return self.role is not None and allows(self.role, needed)

    def require(self, needed: Role) -> None:
        """Raises `ForbiddenError` unless the caller's role for the whole fleet includes `needed`."""
        if not self.allows(needed):
            raise ForbiddenError(f"This needs the role {needed}; {self.name} has the role {self.role_text}.")

    def require_any(self, needed: Role, *in_team: Role) -> None:
        """Raises `ForbiddenError` unless the role for the fleet includes `needed`, or one in a team is `in_team`."""
        if self.allows(needed) or any(grant.role in in_team for grant in self.grants):
            return
        allowed = " or ".join([needed, *in_team])
        raise ForbiddenError(f"This needs the role {allowed}; {self.name} has the role {self.role_text}.")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of teams a caller may see: all, those of teams, and the caller's own within teams.

    `own` has the teams in which the caller is a learner, each with what lablets of theirs have as owner.
    """

    everything: bool = False
    teams: frozenset[str] = frozenset()
    own: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, caller: Caller) -> Scope:
        """The scope of a caller. Every role for the whole fleet sees all teams."""
        if caller.role is not None:
            return cls(everything=True)
        teams = {grant.team for grant in caller.grants if grant.role is Role.INSTRUCTOR}
        return cls(teams=frozenset(teams), own=caller.own_lablets)

    @property
    def all_teams(self) -> frozenset[str]:
        """Every team in which the caller has a role."""
        return self.teams | {team for team, _ in self.own}

    def sees(self, team: str, owner: str) -> bool:
        """Whether an object of this team and owner is visible; without a team, only for roles of the fleet."""
        return self.everything or team in self.teams or (team, owner) in self.own

    def manages(self, team: str) -> bool:
        """Whether the caller sees everything of a team."""
        return self.everything or team in self.teams


def email_owner(email: str | None) -> str:
    """The owner of what was made for a member named by address, who may not have signed in yet; empty for none."""
    return f"email:{email}" if email else ""
