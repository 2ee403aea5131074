"""Roles, API tokens, callers, and secrets that the API reveals."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

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


class SessionInfo(LenientModel):
    """An open session of a browser. Its id is no credential: nobody can sign in with it."""

    id: str
    name: str
    role: Role
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
