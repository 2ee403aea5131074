"""A session as it is stored, and what is derived from it."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.secrets.encryption import DecryptionError, Secret, SecretLocation
from lcm.control_plane.store.port import Kind, Put
from lcm.core import clock
from lcm.model.access import SESSION_TOKEN_PREFIX, CallerKind, Grant, Role, SessionInfo, SessionKind
from lcm.model.base import CARRIED, Record, UtcDatetime

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.auth.oidc.provider import TokenSet
    from lcm.control_plane.secrets.encryption import SecretBox

SESSIONS = Kind("session", fields=("expires_at",))
SESSION_IDLE_TIMEOUT = timedelta(hours=12)
SESSION_MAX_AGE = timedelta(days=7)
OIDC_IDLE_TIMEOUT = timedelta(hours=1)
OIDC_MAX_AGE = timedelta(hours=12)
"""Sessions of people who signed in with the identity provider are shorter: they can sign in again with one click."""

SILENCE_LIMIT = timedelta(hours=1)
"""How long a session goes on while the identity provider does not respond."""

FIRST_USE_LIMIT = timedelta(minutes=10)
"""A session of a command line that is not used by then ends: its answer was lost, or nobody waited for it."""

_SESSION_TOKEN_PATTERN = re.compile(SESSION_TOKEN_PREFIX + r"([0-9a-f]{64})")
_MAX_ID_TOKEN = 8 * 1024


class ProviderGrant(Record):
    """What the identity provider issued for a session, encrypted.

    `checked_at` is when it last said which groups the person has. Until `renewing_until` one control plane asks it
    again, and no other does. `silent_until` is set while it does not respond, and nobody asks before. `lapsed` means
    that it can be asked only through the person's browser: there is no refresh token, and the access token has expired.
    """

    checked_at: UtcDatetime
    renewing_until: UtcDatetime | None = None
    silent_until: UtcDatetime | None = None
    refresh_token: str | None = None
    access_token: str | None = None
    access_expires_at: UtcDatetime | None = None
    id_token: str | None = None
    lapsed: bool = False


class StoredSession(Record):
    """A session as it is stored."""

    name: str
    role: Annotated[Role, CARRIED] | None
    grants: tuple[Grant, ...] = ()  # those of its token; others follow from groups and address
    groups: tuple[str, ...] = ()
    email: str | None = None
    token_id: str | None
    expires_at: UtcDatetime
    ends_at: UtcDatetime
    subject: str | None = None
    signed_in_at: UtcDatetime | None = None
    address: str = ""
    grant: ProviderGrant | None = None
    parent: str | None = None  # the session that a sign-in link was made with
    kind: Annotated[SessionKind, CARRIED] = SessionKind.BROWSER

    @property
    def idle_timeout(self) -> timedelta:
        """How long it lasts without use; a command line may rest until the session ends."""
        if self.kind is SessionKind.COMMAND_LINE:
            return OIDC_MAX_AGE
        return SESSION_IDLE_TIMEOUT if self.subject is None else OIDC_IDLE_TIMEOUT

    @property
    def caller(self) -> Caller:
        """Whose session it is."""
        return Caller(
            name=self.name,
            kind=CallerKind.SESSION,
            role=self.role,
            token_id=self.token_id,
            expires_at=self.ends_at,
            subject=self.subject,
            grants=self.grants,
            groups=self.groups,
            email=self.email,
        )


def storage_key(session_id: str) -> str:
    """The id under which a session is stored and listed: a hash, from which its id does not follow."""
    return hashlib.sha256(session_id.encode()).hexdigest()


def session_token(session_id: str) -> Secret:
    """The bearer token of a command line's session."""
    return Secret(SESSION_TOKEN_PREFIX + session_id)


def session_id_of_token(text: str) -> str | None:
    """The id in a session token; None for text of another format."""
    match = _SESSION_TOKEN_PATTERN.fullmatch(text)
    return match[1] if match else None


def put_session(key: str, session: StoredSession, expected: int | None) -> Put:
    """The write of a session."""
    fields = {"expires_at": session.expires_at.timestamp()}
    return Put(kind=SESSIONS, id=key, body=session.model_dump_json().encode(), expected=expected, fields=fields)


def session_info(key: str, session: StoredSession) -> SessionInfo:
    """A session as it is listed."""
    return SessionInfo(
        id=key,
        name=session.name,
        role=session.role,
        grants=session.grants,
        kind=session.kind,
        identity=session.caller.identity,
        address=session.address,
        signed_in_at=session.signed_in_at,
        expires_at=session.expires_at,
        ends_at=session.ends_at,
    )


def seal_grant(tokens: TokenSet, key: str, box: SecretBox, checked_at: datetime) -> ProviderGrant:
    """The tokens of the provider, encrypted for the session with this key."""

    def seal(name: str, token: Secret | None, longest: int | None = None) -> str | None:
        if token is None or (longest is not None and len(token.reveal()) > longest):
            return None
        return box.encrypt(token, _location(key, name))

    return ProviderGrant(
        checked_at=checked_at,
        refresh_token=seal("refresh_token", tokens.refresh_token),
        access_token=seal("access_token", tokens.access_token) if tokens.refresh_token is None else None,
        access_expires_at=tokens.access_expires_at,
        id_token=seal("id_token", tokens.id_token, _MAX_ID_TOKEN),  # only a hint for the sign-out
    )


def is_lapsed(session: StoredSession) -> bool:
    """Whether a session waits for its person's browser, and nobody can use it before."""
    return session.grant is not None and session.grant.lapsed


def is_unconfirmed(grant: ProviderGrant) -> bool:
    """Whether the provider has been silent for so long that the session no longer counts."""
    return clock.now() - grant.checked_at >= SILENCE_LIMIT


def open_token(grant: ProviderGrant, name: str, key: str, box: SecretBox) -> Secret | None:
    """A token of a grant; None if there is none or its key is gone."""
    sealed = getattr(grant, name)
    try:
        return None if sealed is None else box.decrypt(sealed, _location(key, name))
    except DecryptionError:
        return None


def _location(key: str, name: str) -> SecretLocation:
    return SecretLocation(SESSIONS.name, key, name)
