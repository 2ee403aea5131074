"""Roles, API tokens, callers, and secrets that the API reveals."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

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
    """What a caller is allowed to do."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    CONTROLLER = "controller"


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


class CallerIdentity(LenientModel):
    """The identity and role of the caller."""

    name: str
    role: Role
    kind: CallerKind
    expires_at: UtcDatetime | None = None


class TokenInfo(Record):
    """An API token without its secret."""

    id: str
    name: ResourceName
    role: Annotated[Role, CARRIED]
    created_at: UtcDatetime
    created_by: str
    expires_at: UtcDatetime | None = None
    last_used_at: UtcDatetime | None = None
    revoked_at: UtcDatetime | None = None
    revoked_by: str | None = None


class CreateTokenRequest(StrictModel):
    """Create an API token."""

    name: ResourceName
    role: Role
    expires_at: RequestedTime | None = None


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
    handle: RevealedSecret = Field(description="What a poll sends. Who holds it gets the session.")


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
    role: Role
    expires_at: UtcDatetime = Field(description="When it ends even if it is used.")


class SignInPoll(LenientModel):
    """Whether a sign-in with a code is finished."""

    session: CommandLineSession | None = Field(default=None, description="Null until the person has entered the code.")
    slow_down: bool = Field(default=False, description="Wait 5 s longer between polls from now on.")


class SessionInfo(LenientModel):
    """An open session of a browser or a command line. Its id is no credential: nobody can sign in with it."""

    id: str
    name: str
    role: Role
    kind: SessionKind = Field(default=SessionKind.BROWSER, description="Where it is used.")
    identity: str = Field(
        default="", description="What proves the name: token: and its id, or oidc: with issuer and subject."
    )
    address: str = Field(default="", description="The address that the person signed in from; empty if not known.")
    signed_in_at: UtcDatetime | None = Field(default=None, description="Null if it began before this was recorded.")
    expires_at: UtcDatetime = Field(description="When it ends unless it is used before.")
    ends_at: UtcDatetime = Field(description="When it ends even if it is used.")


class RevealedLicenseToken(LenientModel):
    """A worker's license token. Only controllers may read it."""

    token: RevealedSecret


class CmlCredentials(LenientModel):
    """The credentials with which a controller signs in to a worker's CML."""

    username: str
    password: RevealedSecret


class SecretRotationResult(LenientModel):
    """The result of encrypting all stored secrets with the primary key."""

    rotated: int
    already: int
    unreadable: tuple[str, ...] = Field(
        default=(),
        description="Secrets that were left unchanged because their key is missing or they were altered; at most 100",
    )
