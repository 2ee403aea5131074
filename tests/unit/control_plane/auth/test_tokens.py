"""Tokens: created, shown once, verified, revoked, with the time of their last use."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from lcm.control_plane.auth import cache as recent
from lcm.control_plane.auth.roles import UnauthenticatedError
from lcm.control_plane.auth.tokens import TOKENS, TokenService, UnknownTokenError, parse_token_id
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.control_plane.store.port import (
    NewJournalEntry,
    RevisionConflictError,
    StoreUnavailableError,
    UniqueViolationError,
)
from lcm.core import clock
from lcm.model.access import CallerKind, Role, TokenInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.records.gated_store import GatedStore


def note(info: TokenInfo) -> Sequence[NewJournalEntry]:
    return [NewJournalEntry("audit", info.id, info.model_dump_json().encode(), clock.now())]


async def stored_info(tokens: TokenService, token_id: str) -> TokenInfo:
    return next(info for info in (await tokens.page()).items if info.id == token_id)


async def test_a_token_gives_name_and_role(tokens: TokenService) -> None:
    expires = clock.after(3600)
    info, secret = await tokens.create("ci", Role.OPERATOR, created_by="ann", expires_at=expires)
    caller = await tokens.verify(secret.reveal())
    assert (caller.name, caller.kind, caller.role) == ("ci", CallerKind.TOKEN, Role.OPERATOR)
    assert (caller.token_id, caller.expires_at) == (info.id, expires)
    assert parse_token_id(secret.reveal()) == info.id
    assert len(secret.reveal().rsplit("_", 1)[1]) * 4 == 256


async def test_the_secret_is_only_in_the_response(store: GatedStore, tokens: TokenService) -> None:
    info, secret = await tokens.create("ci", Role.VIEWER, created_by="ann", audit=note)
    bare = secret.reveal().rsplit("_", 1)[1]
    stored = await store.get(TOKENS, info.id)
    assert stored is not None
    assert bare.encode() not in stored.body
    listed = (await tokens.page()).items
    assert [one.name for one in listed] == ["ci"]
    assert "hash" not in listed[0].model_dump()
    assert bare not in repr((listed, info, secret, await store.read_journal()))


async def test_unknown_and_wrong_tokens_get_the_same_error(tokens: TokenService) -> None:
    _, secret = await tokens.create("ci", Role.VIEWER, created_by="ann")
    right = secret.reveal()
    wrong_secret = right[:-1] + ("0" if right[-1] != "0" else "1")
    unknown_id = f"lcm_t-nobody_{right.rsplit('_', 1)[1]}"
    said = set()
    for text in (wrong_secret, unknown_id, "", "lcm_", "lcm__", right + "\n", right.upper(), "\ud800", "x" * 10_000):
        with pytest.raises(UnauthenticatedError) as refused:
            await tokens.verify(text)
        said.add(str(refused.value))
    assert len(said) == 1


async def test_only_the_holder_of_the_secret_learns_of_expiry_and_revocation(tokens: TokenService) -> None:
    _, short = await tokens.create("short", Role.VIEWER, created_by="ann", expires_at=clock.after(60))
    gone, revoked = await tokens.create("gone", Role.VIEWER, created_by="ann")
    await tokens.revoke(gone.id, revoked_by="ann")
    await asyncio.sleep(60)
    with pytest.raises(UnauthenticatedError, match="short expired at 2026-01-17 10:31 UTC"):
        await tokens.verify(short.reveal())
    with pytest.raises(UnauthenticatedError, match="gone was revoked"):
        await tokens.verify(revoked.reveal())
    for text in (short.reveal(), revoked.reveal()):
        with pytest.raises(UnauthenticatedError, match="is not valid"):
            await tokens.verify(text[:-2] + ("00" if text[-2:] != "00" else "11"))
    assert not await tokens.still_valid(gone.id)
    assert not await tokens.still_valid("t-nobody")


async def test_invalid_requests_create_nothing(tokens: TokenService) -> None:
    await tokens.create("ci", Role.VIEWER, created_by="ann")
    with pytest.raises(ValueError, match="in the future"):
        await tokens.create("late", Role.VIEWER, created_by="ann", expires_at=clock.now())
    with pytest.raises(ValidationError):
        await tokens.create("no such\nname", Role.VIEWER, created_by="ann")
    with pytest.raises(UniqueViolationError):
        await tokens.create("ci", Role.ADMIN, created_by="ann")
    assert [(info.name, info.role) for info in (await tokens.page()).items] == [("ci", Role.VIEWER)]


async def test_a_revoked_name_is_free_again_and_both_are_listed(tokens: TokenService) -> None:
    first, _ = await tokens.create("ci", Role.VIEWER, created_by="ann")
    await tokens.revoke(first.id, revoked_by="bob")
    await tokens.create("ci", Role.VIEWER, created_by="ann")
    page = await tokens.page(limit=1)
    rest = await tokens.page(limit=1, after=page.next_cursor)
    assert {(one.name, one.revoked_by) for one in (*page.items, *rest.items)} == {("ci", "bob"), ("ci", None)}
    assert rest.next_cursor is None


async def test_changes_are_committed_with_their_audit(store: GatedStore, tokens: TokenService) -> None:
    info, _ = await tokens.create("ci", Role.VIEWER, created_by="ann", audit=note)
    await tokens.revoke(info.id, revoked_by="bob", audit=note)
    await tokens.revoke(info.id, revoked_by="eve", audit=note)
    assert [line.subject for line in await store.read_journal()] == [info.id, info.id]
    assert (await stored_info(tokens, info.id)).revoked_by == "bob"
    with pytest.raises(UnknownTokenError):
        await tokens.revoke("t-nobody", revoked_by="bob", audit=note)


async def test_revoking_takes_effect_at_once_here_and_soon_elsewhere(store: GatedStore, tokens: TokenService) -> None:
    info, secret = await tokens.create("ci", Role.VIEWER, created_by="ann")
    elsewhere_store = MemoryStore(store.disk)
    await elsewhere_store.open([TOKENS])
    elsewhere = TokenService(elsewhere_store)
    await tokens.verify(secret.reveal())
    await elsewhere.verify(secret.reveal())
    await tokens.revoke(info.id, revoked_by="ann")
    with pytest.raises(UnauthenticatedError):
        await tokens.verify(secret.reveal())
    await asyncio.sleep(recent.AUTH_CACHE_SECONDS)
    with pytest.raises(UnauthenticatedError):
        await elsewhere.verify(secret.reveal())
    await elsewhere.close()


async def test_a_read_that_began_before_a_revocation_is_not_cached(store: GatedStore, tokens: TokenService) -> None:
    info, secret = await tokens.create("ci", Role.VIEWER, created_by="ann")
    store.gate = gate = asyncio.Event()
    early = asyncio.create_task(tokens.verify(secret.reveal()))
    await asyncio.sleep(0.1)
    await tokens.revoke(info.id, revoked_by="ann")
    gate.set()
    await early
    with pytest.raises(UnauthenticatedError, match="revoked"):
        await tokens.verify(secret.reveal())


async def test_a_revocation_whose_response_was_lost_is_read_back(store: GatedStore, tokens: TokenService) -> None:
    info, secret = await tokens.create("ci", Role.VIEWER, created_by="ann")
    await tokens.verify(secret.reveal())
    await tokens.close()
    store.loses_responses = True
    with pytest.raises(StoreUnavailableError):
        await tokens.revoke(info.id, revoked_by="ann")
    with pytest.raises(UnauthenticatedError, match="revoked"):
        await tokens.verify(secret.reveal())


async def test_a_revocation_wins_over_last_used_writes(store: GatedStore, tokens: TokenService) -> None:
    info, _ = await tokens.create("ci", Role.VIEWER, created_by="ann")
    store.failures = [RevisionConflictError("token", info.id, 2), RevisionConflictError("token", info.id, 3)]
    assert (await tokens.revoke(info.id, revoked_by="ann")).revoked_at is not None


async def test_last_used_is_written_at_most_once_a_minute(store: GatedStore, tokens: TokenService) -> None:
    info, secret = await tokens.create("ci", Role.VIEWER, created_by="ann")
    revisions = set()
    began = clock.now()
    for _ in range(150):
        await tokens.verify(secret.reveal())
        await asyncio.sleep(1)
        stored = await store.get(TOKENS, info.id)
        assert stored is not None
        revisions.add(stored.revision)
    assert len(revisions) == 3  # at 0, 60 and 120 s
    used = (await stored_info(tokens, info.id)).last_used_at
    assert used is not None
    assert timedelta(seconds=120) <= used - began <= timedelta(seconds=126)


async def test_a_failed_last_used_write_fails_no_request_and_is_retried(
    store: GatedStore, tokens: TokenService
) -> None:
    info, secret = await tokens.create("ci", Role.VIEWER, created_by="ann")
    store.failures = [StoreUnavailableError("down"), RevisionConflictError("token", info.id, 5)]
    for _ in range(2):
        assert (await tokens.verify(secret.reveal())).name == "ci"
        await asyncio.sleep(recent.AUTH_CACHE_SECONDS)
        assert (await stored_info(tokens, info.id)).last_used_at is None
    await tokens.verify(secret.reveal())
    await tokens.close()
    assert (await stored_info(tokens, info.id)).last_used_at is not None


async def test_a_last_used_write_does_not_undo_a_revocation(store: GatedStore, tokens: TokenService) -> None:
    info, secret = await tokens.create("ci", Role.VIEWER, created_by="ann")
    await tokens.verify(secret.reveal())
    await tokens.close()
    await asyncio.sleep(61)
    await tokens.still_valid(info.id)
    store.gate = gate = asyncio.Event()  # the last-used write has read the token, and writes after the revocation
    await tokens.verify(secret.reveal())
    await asyncio.sleep(0.1)
    await tokens.revoke(info.id, revoked_by="ann")
    gate.set()
    await tokens.close()
    assert (await stored_info(tokens, info.id)).revoked_at is not None


async def test_repeated_lookups_read_the_store_once(store: GatedStore, tokens: TokenService) -> None:
    _, secret = await tokens.create("ci", Role.VIEWER, created_by="ann")
    await tokens.verify(secret.reveal())
    await tokens.close()
    await store.close()
    assert (await tokens.verify(secret.reveal())).name == "ci"
    await asyncio.sleep(recent.AUTH_CACHE_SECONDS)
    with pytest.raises(StoreUnavailableError):
        await tokens.verify(secret.reveal())


async def test_memory_is_bounded() -> None:
    async def read() -> int:
        return 1

    cache: recent.TtlCache[int] = recent.TtlCache(max_entries=3)
    for number in range(10):
        await cache.get(str(number), read)
    assert len(cache._entries) == 3
