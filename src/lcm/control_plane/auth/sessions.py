"""Browser sessions: a token is exchanged for a random id in a cookie that scripts cannot read.

A session lasts `SESSION_IDLE_TIMEOUT` from its last use and `SESSION_MAX_AGE` in all, and never outlives the token behind it. Only hashes of
session ids are stored. Every sign-in makes a new id, so none can be planted in a browser beforehand.

Signing out holds at once in this process, and in others within `recent.SECONDS`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from lcm.control_plane.auth.cache import BackgroundWrites, TtlCache
from lcm.control_plane.auth.roles import Caller, CsrfError, ForbiddenError, UnauthenticatedError
from lcm.control_plane.secrets.box import Secret
from lcm.control_plane.store.port import Delete, Kind, Put, RevisionConflictError, Where
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from lcm.model.base import LenientModel, UtcDatetime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.store.port import Store, StoredDocument


SESSIONS = Kind("session", fields=("expires_at",))
SESSION_IDLE_TIMEOUT = timedelta(hours=12)
SESSION_MAX_AGE = timedelta(days=7)

_SESSION_ID_PATTERN = re.compile(r"[0-9a-f]{64}")
_ID_BYTES = 32
_EXTEND_INTERVAL = timedelta(minutes=5)
_SWEEP_BATCH = 100
_SESSION_OVER = "You are signed out, or the session is over. Sign in again."


class TokenValidator(Protocol):
    """What a session asks about the token behind it."""

    async def still_valid(self, token_id: str) -> bool:
        """Whether the token would be accepted now."""


class _StoredSession(LenientModel):
    """A session as it is stored."""

    name: str
    role: Role
    token_id: str | None
    expires_at: UtcDatetime
    ends_at: UtcDatetime


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A session that is open. `csrf` is given to our own pages and comes back with every change."""

    id: Secret
    csrf: Secret
    caller: Caller
    expires_at: datetime


class SessionService:
    """Begins, resumes and ends sessions."""

    def __init__(self, store: Store, tokens: TokenValidator) -> None:
        self._store = store
        self._tokens = tokens
        self._recent: TtlCache[_StoredSession] = TtlCache()
        self._aside = BackgroundWrites()

    async def close(self) -> None:
        """Finish prolongations that are being written."""
        await self._aside.finish()

    async def begin(self, caller: Caller) -> BrowserSession:
        """Open a session for somebody who has just signed in."""
        if caller.role is Role.CONTROLLER:
            # It alone reads secrets: no browser should hold a key to them.
            raise ForbiddenError("A controller's token cannot sign in a browser. Use a token of a person.")
        session_id = clock.rng().randbytes(_ID_BYTES).hex()
        ends_at = clock.now() + SESSION_MAX_AGE
        if caller.expires_at is not None:
            ends_at = min(ends_at, caller.expires_at)
        kept = _StoredSession(
            name=caller.name,
            role=caller.role,
            token_id=caller.token_id,
            expires_at=min(clock.now() + SESSION_IDLE_TIMEOUT, ends_at),
            ends_at=ends_at,
        )
        await self._store.commit([_put(_storage_key(session_id), kept, None)])
        return _open_session(session_id, kept)

    async def resume(self, session_id: str) -> BrowserSession:
        """The session of a cookie; raises `UnauthenticatedError` if it is over or its token no longer holds."""
        if not _SESSION_ID_PATTERN.fullmatch(session_id):
            raise UnauthenticatedError(_SESSION_OVER)
        key = _storage_key(session_id)
        kept = await self._kept(key)
        if kept is None or kept.expires_at <= clock.now():
            raise UnauthenticatedError(_SESSION_OVER)
        if kept.token_id is not None and not await self._tokens.still_valid(kept.token_id):
            raise UnauthenticatedError("The token that you signed in with has expired or was revoked.")
        return _open_session(session_id, self._prolong(key, kept))

    async def end(self, session_id: str) -> None:
        """Sign out. A session that is over already is no error."""
        if not _SESSION_ID_PATTERN.fullmatch(session_id):
            return
        key = _storage_key(session_id)
        try:
            await self._delete(key)
        finally:
            self._recent.drop(key)

    async def sweep(self) -> int:
        """Remove sessions that are over; says how many. Meant to be called every hour or so."""
        removed = 0
        after: str | None = None
        over = Where(below={"expires_at": clock.now().timestamp()})
        while True:
            page = await self._store.find(SESSIONS, over, after=after, limit=_SWEEP_BATCH)
            for stored in page.items:
                removed += await self._remove(stored)
            after = page.next_cursor
            if after is None:
                return removed

    async def _delete(self, key: str) -> None:
        while (stored := await self._store.get(SESSIONS, key)) is not None:
            # A prolongation may come in between, once in five minutes; signing out must not lose against it.
            await self._remove(stored)

    async def _remove(self, stored: StoredDocument) -> bool:
        try:
            await self._store.commit([Delete(SESSIONS, stored.id, stored.revision)])
        except RevisionConflictError:
            return False
        return True

    async def _kept(self, key: str) -> _StoredSession | None:
        async def read() -> _StoredSession | None:
            stored = await self._store.get(SESSIONS, key)
            return _StoredSession.model_validate_json(stored.body) if stored else None

        return await self._recent.get(key, read)

    def _prolong(self, key: str, kept: _StoredSession) -> _StoredSession:
        until = min(clock.now() + SESSION_IDLE_TIMEOUT, kept.ends_at)
        if until - kept.expires_at < _EXTEND_INTERVAL:
            return kept
        longer = kept.model_copy(update={"expires_at": until})
        self._recent.amend(key, longer)
        self._aside.start(key, lambda: self._write(key, until))
        return longer

    async def _write(self, key: str, until: datetime) -> None:
        stored = await self._store.get(SESSIONS, key)
        if stored is None:
            return
        kept = _StoredSession.model_validate_json(stored.body)
        if kept.expires_at < until:
            await self._store.commit([_put(key, kept.model_copy(update={"expires_at": until}), stored.revision)])


def check_csrf(session: BrowserSession, presented: str | None) -> None:
    """Returns if a change by cookie carries the session's CSRF token, else raises `CsrfError`."""
    shown = (presented or "").encode("utf-8", "surrogatepass")
    if not hmac.compare_digest(shown, session.csrf.reveal().encode()):
        raise CsrfError("This change did not come from a page of this sign-in. Reload the page and try again.")


def _storage_key(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()


def _open_session(session_id: str, kept: _StoredSession) -> BrowserSession:
    # Derived from the id, which another site can neither read nor guess: nothing more needs to be stored.
    csrf = hmac.new(session_id.encode(), b"lcm csrf", hashlib.sha256).hexdigest()
    caller = Caller(
        name=kept.name,
        kind=CallerKind.SESSION,
        role=kept.role,
        token_id=kept.token_id,
        expires_at=kept.ends_at,
    )
    return BrowserSession(id=Secret(session_id), csrf=Secret(csrf), caller=caller, expires_at=kept.expires_at)


def _put(key: str, kept: _StoredSession, expected: int | None) -> Put:
    fields = {"expires_at": kept.expires_at.timestamp()}
    return Put(kind=SESSIONS, id=key, body=kept.model_dump_json().encode(), expected=expected, fields=fields)


def cookie_name(*, secure: bool) -> str:
    """The cookie's name, over TLS (`secure`) or not."""
    return "__Host-lcm_session" if secure else "lcm_session"


def session_cookie(session: BrowserSession, *, secure: bool) -> str:
    """The value of a Set-Cookie header that keeps a session."""
    seconds = max(0, int((session.expires_at - clock.now()).total_seconds()))
    return _set_cookie(session.id.reveal(), seconds, secure=secure)


def expired_cookie(*, secure: bool) -> str:
    """The value of a Set-Cookie header that forgets the session."""
    return _set_cookie("", 0, secure=secure)


def session_id_from(cookies: Mapping[str, str], *, secure: bool) -> str | None:
    """The session id that a request brought; over TLS a cookie set without it does not count."""
    return cookies.get(cookie_name(secure=secure))


def _set_cookie(value: str, seconds: int, *, secure: bool) -> str:
    flags = "; Secure" if secure else ""
    return f"{cookie_name(secure=secure)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{flags}"


SIGN_IN_LINK_PATH = "/sign-in"
SIGN_IN_LINK_SECONDS = 600.0
MAX_SIGN_IN_LINKS = 100
_CODE_BYTES = 32


class SignInLinks:
    """Codes that were not used yet; past `MAX_SIGN_IN_LINKS` the oldest is void."""

    def __init__(self, seconds: float = SIGN_IN_LINK_SECONDS) -> None:
        self._seconds = seconds
        self._open: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    def issue(self, caller: Caller) -> Secret:
        """A code by which somebody signs in as `caller`."""
        code = clock.rng().randbytes(_CODE_BYTES).hex()
        self._open[_code_digest(code)] = (caller, asyncio.get_running_loop().time() + self._seconds)
        if len(self._open) > MAX_SIGN_IN_LINKS:
            self._open.popitem(last=False)
        return Secret(code)

    def address(self, caller: Caller) -> Secret:
        """The path of a link that signs somebody in as `caller`."""
        return Secret(f"{SIGN_IN_LINK_PATH}#{self.issue(caller).reveal()}")

    def redeem(self, code: str) -> Caller:
        """Whom the code signs in, once; raises `UnauthenticatedError` for one that is unknown, used or too old."""
        # Found by its hash: how long that takes says nothing about the code.
        caller, until = self._open.pop(_code_digest(code), (None, 0.0))
        if caller is None or asyncio.get_running_loop().time() >= until:
            raise UnauthenticatedError("This sign-in link was used already or is too old. Ask for a new one.")
        return caller


def _code_digest(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()
