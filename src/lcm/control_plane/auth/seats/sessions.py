"""Sessions that a seat link opens. Each reaches one lablet and nothing else.

They are apart from the sessions of people: a document kind and a cookie of their own. So a route that does not ask for
a seat sees somebody who is not signed in, in this version and in every other.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lcm.control_plane.auth.rate_limit import SignInRateLimiter, client_key
from lcm.control_plane.auth.roles import TooManyAttemptsError, UnauthenticatedError
from lcm.control_plane.auth.seats.links import SEAT_SESSION_MAX_AGE, StoredSeatLink, parse_code, put_link, why_not
from lcm.control_plane.auth.seats.tries import MAX_TRIES, TRIES_WINDOW_SECONDS, read_tries
from lcm.control_plane.auth.session_record import storage_key
from lcm.control_plane.auth.sessions import new_session_id
from lcm.control_plane.records.kinds import LABLETS, SEAT_LINKS, SEAT_SESSIONS, SEAT_TRIES, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.secrets.encryption import Secret
from lcm.control_plane.store.port import Delete, Put, RevisionConflictError, Sort, Where
from lcm.core import clock
from lcm.model.audit import Actor, ActorKind
from lcm.model.base import Record, UtcDatetime
from lcm.model.lablet.record import Lablet

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.auth.security_log import SecurityLog
    from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
    from lcm.control_plane.store.port import FieldValue, Kind, Store, StoredDocument

MAX_FAILURES_PER_ADDRESS: Final = 200
"""More than a class behind one address needs; a guess at yet another link is not looked at after so many."""

MAX_SESSIONS_PER_LINK: Final = 20
_SESSION_ID_PATTERN = re.compile(r"[0-9a-f]{64}")
_NOT_VALID = "This link is not valid. Ask the person who gave it to you for a new one."
_TOO_OFTEN = "This link was opened with a wrong code too often"
_ASK = " Ask the person who gave it to you for a new one."
_UNREADABLE_LAB = "LCM cannot read the record of this lab. Ask the person who gave you the link to have it repaired."
_MAX_ADDRESS_LENGTH = 64


class SeatEndedError(Exception):
    """What the link has opened cannot be used any more; the message says why, for the person who used it."""


class _WrongCodeError(UnauthenticatedError):
    """No link has this code. Whoever has the code of a link that is closed does not guess."""

    def __init__(self) -> None:
        super().__init__(_NOT_VALID)


class _StoredSeatSession(Record):
    """A session as it is stored."""

    link_id: str
    lablet_id: str
    opened_at: UtcDatetime
    expires_at: UtcDatetime
    address: str = ""


@dataclass(frozen=True, slots=True)
class SeatCaller:
    """Somebody who uses a seat link. There is no name: nobody has signed in."""

    link_id: str
    lablet_id: str

    @property
    def actor(self) -> Actor:
        """As recorded in the audit."""
        return Actor(kind=ActorKind.PERSON, name=f"seat link {self.link_id}", identity=f"seat-link:{self.link_id}")

    @property
    def unique_name(self) -> str:
        """What no other caller has."""
        return f"seat-link:{self.link_id}"


@dataclass(frozen=True, slots=True)
class SeatSession:
    """An open session. `csrf` is embedded in our own pages and must be sent with every change."""

    id: Secret
    csrf: Secret
    caller: SeatCaller
    expires_at: datetime


class SeatSessionService:
    """Opens and resumes sessions. Whether one is still valid is read from the store each time: nothing is cached."""

    def __init__(self, store: Store, unit_of_work: UnitOfWork, security_log: SecurityLog) -> None:
        self._store = store
        self._unit_of_work = unit_of_work
        self._security_log = security_log
        self._limiter = SignInRateLimiter(limit=MAX_TRIES, window=TRIES_WINDOW_SECONDS)
        self._addresses = SignInRateLimiter(limit=MAX_FAILURES_PER_ADDRESS, window=TRIES_WINDOW_SECONDS)

    async def open(self, text: str, address: str) -> SeatSession:
        """Open a session with the code of a link, which may be opened on several devices."""
        parsed = parse_code(text)
        # By link and address: a class behind one address must not be locked out by one of them.
        tried = f"{client_key(address)} {parsed[0] if parsed else ''}"
        try:
            self._limiter.check(tried)
            self._addresses.check(address)
            return await self._open(parsed, address)
        except TooManyAttemptsError as error:
            self._security_log.limited(address, None, error.retry_after)
            raise TooManyAttemptsError(error.retry_after, _TOO_OFTEN) from None
        except UnauthenticatedError as error:
            if isinstance(error, _WrongCodeError):
                self._limiter.record_failure(tried)
                self._addresses.record_failure(address)
            self._security_log.refused(address, None, "/seat", reason=str(error))
            raise

    async def resume(self, session_id: str) -> SeatSession:
        """The session of a cookie. Raises `SeatEndedError` if its lab has ended or its link was revoked."""
        if not _SESSION_ID_PATTERN.fullmatch(session_id):
            raise SeatEndedError("")
        stored = await self._store.get(SEAT_SESSIONS, storage_key(session_id))
        session = None if stored is None else read_or_skip(stored, _StoredSeatSession, "seat session")
        if session is None or session.expires_at <= clock.now():
            raise SeatEndedError("Your session has ended. Open your link again.")
        stored = await self._store.get(SEAT_LINKS, session.link_id)
        if stored is None:
            raise SeatEndedError("This lab has ended.")
        link = read_or_skip(stored, StoredSeatLink, "seat link")
        if link is None:
            raise SeatEndedError("LCM cannot read this link." + _ASK)
        if reason := await self._closed_reason(link):
            raise SeatEndedError(reason)
        return _session(session_id, session)

    async def still_valid(self, session_id: str) -> bool:
        """Whether a session that was resumed earlier goes on."""
        try:
            await self.resume(session_id)
        except SeatEndedError:
            return False
        return True

    async def end(self, session_id: str) -> None:
        """Forget the seat in this browser."""
        if _SESSION_ID_PATTERN.fullmatch(session_id):
            stored = await self._store.get(SEAT_SESSIONS, storage_key(session_id))
            if stored is not None:
                await self._remove(SEAT_SESSIONS, stored)

    async def sweep(self) -> int:
        """Delete expired sessions and tries, and links that no session needs; returns the number."""
        removed, now = 0, clock.earliest_now().timestamp()
        expired = ((SEAT_SESSIONS, "expires_at"), (SEAT_TRIES, "expires_at"), (SEAT_LINKS, "removed_at"))
        for kind, field in expired:
            async for stored in find_all(self._store, kind, Where(below={field: now})):
                removed += await self._remove(kind, stored)
        return removed

    async def _open(self, parsed: tuple[str, str] | None, address: str) -> SeatSession:
        if parsed is None:
            raise _WrongCodeError
        link_id, code = parsed
        session_id = new_session_id()

        async def attempt(tx: Transaction) -> _StoredSeatSession | None:
            stored = await tx.store.get(SEAT_LINKS, link_id)
            link = None if stored is None else read_or_skip(stored, StoredSeatLink, "seat link")
            if stored is None or link is None:
                raise _WrongCodeError
            tries = await read_tries(tx.store, link_id)
            if wait := tries.wait(address, tx.now):
                raise TooManyAttemptsError(wait)
            if not link.opens_with(code):
                tx.stage(tries.failed(address, tx.now))  # before the answer: of many at once, each is counted
                return None
            if reason := await self._closed_reason(link):
                raise UnauthenticatedError(reason if reason == _UNREADABLE_LAB else reason + _ASK)
            if link.expires_at <= tx.now:
                raise UnauthenticatedError("This link has expired." + _ASK)
            session = _StoredSeatSession(
                link_id=link.id,
                lablet_id=link.lablet_id,
                opened_at=tx.now,
                expires_at=tx.now + SEAT_SESSION_MAX_AGE,
                address=address[:_MAX_ADDRESS_LENGTH],
            )
            opened = link.model_copy(update={"opened": link.opened + 1, "last_opened_at": tx.now})
            tx.stage(put_link(opened, stored.revision))
            tx.stage(_put_session(storage_key(session_id), session))
            tx.audit("seat_opened", link.lablet_id, link=link.id, address=session.address)
            return session

        # The lablet is known once the link is read; the audit names the link.
        session = await self._unit_of_work.run(SeatCaller(link_id, "").actor, attempt)
        if session is None:
            raise _WrongCodeError
        await self._drop_oldest(link_id)
        return _session(session_id, session)

    async def _drop_oldest(self, link_id: str) -> None:
        own, newest_first = Where(any_of={"link_id": [link_id]}), Sort("expires_at", descending=True)
        page = await self._store.find(SEAT_SESSIONS, own, sort=newest_first, limit=2 * MAX_SESSIONS_PER_LINK)
        for stored in page.items[MAX_SESSIONS_PER_LINK:]:
            await self._remove(SEAT_SESSIONS, stored)

    async def _closed_reason(self, link: StoredSeatLink) -> str:
        """Why nobody can use what the link has opened; empty if they can."""
        stored = await self._store.get(LABLETS, link.lablet_id)
        lablet = None if stored is None else read_or_skip(stored, Lablet, "lablet")
        if stored is not None and lablet is None:
            return _UNREADABLE_LAB
        return why_not(link, lablet)

    async def _remove(self, kind: Kind, stored: StoredDocument) -> bool:
        try:
            await self._store.commit([Delete(kind, stored.id, stored.revision)])
        except RevisionConflictError:
            return False
        return True


def _put_session(key: str, session: _StoredSeatSession) -> Put:
    fields: dict[str, FieldValue] = {"link_id": session.link_id, "expires_at": session.expires_at.timestamp()}
    return Put(SEAT_SESSIONS, key, session.model_dump_json().encode(), None, fields)


def _session(session_id: str, session: _StoredSeatSession) -> SeatSession:
    csrf = hmac.new(session_id.encode(), b"lcm seat csrf", hashlib.sha256).hexdigest()
    return SeatSession(
        Secret(session_id), Secret(csrf), SeatCaller(session.link_id, session.lablet_id), session.expires_at
    )
