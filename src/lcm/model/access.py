"""Who may do what: roles, tokens as they are listed, and who somebody is."""

from __future__ import annotations

from pydantic import Field

from lcm.model.base import CaseInsensitiveEnum, LenientModel, ResourceName, RevealedSecret, StrictModel, UtcDatetime


class Role(CaseInsensitiveEnum):
    """What somebody may do."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    CONTROLLER = "controller"


class CallerKind(CaseInsensitiveEnum):
    """By what a caller showed who they are."""

    TOKEN = "token"  # noqa: S105 - a word, not a token
    OIDC = "oidc"
    SESSION = "session"
    BOOTSTRAP = "bootstrap"


class CallerIdentity(LenientModel):
    """Who is calling and what they may do."""

    name: str
    role: Role
    kind: CallerKind
    expires_at: UtcDatetime | None = None


class TokenInfo(LenientModel):
    """A token as it is listed: all but its secret."""

    id: str
    name: ResourceName
    role: Role
    created_at: UtcDatetime
    created_by: str
    expires_at: UtcDatetime | None = None
    last_used_at: UtcDatetime | None = None
    revoked_at: UtcDatetime | None = None
    revoked_by: str | None = None


class CreateTokenRequest(StrictModel):
    """A token to be made."""

    name: ResourceName
    role: Role
    expires_at: UtcDatetime | None = None


class CreatedToken(LenientModel):
    """A token that was made. It is shown this once."""

    token: RevealedSecret
    info: TokenInfo


class SignInLink(LenientModel):
    """An address that signs a browser in, once and for some minutes. Whoever opens it is who asked for it."""

    path: RevealedSecret
    expires_at: UtcDatetime


class RevealedLicenseToken(LenientModel):
    """A worker's licence token, for the controller alone."""

    token: RevealedSecret


class CmlCredentials(LenientModel):
    """What a controller signs in to a worker's CML with."""

    username: str
    password: RevealedSecret


class Ack(LenientModel):
    """That something was kept."""

    kept: bool = True


class LeadershipReset(LenientModel):
    """Whose newest term was forgotten."""

    controller: str


class SecretRotationResult(LenientModel):
    """What became of the stored secrets when they were to be encrypted with the first key."""

    rotated: int
    already: int
    unreadable: tuple[str, ...] = Field(
        default=(), description="Secrets whose key is missing or that were altered, a hundred at most: left as they are"
    )
