"""Browser sessions: opened with a token, ended with it, protected against forged requests."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.auth import cache
from lcm.control_plane.auth.roles import Caller, CsrfError, ForbiddenError, UnauthenticatedError
from lcm.control_plane.auth.session_cookies import check_csrf
from lcm.control_plane.auth.session_record import (
    OIDC_IDLE_TIMEOUT,
    OIDC_MAX_AGE,
    SESSION_IDLE_TIMEOUT,
    SESSION_MAX_AGE,
    SESSIONS,
)
from lcm.control_plane.auth.sessions import SessionService, UnknownSessionError
from lcm.control_plane.store.port import Put, RevisionConflictError
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from tests.support.records.unreadable import make_unreadable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.auth.tokens import TokenService
    from lcm.control_plane.store.port import NewJournalEntry
    from lcm.model.access import SessionInfo
    from tests.support.records.gated_store import GatedStore

HOUR = 3600.0
LINK = Caller(name="local", kind=CallerKind.BOOTSTRAP, role=Role.ADMIN)


@pytest.fixture
async def sessions(store: GatedStore, tokens: TokenService) -> AsyncIterator[SessionService]:
    made = SessionService(store, tokens)
    yield made
    await made.close()


async def signed_in(tokens: TokenService, *, lasts: float | None = None) -> Caller:
    expires_at = None if lasts is None else clock.after(lasts)
    _, secret = await tokens.create("ann", Role.OPERATOR, created_by="root", expires_at=expires_at)
    return await tokens.verify(secret.reveal())


async def over(sessions: SessionService, session_id: str) -> bool:
    try:
        await sessions.resume(session_id)
    except UnauthenticatedError:
        return True
    return False


async def test_a_session_has_the_caller_of_its_token(sessions: SessionService, tokens: TokenService) -> None:
    caller = await signed_in(tokens)
    session = await sessions.begin(caller)
    resumed = await sessions.resume(session.id.reveal())
    assert (resumed.caller.name, resumed.caller.kind) == ("ann", CallerKind.SESSION)
    assert (resumed.caller.role, resumed.caller.token_id) == (Role.OPERATOR, caller.token_id)
    assert resumed.csrf == session.csrf


async def test_every_sign_in_has_its_own_id_and_only_its_hash_is_stored(
    store: GatedStore, sessions: SessionService
) -> None:
    one, other = await sessions.begin(LINK), await sessions.begin(LINK)
    assert one.id != other.id
    assert len(one.id.reveal()) * 4 == 256
    page = await store.find(SESSIONS)
    assert {stored.id for stored in page.items} == {
        hashlib.sha256(session.id.reveal().encode()).hexdigest() for session in (one, other)
    }
    for secret in (one.id, one.csrf, other.id, other.csrf):
        assert secret.reveal() not in repr((page.items, one, other))


@pytest.mark.parametrize("session_id", ["", "x", "0" * 64, "\ud800", "../" * 30])
async def test_invalid_session_ids_are_rejected(sessions: SessionService, session_id: str) -> None:
    assert await over(sessions, session_id)
    await sessions.end(session_id)


async def test_use_extends_a_session_and_idleness_ends_it(
    store: GatedStore, sessions: SessionService, tokens: TokenService
) -> None:
    session_id = (await sessions.begin(LINK)).id.reveal()
    for _ in range(4):
        await asyncio.sleep(11 * HOUR)
        assert (await sessions.resume(session_id)).expires_at == clock.now() + SESSION_IDLE_TIMEOUT
        await sessions.close()
    restarted = SessionService(store, tokens)
    await asyncio.sleep(SESSION_IDLE_TIMEOUT.total_seconds() - 1)
    assert not await over(restarted, session_id)
    await restarted.close()
    await asyncio.sleep(SESSION_IDLE_TIMEOUT.total_seconds())
    assert await over(restarted, session_id)


async def test_a_session_has_a_maximum_age(sessions: SessionService) -> None:
    session_id = (await sessions.begin(LINK)).id.reveal()
    began = clock.now()
    while not await over(sessions, session_id):
        await asyncio.sleep(HOUR)
    assert clock.now() - began == SESSION_MAX_AGE


async def test_a_session_is_not_written_at_every_request(store: GatedStore, sessions: SessionService) -> None:
    session_id = (await sessions.begin(LINK)).id.reveal()
    revisions = set()
    for _ in range(60):
        await sessions.resume(session_id)
        await asyncio.sleep(10)
        revisions.add((await store.find(SESSIONS)).items[0].revision)
    assert len(revisions) == 2


async def test_a_session_ends_with_its_token(sessions: SessionService, tokens: TokenService) -> None:
    revoked = await signed_in(tokens)
    session_id = (await sessions.begin(revoked)).id.reveal()
    assert not await over(sessions, session_id)
    await tokens.revoke(revoked.token_id or "", revoked_by="root")
    with pytest.raises(UnauthenticatedError, match="expired or was revoked"):
        await sessions.resume(session_id)
    session = await sessions.begin(await signed_in(tokens, lasts=HOUR))
    assert session.expires_at == session.caller.expires_at == clock.after(HOUR)
    await asyncio.sleep(HOUR - 1)
    assert not await over(sessions, session.id.reveal())
    await asyncio.sleep(1)
    assert await over(sessions, session.id.reveal())


async def test_a_session_begun_by_a_session_does_not_last_longer(sessions: SessionService) -> None:
    first = await sessions.begin(LINK)
    await asyncio.sleep(6 * HOUR)
    again = await sessions.begin((await sessions.resume(first.id.reveal())).caller)
    assert again.caller.expires_at == first.caller.expires_at


async def test_a_controller_cannot_open_a_session(store: GatedStore, sessions: SessionService) -> None:
    with pytest.raises(ForbiddenError, match="cannot be used in a browser"):
        await sessions.begin(Caller(name="c", kind=CallerKind.TOKEN, role=Role.CONTROLLER))
    assert not (await store.find(SESSIONS)).items


async def test_signing_out_takes_effect_at_once_here_and_soon_elsewhere(
    store: GatedStore, sessions: SessionService, tokens: TokenService
) -> None:
    elsewhere = SessionService(store, tokens)
    session_id, other_id = [(await sessions.begin(LINK)).id.reveal() for _ in range(2)]
    for place in (sessions, elsewhere):
        await place.resume(session_id)
    await sessions.end(session_id)
    assert await over(sessions, session_id)
    await asyncio.sleep(cache.AUTH_CACHE_SECONDS)
    assert await over(elsewhere, session_id)
    assert not await over(sessions, other_id)
    await sessions.end(session_id)


async def test_signing_out_wins_over_an_extension(store: GatedStore, sessions: SessionService) -> None:
    session_id = (await sessions.begin(LINK)).id.reveal()
    await asyncio.sleep(HOUR)
    await sessions.resume(session_id)
    store.gate = gate = asyncio.Event()  # the extension has read the session, and writes after it was ended
    await asyncio.sleep(0)
    await sessions.end(session_id)
    gate.set()
    await sessions.close()
    assert await over(sessions, session_id)
    other_id = (await sessions.begin(LINK)).id.reveal()
    store.failures = [RevisionConflictError("session", "", revision) for revision in range(5)]
    await sessions.end(other_id)
    assert await over(sessions, other_id)


async def test_expired_sessions_are_swept(store: GatedStore, sessions: SessionService) -> None:
    for _ in range(150):
        await sessions.begin(LINK)
    await asyncio.sleep(6 * HOUR)
    current = await sessions.begin(LINK)
    assert await sessions.sweep() == 0
    await asyncio.sleep(6 * HOUR + 1)
    store.failures = [RevisionConflictError("session", "", 1)]  # extended at the last moment
    assert await sessions.sweep() == 149
    assert await sessions.sweep() == 1
    assert len((await store.find(SESSIONS)).items) == 1
    assert not await over(sessions, current.id.reveal())


async def test_a_change_needs_the_csrf_token_of_its_own_session(sessions: SessionService) -> None:
    session, other = await sessions.begin(LINK), await sessions.begin(LINK)
    check_csrf(session, session.csrf.reveal())
    for presented in (None, "", session.id.reveal(), other.csrf.reveal(), session.csrf.reveal()[:-1], "é", "\ud800"):
        with pytest.raises(CsrfError, match="Reload the page"):
            check_csrf(session, presented)


async def test_the_extension_interval_is_small(sessions: SessionService) -> None:
    session = await sessions.begin(LINK)
    await asyncio.sleep(299)
    assert clock.now() + SESSION_IDLE_TIMEOUT - (await sessions.resume(session.id.reveal())).expires_at < timedelta(
        minutes=5
    )


def no_entries(_: SessionInfo) -> list[NewJournalEntry]:
    return []


async def test_open_sessions_are_listed_without_anything_to_sign_in_with(
    sessions: SessionService, tokens: TokenService
) -> None:
    caller = await signed_in(tokens)
    mine = await sessions.begin(caller, "192.0.2.1")
    await asyncio.sleep(1)
    other = await sessions.begin(LINK, "2001:db8::1")
    page = await sessions.page()
    assert [(each.name, each.address, each.identity) for each in page.items] == [
        ("local", "2001:db8::1", ""),
        ("ann", "192.0.2.1", f"token:{caller.token_id}"),
    ]
    shown = " ".join(each.model_dump_json() for each in page.items)
    assert mine.id.reveal() not in shown
    assert other.csrf.reveal() not in shown
    assert await over(sessions, page.items[0].id), "the listed id opens nothing"
    first = await sessions.page(limit=1)
    rest = await sessions.page(limit=1, after=first.next_cursor)
    assert [each.name for each in (*first.items, *rest.items)] == ["local", "ann"]


async def test_a_session_that_cannot_be_read_has_ended_and_hides_no_other(
    store: GatedStore, sessions: SessionService, tokens: TokenService
) -> None:
    caller = await signed_in(tokens)
    mine, other = await sessions.begin(caller), await sessions.begin(caller)
    until = clock.after(HOUR).timestamp()
    broken = hashlib.sha256(mine.id.reveal().encode()).hexdigest()
    await make_unreadable(store, SESSIONS, broken, expires_at=until)
    assert await over(sessions, mine.id.reveal())
    assert not await sessions.still_valid(mine.id.reveal())
    assert caller.token_id is not None
    assert await sessions.count_of_token(caller.token_id) == 1
    assert len((await sessions.page()).items) == 1
    assert await sessions.find(broken) is None
    with pytest.raises(UnknownSessionError):
        await sessions.end_by_key(broken, no_entries)
    assert await sessions.still_valid(other.id.reveal())
    await sessions.end(mine.id.reveal())
    assert await store.get(SESSIONS, broken) is None


async def test_a_session_that_is_ended_by_its_listed_id_is_over_even_if_it_is_extended_meanwhile(
    store: GatedStore, sessions: SessionService
) -> None:
    session = await sessions.begin(LINK)
    await asyncio.sleep(HOUR)
    await sessions.resume(session.id.reveal())  # extends it in the background
    [listed] = (await sessions.page()).items
    ended = await sessions.end_by_key(listed.id, no_entries)
    assert ended.name == "local"
    await sessions.close()
    assert await over(sessions, session.id.reveal())
    assert not (await store.find(SESSIONS)).items
    with pytest.raises(UnknownSessionError):
        await sessions.end_by_key(listed.id, no_entries)


async def test_expired_sessions_are_not_listed(sessions: SessionService) -> None:
    await sessions.begin(LINK)
    await asyncio.sleep(SESSION_IDLE_TIMEOUT.total_seconds() + 1)
    assert not (await sessions.page()).items


async def test_a_session_of_an_older_version_goes_on_and_is_listed(store: GatedStore, sessions: SessionService) -> None:
    session = await sessions.begin(LINK)
    [stored] = (await store.find(SESSIONS)).items
    old = json.loads(stored.body)
    for field in ("subject", "signed_in_at", "address"):
        del old[field]
    expires = {"expires_at": clock.after(HOUR).timestamp()}
    await store.commit([Put(SESSIONS, stored.id, json.dumps(old).encode(), stored.revision, expires)])
    assert not await over(sessions, session.id.reveal())
    [listed] = (await sessions.page()).items
    assert (listed.name, listed.signed_in_at, listed.address) == ("local", None, "")


async def test_sessions_of_the_identity_provider_are_shorter(sessions: SessionService) -> None:
    person = Caller(name="ann", kind=CallerKind.OIDC, role=Role.VIEWER, subject="https://id.example#u-1")
    idle = (await sessions.begin(person)).id.reveal()
    await asyncio.sleep(OIDC_IDLE_TIMEOUT.total_seconds())
    assert await over(sessions, idle)
    used = (await sessions.begin(person)).id.reveal()
    for _ in range(23):
        await asyncio.sleep(HOUR / 2)
        assert not await over(sessions, used)
    await asyncio.sleep(HOUR / 2)
    assert await over(sessions, used), f"{OIDC_MAX_AGE} have passed"
