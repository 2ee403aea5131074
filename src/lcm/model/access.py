"""Roles, API tokens, callers, and secrets that the API reveals."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, SecretStr, model_validator

from lcm.model.base import (
    CARRIED,
    CaseInsensitiveEnum,
    LenientModel,
    Record,
    RequestedTime,
    ResourceName,
    RevealedSecret,
    StrictModel,
    UtcDatetime,
)

SESSION_TOKEN_PREFIX = "lcm-session-"  # noqa: S105 - how such a token begins
"""How the token of a command line's session begins."""


class Role(CaseInsensitiveEnum):
    """What a caller is allowed to do: for the whole fleet, or, as instructor and learner, within a team."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    CONTROLLER = "controller"
    INSTRUCTOR = "instructor"
    LEARNER = "learner"

    @property
    def in_team(self) -> bool:
        """Whether it is granted for one team."""
        return self in TEAM_ROLES


TEAM_ROLES = (Role.INSTRUCTOR, Role.LEARNER)
"""The roles that are granted for a team; the others are for the whole fleet."""


class Grant(Record):
    """A role in one team. `email` is the address by which the team names the person."""

    team: str = Field(description="The id of the team.")
    role: Annotated[Role, CARRIED]
    email: str | None = Field(default=None, description="The address by which the team names the person, if it does.")


class CallerKind(CaseInsensitiveEnum):
    """How a caller authenticated."""

    TOKEN = "token"  # noqa: S105 - an enum value, not a token
    OIDC = "oidc"
    SESSION = "session"
    BOOTSTRAP = "bootstrap"


class SessionKind(CaseInsensitiveEnum):
    """Where a session is used."""

    BROWSER = "browser"
    COMMAND_LINE = "command_line"

    @property
    def label(self) -> str:
        """The kind as people read it."""
        return self.value.replace("_", " ")


NO_FLEET_ROLE = "Null for a person who has roles in teams only."


def describe_roles(role: Role | None, grants: tuple[Grant, ...]) -> str:
    """A person's role as people read it; with roles in teams only, the highest of these."""
    if role is not None:
        return role.value
    in_teams = {grant.role for grant in grants}
    return next((each.value for each in TEAM_ROLES if each in in_teams), "no role")


class CallerIdentity(LenientModel):
    """The identity and roles of the caller."""

    name: str
    role: Role | None = Field(default=None, description=f"The role for the whole fleet. {NO_FLEET_ROLE}")
    grants: tuple[Grant, ...] = Field(default=(), description="Roles in teams.")
    kind: CallerKind
    expires_at: UtcDatetime | None = None

    @property
    def role_text(self) -> str:
        """The role as people read it."""
        return describe_roles(self.role, self.grants)


class TokenInfo(Record):
    """An API token without its secret."""

    id: str
    name: ResourceName
    role: Annotated[Role, CARRIED]
    team: str | None = Field(default=None, description="The id of the team in which it has the role.")
    created_at: UtcDatetime
    created_by: str
    expires_at: UtcDatetime | None = None
    last_used_at: UtcDatetime | None = None
    revoked_at: UtcDatetime | None = None
    revoked_by: str | None = None


_TEAM_OF_ROLE: Any = {
    "oneOf": [
        {
            "properties": {
                "role": {"enum": [role.value for role in Role if role not in TEAM_ROLES]},
                "team": {"type": "null"},
            }
        },
        {
            "required": ["team"],
            "properties": {"role": {"enum": [role.value for role in TEAM_ROLES]}, "team": {"type": "string"}},
        },
    ]
}


class CreateTokenRequest(StrictModel):
    """Create an API token. A token of an instructor or learner is for one team."""

    model_config = ConfigDict(json_schema_extra=_TEAM_OF_ROLE)

    name: ResourceName
    role: Role
    team: ResourceName | None = Field(
        default=None, description="The id or name of the team. Required for the roles instructor and learner only."
    )
    expires_at: RequestedTime | None = None

    @model_validator(mode="after")
    def _check_team(self) -> Self:
        if self.role.in_team and self.team is None:
            raise ValueError(f"team: the role {self.role} is granted in a team; name the team")
        if self.team is not None and not self.role.in_team:
            raise ValueError(f"team: the role {self.role} is for the whole fleet; leave team out, or choose learner")
        return self


class CreatedToken(LenientModel):
    """A new API token. The secret is returned only once."""

    token: RevealedSecret
    info: TokenInfo


class SignInLink(LenientModel):
    """A single-use link that signs a browser in as the caller who requested it. It expires after some minutes."""

    path: RevealedSecret
    expires_at: UtcDatetime


class DeviceSignIn(LenientModel):
    """What a person does to sign a command line in: open the address on any device, and enter the code there."""

    user_code: str
    verification_uri: str
    verification_uri_complete: str | None = Field(default=None, description="The address with the code in it.")
    interval: float = Field(description="Seconds to wait between two polls.")
    expires_in: float = Field(description="Seconds until the code expires.")
    handle: RevealedSecret = Field(description="Sent with each poll. Keep it secret: it gives access to the session.")


class CommandLineSignIn(LenientModel):
    """How a command line signs in: with a code on any device, else with a browser on the same computer."""

    device: DeviceSignIn | None = Field(default=None, description="Null if the identity provider offers no codes.")
    browser_url: str = Field(description="The page that signs in through a browser and returns to a loopback port.")


class PollSignInRequest(StrictModel):
    """Ask whether the person has entered the code."""

    handle: Annotated[SecretStr, Field(min_length=1, max_length=8192)]


class RedeemSignInRequest(StrictModel):
    """Exchange the code that a browser brought to the loopback port."""

    code: Annotated[SecretStr, Field(min_length=1, max_length=8192)]
    code_verifier: Annotated[SecretStr, Field(min_length=43, max_length=128)]


class CommandLineSession(LenientModel):
    """A session of a command line. Its token is sent as a bearer token."""

    token: RevealedSecret
    name: str
    role: Role | None = Field(default=None, description=f"The role for the whole fleet. {NO_FLEET_ROLE}")
    grants: tuple[Grant, ...] = Field(default=(), description="Roles in teams.")
    expires_at: UtcDatetime = Field(description="When it ends, even if it is in use.")

    @property
    def role_text(self) -> str:
        """The role as people read it."""
        return describe_roles(self.role, self.grants)


class SignInPoll(LenientModel):
    """Whether a sign-in with a code is finished."""

    session: CommandLineSession | None = Field(default=None, description="Null until the person has entered the code.")
    slow_down: bool = Field(default=False, description="Wait 5 s longer between polls from now on.")


class SessionInfo(LenientModel):
    """An open session of a browser or a command line. Its id is no credential: nobody can sign in with it."""

    id: str
    name: str
    role: Role | None = Field(default=None, description=f"The role for the whole fleet. {NO_FLEET_ROLE}")
    grants: tuple[Grant, ...] = Field(default=(), description="Roles in teams, apart from those of the teams' lists.")
    kind: SessionKind = Field(default=SessionKind.BROWSER, description="Where it is used.")
    identity: str = Field(
        default="", description="What proves the name: token: and its id, or oidc: with issuer and subject."
    )
    address: str = Field(default="", description="The address that the person signed in from; empty if not known.")
    signed_in_at: UtcDatetime | None = Field(default=None, description="Null if it began before this was recorded.")
    expires_at: UtcDatetime = Field(description="When it ends unless it is used before.")
    ends_at: UtcDatetime = Field(description="When it ends, even if it is in use.")

    @property
    def role_text(self) -> str:
        """The role as people read it."""
        return "in teams" if self.role is None and not self.grants else describe_roles(self.role, self.grants)


class RevealedLicenseToken(LenientModel):
    """A worker's license token. Only controllers may read it."""

    token: RevealedSecret


class CmlCredentials(LenientModel):
    """The credentials with which a controller signs in to a worker's CML."""

    username: str
    password: RevealedSecret


class CmlAccountOwners(LenientModel):
    """The workers that have credentials of their own; all others use the default account."""

    worker_ids: tuple[str, ...] = ()


class SecretRotationResult(LenientModel):
    """The result of encrypting all stored secrets with the primary key."""

    rotated: int
    already: int
    unreadable: tuple[str, ...] = Field(
        default=(),
        description="Secrets that were left unchanged because their key is missing or they were altered; at most 100",
    )
