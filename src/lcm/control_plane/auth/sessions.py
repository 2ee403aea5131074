"""Browser sessions: a token is exchanged for a random id in a cookie that scripts cannot read.

A session lasts `IDLE` from its last use and `LONGEST` in all, and never outlives the token behind it. Only hashes of
session ids are stored. Every sign-in makes a new id, so none can be planted in a browser beforehand.

Signing out holds at once in this process, and in others within `recent.SECONDS`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from lcm.control_plane.auth.aside import Aside
from lcm.control_plane.auth.cache import Recent
from lcm.control_plane.auth.roles import Caller, CsrfRefused, Forbidden, Unauthenticated
from lcm.control_plane.secrets.box import Secret
from lcm.control_plane.store.port import Conflict, Delete, Kind, Put, Where
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from lcm.model.base import Answer, Moment

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store, Stored

SESSIONS = Kind("session", fields=("expires_at",))
IDLE = timedelta(hours=12)
LONGEST = timedelta(days=7)

_FORM = re.compile(r"[0-9a-f]{64}")
_ID_BYTES = 32
_PROLONG_EVERY = timedelta(minutes=5)
_SWEEP = 100
_OVER = "You are signed out, or the session is over. Sign in again."


class TokenCheck(Protocol):
    """What a session asks about the token behind it."""

    async def still_valid(self, token_id: str) -> bool:
        """Whether the token would be accepted now."""


class _Kept(Answer):
    """A session as it is stored."""

    name: str
    role: Role
    token_id: str | None
    expires_at: Moment
    ends_at: Moment


@dataclass(frozen=True, slots=True)
class Session:
    """A session that is open. `csrf` is given to our own pages and comes back with every change."""

    id: Secret
    csrf: Secret
    caller: Caller
    expires_at: datetime


class Sessions:
    """Begins, resumes and ends sessions."""

    def __init__(self, store: Store, tokens: TokenCheck) -> None:
        self._store = store
        self._tokens = tokens
        self._recent: Recent[_Kept] = Recent()
        self._aside = Aside()

    async def close(self) -> None:
        """Finish prolongations that are being written."""
        await self._aside.finish()

    async def begin(self, caller: Caller) -> Session:
        """Open a session for somebody who has just signed in."""
        if caller.role is Role.CONTROLLER:
            # It alone reads secrets: no browser should hold a key to them.
            raise Forbidden("A controller's token cannot sign in a browser. Use a token of a person.")
        session_id = clock.chance().randbytes(_ID_BYTES).hex()
        ends_at = clock.now() + LONGEST
        if caller.expires_at is not None:
            ends_at = min(ends_at, caller.expires_at)
        kept = _Kept(
            name=caller.name,
            role=caller.role,
            token_id=caller.token_id,
            expires_at=min(clock.now() + IDLE, ends_at),
            ends_at=ends_at,
        )
        await self._store.commit([_put(_key(session_id), kept, None)])
        return _session(session_id, kept)

    async def resume(self, session_id: str) -> Session:
        """The session of a cookie; raises `Unauthenticated` if it is over or its token no longer holds."""
        if not _FORM.fullmatch(session_id):
            raise Unauthenticated(_OVER)
        key = _key(session_id)
        kept = await self._kept(key)
        if kept is None or kept.expires_at <= clock.now():
            raise Unauthenticated(_OVER)
        if kept.token_id is not None and not await self._tokens.still_valid(kept.token_id):
            raise Unauthenticated("The token that you signed in with has expired or was revoked.")
        return _session(session_id, self._prolong(key, kept))

    async def end(self, session_id: str) -> None:
        """Sign out. A session that is over already is no error."""
        if not _FORM.fullmatch(session_id):
            return
        key = _key(session_id)
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
            page = await self._store.find(SESSIONS, over, after=after, limit=_SWEEP)
            for stored in page.items:
                removed += await self._remove(stored)
            after = page.next_after
            if after is None:
                return removed

    async def _delete(self, key: str) -> None:
        while (stored := await self._store.get(SESSIONS, key)) is not None:
            # A prolongation may come in between, once in five minutes; signing out must not lose against it.
            await self._remove(stored)

    async def _remove(self, stored: Stored) -> bool:
        try:
            await self._store.commit([Delete(SESSIONS, stored.id, stored.revision)])
        except Conflict:
            return False
        return True

    async def _kept(self, key: str) -> _Kept | None:
        async def read() -> _Kept | None:
            stored = await self._store.get(SESSIONS, key)
            return _Kept.model_validate_json(stored.body) if stored else None

        return await self._recent.get(key, read)

    def _prolong(self, key: str, kept: _Kept) -> _Kept:
        until = min(clock.now() + IDLE, kept.ends_at)
        if until - kept.expires_at < _PROLONG_EVERY:
            return kept
        longer = kept.model_copy(update={"expires_at": until})
        self._recent.amend(key, longer)
        self._aside.start(key, lambda: self._write(key, until))
        return longer

    async def _write(self, key: str, until: datetime) -> None:
        stored = await self._store.get(SESSIONS, key)
        if stored is None:
            return
        kept = _Kept.model_validate_json(stored.body)
        if kept.expires_at < until:
            await self._store.commit([_put(key, kept.model_copy(update={"expires_at": until}), stored.revision)])


def check_csrf(session: Session, presented: str | None) -> None:
    """Returns if a change by cookie carries the session's CSRF token, else raises `CsrfRefused`."""
    shown = (presented or "").encode("utf-8", "surrogatepass")
    if not hmac.compare_digest(shown, session.csrf.reveal().encode()):
        raise CsrfRefused("This change did not come from a page of this sign-in. Reload the page and try again.")


def _key(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()


def _session(session_id: str, kept: _Kept) -> Session:
    # Derived from the id, which another site can neither read nor guess: nothing more needs to be stored.
    csrf = hmac.new(session_id.encode(), b"lcm csrf", hashlib.sha256).hexdigest()
    caller = Caller(
        name=kept.name,
        kind=CallerKind.SESSION,
        role=kept.role,
        token_id=kept.token_id,
        expires_at=kept.ends_at,
    )
    return Session(id=Secret(session_id), csrf=Secret(csrf), caller=caller, expires_at=kept.expires_at)


def _put(key: str, kept: _Kept, expected: int | None) -> Put:
    fields = {"expires_at": kept.expires_at.timestamp()}
    return Put(kind=SESSIONS, id=key, body=kept.model_dump_json().encode(), expected=expected, fields=fields)
