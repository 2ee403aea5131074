"""Sessions of browsers and command lines.

A token, or a sign-in at the identity provider, is exchanged for a random id in a cookie that scripts cannot read. A
command line that signs in at the identity provider has such an id in its token, for 12 hours. A browser's
session lasts `SESSION_IDLE_TIMEOUT` from its last use and `SESSION_MAX_AGE` in total, and never outlives the token
behind it; one of the identity provider is shorter (`OIDC_IDLE_TIMEOUT`, `OIDC_MAX_AGE`). Only hashes of session ids are
stored. Every sign-in creates a new id, so none can be planted in a browser beforehand.

Signing out takes effect at once in this process, and in others within `cache.AUTH_CACHE_SECONDS`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from lcm.control_plane.auth.cache import BackgroundWrites, TtlCache
from lcm.control_plane.auth.roles import Caller, ForbiddenError, UnauthenticatedError
from lcm.control_plane.auth.session_record import (
    FIRST_USE_LIMIT,
    OIDC_MAX_AGE,
    SESSION_MAX_AGE,
    SESSIONS,
    StoredSession,
    is_lapsed,
    is_unconfirmed,
    open_token,
    put_session,
    seal_grant,
    session_info,
    storage_key,
)
from lcm.control_plane.records.kinds import find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.secrets.encryption import Secret
from lcm.control_plane.store.port import Delete, RevisionConflictError, Sort, Where
from lcm.core import clock
from lcm.model.access import Role, SessionInfo, SessionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.control_plane.auth.oidc.provider import TokenSet
    from lcm.control_plane.auth.oidc.renewal import SessionRenewal
    from lcm.control_plane.secrets.encryption import SecretBox
    from lcm.control_plane.store.port import NewJournalEntry, Store, StoredDocument


_SESSION_ID_PATTERN = re.compile(r"[0-9a-f]{64}")
_ID_BYTES = 32
_MAX_ADDRESS_LENGTH = 64
_EXTEND_INTERVAL = timedelta(minutes=5)
_SESSION_ENDED = "You are signed out, or the session has ended. Sign in again."


class TokenValidator(Protocol):
    """Checks the token behind a session."""

    async def still_valid(self, token_id: str) -> bool:
        """Whether the token is still accepted."""


class UnknownSessionError(LookupError):
    """There is no session with this id."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, and where the next page begins; None at the end."""

    items: Sequence[SessionInfo]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class LapsedSession:
    """A session that waits for its person: the identity provider must see them in their browser."""

    key: str
    caller: Caller


@dataclass(frozen=True, slots=True)
class EndedSession:
    """Whose session ended, and the ID token it began with, if the identity provider issued one."""

    caller: Caller
    id_token: Secret | None = None
    refresh_token: Secret | None = None


@dataclass(frozen=True, slots=True)
class OpenSession:
    """An open session. `csrf` is embedded in our own pages and must be sent with every change of a browser."""

    id: Secret
    csrf: Secret
    caller: Caller
    expires_at: datetime


class SessionService:
    """Opens, resumes and ends sessions."""

    def __init__(
        self,
        store: Store,
        tokens: TokenValidator,
        box: SecretBox | None = None,
        renewal: SessionRenewal | None = None,
    ) -> None:
        """`box` encrypts what the identity provider issues; without one, nobody signs in with a provider.

        `renewal` asks the provider again about the people of sessions.
        """
        self._store = store
        self._tokens = tokens
        self._box = box
        self._renewal = renewal
        self._cache: TtlCache[StoredSession] = TtlCache()
        self._background = BackgroundWrites()

    async def close(self) -> None:
        """Wait for extensions and renewals that are being written."""
        await self._background.finish()
        if self._renewal is not None:
            await self._renewal.close()

    async def begin(
        self,
        caller: Caller,
        address: str = "",
        issued: TokenSet | None = None,
        *,
        kind: SessionKind = SessionKind.BROWSER,
        session_id: str | None = None,
        ends_by: datetime | None = None,
    ) -> OpenSession:
        """Open a session for a caller who has just signed in; `issued` are the tokens of the identity provider.

        A `session_id` that was chosen before is taken once: a second session with it is a `RevisionConflictError`.
        """
        if caller.role is Role.CONTROLLER:
            # Only this role reads secrets: no browser should have access to them.
            raise ForbiddenError("A controller's token cannot be used in a browser. Use a person's token.")
        session_id = session_id or new_session_id()
        key, now = storage_key(session_id), clock.now()
        ends_at = now + (SESSION_MAX_AGE if caller.subject is None else OIDC_MAX_AGE)
        ends_at = min([ends_at, *(each for each in (caller.expires_at, ends_by) if each is not None)])
        session = StoredSession(
            name=caller.name,
            role=caller.role,
            grants=caller.grants if caller.subject is None else (),
            groups=caller.groups,
            email=caller.email,
            token_id=caller.token_id,
            subject=caller.subject,
            expires_at=ends_at,
            ends_at=ends_at,
            signed_in_at=now,
            address=address[:_MAX_ADDRESS_LENGTH],
            parent=caller.session_key,
            kind=kind,
        )
        unused = FIRST_USE_LIMIT if kind is SessionKind.COMMAND_LINE else session.idle_timeout
        session = session.model_copy(update={"expires_at": min(now + unused, ends_at)})
        if issued is not None:
            assert self._box is not None, "a sign-in with the identity provider needs keys for its tokens"
            session = session.model_copy(update={"grant": seal_grant(issued, key, self._box, now)})
        await self._store.commit([put_session(key, session, None)])
        return _open_session(session_id, session)

    async def resume(self, session_id: str, kind: SessionKind = SessionKind.BROWSER) -> OpenSession:
        """The session of a cookie, or of a session token if it is that `kind`.

        Raises `UnauthenticatedError` if it has ended, is of another kind, or its token is no longer valid.
        """
        if not _SESSION_ID_PATTERN.fullmatch(session_id):
            raise UnauthenticatedError(_SESSION_ENDED)
        key = storage_key(session_id)
        session = await self._read_checked(key, may_wait=True)
        if session is None or session.kind is not kind or session.expires_at <= clock.now():
            raise UnauthenticatedError(_SESSION_ENDED)
        if session.token_id is not None and not await self._tokens.still_valid(session.token_id):
            raise UnauthenticatedError("The token that you signed in with has expired or was revoked.")
        return _open_session(session_id, self._extend(key, session))

    async def lapsed(self, session_id: str) -> LapsedSession | None:
        """The session of a cookie, if it may go on as soon as the provider has seen the person in this browser."""
        if not _SESSION_ID_PATTERN.fullmatch(session_id):
            return None
        key = storage_key(session_id)
        session = await self._read(key)
        if session is None or session.grant is None or not session.grant.lapsed:
            return None
        return LapsedSession(key, session.caller) if clock.now() < session.expires_at else None

    async def begin_again(self, lapsed_key: str, caller: Caller, address: str, issued: TokenSet) -> OpenSession | None:
        """Open a session that replaces a lapsed one and ends when that would have; None for another person."""
        before = await self._read(lapsed_key)
        if before is None or before.subject != caller.subject:
            return None
        begun = await self.begin(caller, address, issued, ends_by=before.ends_at)
        await self.forget(lapsed_key)
        return begun

    async def forget(self, key: str) -> None:
        """Remove a session that cannot go on."""
        try:
            await self._delete(key)
        finally:
            self._cache.drop(key)

    async def still_valid(self, session_id: str) -> bool:
        """Whether a session that was resumed earlier goes on. This is no use of it and does not extend it."""
        return await self.current_caller(session_id) is not None

    async def current_caller(self, session_id: str) -> Caller | None:
        """Whose session it is, as of now; None if it has ended. This is no use of it and does not extend it."""
        session = await self._read_checked(storage_key(session_id), may_wait=False)
        if session is None or session.expires_at <= clock.now():
            return None
        if session.token_id is not None and not await self._tokens.still_valid(session.token_id):
            return None
        return session.caller

    async def end(self, session_id: str) -> EndedSession | None:
        """Sign out; returns whose session it was, None if it has already ended."""
        if not _SESSION_ID_PATTERN.fullmatch(session_id):
            return None
        key = storage_key(session_id)
        session = await self._read(key)
        await self.forget(key)
        if session is None:
            return None
        if session.grant is None or self._box is None:
            return EndedSession(session.caller)
        id_token = open_token(session.grant, "id_token", key, self._box)
        return EndedSession(session.caller, id_token, open_token(session.grant, "refresh_token", key, self._box))

    async def page(self, *, after: str | None = None, limit: int = 100) -> SessionPage:
        """Open sessions, the one that expires last first."""
        open_ones = Where(at_least={"expires_at": clock.now().timestamp()})
        newest_first = Sort(by="expires_at", descending=True)
        page = await self._store.find(SESSIONS, open_ones, sort=newest_first, after=after, limit=limit)
        found = [(each.id, read_or_skip(each, StoredSession, "session")) for each in page.items]
        listed = [session_info(key, each) for key, each in found if each is not None and not is_lapsed(each)]
        return SessionPage(listed, page.next_cursor)

    async def count_of_token(self, token_id: str) -> int:
        """How many open sessions were begun with a token, and end with it."""
        open_ones = Where(at_least={"expires_at": clock.now().timestamp()})
        found = [
            read_or_skip(each, StoredSession, "session") async for each in find_all(self._store, SESSIONS, open_ones)
        ]
        return sum(each is not None and each.token_id == token_id for each in found)

    async def find(self, key: str) -> SessionInfo | None:
        """An open session by the id it is listed with."""
        stored = await self._store.get(SESSIONS, key)
        session = None if stored is None else read_or_skip(stored, StoredSession, "session")
        return None if session is None else session_info(key, session)

    async def end_by_key(self, key: str, audit: Callable[[SessionInfo], Sequence[NewJournalEntry]]) -> SessionInfo:
        """End the session of a user; `audit` builds the entries of the same commit.

        Raises `UnknownSessionError` if it has already ended. Other control planes accept it for some seconds more.
        """
        while (stored := await self._store.get(SESSIONS, key)) is not None:
            session = read_or_skip(stored, StoredSession, "session")
            if session is None:
                break  # it is not listed, and nobody can use it
            info = session_info(key, session)
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

    async def _read_checked(self, key: str, *, may_wait: bool) -> StoredSession | None:
        """The session, if the identity provider has confirmed its person lately, or is silent for less than an hour."""
        session = await self._read(key)
        if session is not None and session.parent is not None:
            parent = await self._read_checked(session.parent, may_wait=may_wait)
            current = parent is not None and clock.now() < parent.expires_at
            if parent is None or not current:
                return None
            return session.model_copy(update={"role": parent.role, "groups": parent.groups, "email": parent.email})
        if session is None or session.grant is None or self._renewal is None:
            return session
        if session.grant.lapsed:
            return None
        if await self._renewal.check(key, session.grant, may_wait=may_wait):
            self._cache.drop(key)
            session = await self._read(key)
        if session is None or session.grant is None:
            return session
        return None if session.grant.lapsed or is_unconfirmed(session.grant) else session

    async def _read(self, key: str) -> StoredSession | None:
        async def read() -> StoredSession | None:
            stored = await self._store.get(SESSIONS, key)
            # A session that cannot be read has ended: its person can sign in again.
            return read_or_skip(stored, StoredSession, "session") if stored else None

        return await self._cache.get(key, read)

    def _extend(self, key: str, session: StoredSession) -> StoredSession:
        until = min(clock.now() + session.idle_timeout, session.ends_at)
        if until - session.expires_at < _EXTEND_INTERVAL:
            return session
        extended = session.model_copy(update={"expires_at": until})
        self._cache.replace(key, extended)
        self._background.start(key, lambda: self._write(key, until))
        return extended

    async def _write(self, key: str, until: datetime) -> None:
        while (stored := await self._store.get(SESSIONS, key)) is not None:
            session = StoredSession.model_validate_json(stored.body)
            if session.expires_at >= until:
                return
            extended = session.model_copy(update={"expires_at": until})
            with suppress(RevisionConflictError):  # it was renewed in between
                await self._store.commit([put_session(key, extended, stored.revision)])
                return


def new_session_id() -> str:
    """A random id."""
    return clock.rng().randbytes(_ID_BYTES).hex()


def _open_session(session_id: str, session: StoredSession) -> OpenSession:
    # Derived from the id, which another site can neither read nor guess, so nothing more is stored.
    csrf = hmac.new(session_id.encode(), b"lcm csrf", hashlib.sha256).hexdigest()
    key = session.parent or (storage_key(session_id) if session.grant is not None else None)
    caller = replace(session.caller, session_key=key)
    return OpenSession(id=Secret(session_id), csrf=Secret(csrf), caller=caller, expires_at=session.expires_at)
