"""Browser sessions and their cookie.

A token is exchanged for a random id in a cookie that scripts cannot read. A session lasts `SESSION_IDLE_TIMEOUT` from
its last use and `SESSION_MAX_AGE` in total, and never outlives the token behind it. Only hashes of session ids are
stored. Every sign-in creates a new id, so none can be planted in a browser beforehand.

Signing out takes effect at once in this process, and in others within `cache.AUTH_CACHE_SECONDS`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Protocol

from lcm.control_plane.auth.cache import BackgroundWrites, TtlCache
from lcm.control_plane.auth.roles import Caller, CsrfError, ForbiddenError, UnauthenticatedError
from lcm.control_plane.records.kinds import find_all
from lcm.control_plane.secrets.encryption import Secret
from lcm.control_plane.store.port import Delete, Kind, Put, RevisionConflictError, Sort, Where
from lcm.core import clock
from lcm.model.access import CallerKind, Role, SessionInfo
from lcm.model.base import CARRIED, Record, UtcDatetime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lcm.control_plane.store.port import NewJournalEntry, Store, StoredDocument


SESSIONS = Kind("session", fields=("expires_at",))
SESSION_IDLE_TIMEOUT = timedelta(hours=12)
SESSION_MAX_AGE = timedelta(days=7)

_SESSION_ID_PATTERN = re.compile(r"[0-9a-f]{64}")
_ID_BYTES = 32
_MAX_ADDRESS_LENGTH = 64
_EXTEND_INTERVAL = timedelta(minutes=5)
_SESSION_ENDED = "You are signed out, or the session has ended. Sign in again."


class TokenValidator(Protocol):
    """Checks the token behind a session."""

    async def still_valid(self, token_id: str) -> bool:
        """Whether the token is still accepted."""


class _StoredSession(Record):
    """A session as it is stored."""

    name: str
    role: Annotated[Role, CARRIED]
    token_id: str | None
    expires_at: UtcDatetime
    ends_at: UtcDatetime
    subject: str | None = None
    signed_in_at: UtcDatetime | None = None
    address: str = ""


class UnknownSessionError(LookupError):
    """There is no session with this id."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, and where the next page begins; None at the end."""

    items: Sequence[SessionInfo]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """An open session. `csrf` is embedded in our own pages and must be sent with every change."""

    id: Secret
    csrf: Secret
    caller: Caller
    expires_at: datetime


class SessionService:
    """Opens, resumes and ends sessions."""

    def __init__(self, store: Store, tokens: TokenValidator) -> None:
        self._store = store
        self._tokens = tokens
        self._cache: TtlCache[_StoredSession] = TtlCache()
        self._background = BackgroundWrites()

    async def close(self) -> None:
        """Wait for extensions that are being written."""
        await self._background.finish()

    async def begin(self, caller: Caller, address: str = "") -> BrowserSession:
        """Open a session for a caller who has just signed in."""
        if caller.role is Role.CONTROLLER:
            # Only this role reads secrets: no browser should have access to them.
            raise ForbiddenError("A controller's token cannot be used in a browser. Use a person's token.")
        session_id = clock.rng().randbytes(_ID_BYTES).hex()
        ends_at = clock.now() + SESSION_MAX_AGE
        if caller.expires_at is not None:
            ends_at = min(ends_at, caller.expires_at)
        session = _StoredSession(
            name=caller.name,
            role=caller.role,
            token_id=caller.token_id,
            subject=caller.subject,
            expires_at=min(clock.now() + SESSION_IDLE_TIMEOUT, ends_at),
            ends_at=ends_at,
            signed_in_at=clock.now(),
            address=address[:_MAX_ADDRESS_LENGTH],
        )
        await self._store.commit([_put(storage_key(session_id), session, None)])
        return _open_session(session_id, session)

    async def resume(self, session_id: str) -> BrowserSession:
        """The session of a cookie; raises `UnauthenticatedError` if it has ended or its token is no longer valid."""
        if not _SESSION_ID_PATTERN.fullmatch(session_id):
            raise UnauthenticatedError(_SESSION_ENDED)
        key = storage_key(session_id)
        session = await self._read(key)
        if session is None or session.expires_at <= clock.now():
            raise UnauthenticatedError(_SESSION_ENDED)
        if session.token_id is not None and not await self._tokens.still_valid(session.token_id):
            raise UnauthenticatedError("The token that you signed in with has expired or was revoked.")
        return _open_session(session_id, self._extend(key, session))

    async def still_valid(self, session_id: str) -> bool:
        """Whether a session that was resumed earlier goes on. This is no use of it and does not extend it."""
        session = await self._read(storage_key(session_id))
        if session is None or session.expires_at <= clock.now():
            return False
        return session.token_id is None or await self._tokens.still_valid(session.token_id)

    async def end(self, session_id: str) -> Caller | None:
        """Sign out; returns whose session it was, None if it has already ended."""
        if not _SESSION_ID_PATTERN.fullmatch(session_id):
            return None
        key = storage_key(session_id)
        session = await self._read(key)
        try:
            await self._delete(key)
        finally:
            self._cache.drop(key)
        return None if session is None else _caller(session)

    async def page(self, *, after: str | None = None, limit: int = 100) -> SessionPage:
        """Open sessions, the one that expires last first."""
        open_ones = Where(at_least={"expires_at": clock.now().timestamp()})
        newest_first = Sort(by="expires_at", descending=True)
        page = await self._store.find(SESSIONS, open_ones, sort=newest_first, after=after, limit=limit)
        return SessionPage([_session_info(stored) for stored in page.items], page.next_cursor)

    async def count_of_token(self, token_id: str) -> int:
        """How many open sessions were begun with a token, and end with it."""
        open_ones = Where(at_least={"expires_at": clock.now().timestamp()})
        found = [each async for each in find_all(self._store, SESSIONS, open_ones)]
        return sum(_StoredSession.model_validate_json(each.body).token_id == token_id for each in found)

    async def find(self, key: str) -> SessionInfo | None:
        """An open session by the id it is listed with."""
        stored = await self._store.get(SESSIONS, key)
        return None if stored is None else _session_info(stored)

    async def end_by_key(self, key: str, audit: Callable[[SessionInfo], Sequence[NewJournalEntry]]) -> SessionInfo:
        """End the session of somebody; `audit` builds the entries of the same commit.

        Raises `UnknownSessionError` if it has already ended. Other control planes accept it for some seconds more.
        """
        while (stored := await self._store.get(SESSIONS, key)) is not None:
            info = _session_info(stored)
            with suppress(RevisionConflictError):  # it was extended in between
                await self._store.commit([Delete(SESSIONS, key, stored.revision)], entries=audit(info))
                self._cache.drop(key)
                return info
        raise UnknownSessionError(key)

    async def sweep(self) -> int:
        """Delete expired sessions; returns the number. Call it about every hour."""
        removed = 0
        expired = Where(below={"expires_at": clock.earliest_now().timestamp()})
        async for stored in find_all(self._store, SESSIONS, expired):
            removed += await self._remove(stored)
        return removed

    async def _delete(self, key: str) -> None:
        while (stored := await self._store.get(SESSIONS, key)) is not None:
            # An extension may be written in between, once in five minutes; a sign-out must not lose against it.
            await self._remove(stored)

    async def _remove(self, stored: StoredDocument) -> bool:
        try:
            await self._store.commit([Delete(SESSIONS, stored.id, stored.revision)])
        except RevisionConflictError:
            return False
        return True

    async def _read(self, key: str) -> _StoredSession | None:
        async def read() -> _StoredSession | None:
            stored = await self._store.get(SESSIONS, key)
            return _StoredSession.model_validate_json(stored.body) if stored else None

        return await self._cache.get(key, read)

    def _extend(self, key: str, session: _StoredSession) -> _StoredSession:
        until = min(clock.now() + SESSION_IDLE_TIMEOUT, session.ends_at)
        if until - session.expires_at < _EXTEND_INTERVAL:
            return session
        extended = session.model_copy(update={"expires_at": until})
        self._cache.replace(key, extended)
        self._background.start(key, lambda: self._write(key, until))
        return extended

    async def _write(self, key: str, until: datetime) -> None:
        stored = await self._store.get(SESSIONS, key)
        if stored is None:
            return
        session = _StoredSession.model_validate_json(stored.body)
        if session.expires_at < until:
            await self._store.commit([_put(key, session.model_copy(update={"expires_at": until}), stored.revision)])


def _session_info(stored: StoredDocument) -> SessionInfo:
    session = _StoredSession.model_validate_json(stored.body)
    return SessionInfo(
        id=stored.id,
        name=session.name,
        role=session.role,
        identity=_caller(session).identity,
        address=session.address,
        signed_in_at=session.signed_in_at,
        expires_at=session.expires_at,
        ends_at=session.ends_at,
    )


def check_csrf(session: BrowserSession, presented: str | None) -> None:
    """Raises `CsrfError` unless a change with a cookie carries the session's CSRF token."""
    received = (presented or "").encode("utf-8", "surrogatepass")
    if not hmac.compare_digest(received, session.csrf.reveal().encode()):
        raise CsrfError("This change did not come from a page of this session. Reload the page and try again.")


def storage_key(session_id: str) -> str:
    """The id under which a session is stored and listed: a hash, from which its id does not follow."""
    return hashlib.sha256(session_id.encode()).hexdigest()


def _open_session(session_id: str, session: _StoredSession) -> BrowserSession:
    # Derived from the id, which another site can neither read nor guess, so nothing more is stored.
    csrf = hmac.new(session_id.encode(), b"lcm csrf", hashlib.sha256).hexdigest()
    return BrowserSession(
        id=Secret(session_id), csrf=Secret(csrf), caller=_caller(session), expires_at=session.expires_at
    )


def _caller(session: _StoredSession) -> Caller:
    return Caller(
        name=session.name,
        kind=CallerKind.SESSION,
        role=session.role,
        token_id=session.token_id,
        expires_at=session.ends_at,
        subject=session.subject,
    )


def _put(key: str, session: _StoredSession, expected: int | None) -> Put:
    fields = {"expires_at": session.expires_at.timestamp()}
    return Put(kind=SESSIONS, id=key, body=session.model_dump_json().encode(), expected=expected, fields=fields)


def cookie_name(*, secure: bool) -> str:
    """The name of the session cookie, over TLS (`secure`) or not.

    With the `__Host-` prefix, browsers accept it only from this host, so a neighboring subdomain cannot plant one.
    """
    return "__Host-lcm_session" if secure else "lcm_session"


def session_cookie(session: BrowserSession, *, secure: bool) -> str:
    """The value of a Set-Cookie header for a session."""
    seconds = max(0, int((session.expires_at - clock.now()).total_seconds()))
    return _set_cookie(session.id.reveal(), seconds, secure=secure)


def expired_cookie(*, secure: bool) -> str:
    """The value of a Set-Cookie header that deletes the session cookie."""
    return _set_cookie("", 0, secure=secure)


def session_id_from(cookies: Mapping[str, str], *, secure: bool) -> str | None:
    """The session id in a request's cookies; over TLS, a cookie that was set without TLS is ignored."""
    return cookies.get(cookie_name(secure=secure))


def _set_cookie(value: str, seconds: int, *, secure: bool) -> str:
    flags = "; Secure" if secure else ""
    return f"{cookie_name(secure=secure)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{flags}"
