"""Who may do what: roles, tokens as they are listed, and who somebody is."""

from __future__ import annotations

from lcm.model.base import Answer, Choice, Data, Moment, Name, ToldSecret


class Role(Choice):
    """What somebody may do."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    CONTROLLER = "controller"


class CallerKind(Choice):
    """By what a caller showed who they are."""

    TOKEN = "token"  # noqa: S105 - a word, not a token
    OIDC = "oidc"
    SESSION = "session"
    BOOTSTRAP = "bootstrap"


class WhoAmI(Answer):
    """Who is calling and what they may do."""

    name: str
    role: Role
    kind: CallerKind
    expires_at: Moment | None = None


class TokenInfo(Answer):
    """A token as it is listed: all but its secret."""

    id: str
    name: Name
    role: Role
    created_at: Moment
    created_by: str
    expires_at: Moment | None = None
    last_used_at: Moment | None = None
    revoked_at: Moment | None = None
    revoked_by: str | None = None


class NewToken(Data):
    """A token to be made."""

    name: Name
    role: Role
    expires_at: Moment | None = None


class MadeToken(Answer):
    """A token that was made. It is shown this once."""

    token: ToldSecret
    info: TokenInfo


class SignInLink(Answer):
    """An address that signs a browser in, once and for some minutes. Whoever opens it is who asked for it."""

    path: ToldSecret
    expires_at: Moment
