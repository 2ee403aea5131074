"""Concurrent commits: each one is checked against the result of the commits before it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.store.port import Delete, Guard, RevisionConflictError, UniqueViolationError
from tests.support.records.store_documents import NOTES, WORKERS, body, entry, existing, ids, note, revision, worker

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from lcm.control_plane.store.port import Store

CLIENTS = 32


async def together(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The results or errors."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_of_32_commits_on_one_revision_one_wins_each_round(store: Store) -> None:
    await store.commit([note("a", body=-1)])
    for round_number in range(5):
        seen = await revision(store, NOTES, "a")
        writes = [note("a", seen, body=[round_number, client]) for client in range(CLIENTS)]
        outcomes = await together([store.commit([write], entries=[entry("a")]) for write in writes])
        lost = [outcome for outcome in outcomes if isinstance(outcome, RevisionConflictError)]
        assert len(lost) == CLIENTS - 1
        current = await existing(store, NOTES, "a")
        assert {conflict.current for conflict in lost} == {current.revision}
        winner = next(client for client, outcome in enumerate(outcomes) if not isinstance(outcome, Exception))
        assert current.body == writes[winner].body
    assert len(await store.read_journal()) == 5


async def test_no_update_is_lost(store: Store) -> None:
    await store.commit([note("sum", body=0)])

    async def add_five() -> None:
        added = 0
        while added < 5:
            seen = await existing(store, NOTES, "sum")
            try:
                await store.commit([note("sum", seen.revision, body=int(seen.body) + 1)])
                added += 1
            except RevisionConflictError:
                continue

    await asyncio.gather(*(add_five() for _ in range(8)))
    assert await body(store, NOTES, "sum") == 40


async def test_of_32_inserts_of_one_unique_value_one_wins(store: Store) -> None:
    inserts = [store.commit([worker(f"w{client:02}", unique={"instance": "i-1"})]) for client in range(CLIENTS)]
    outcomes = await together(inserts)
    (winner,) = await ids(store)
    assert {error.owner for error in outcomes if isinstance(error, UniqueViolationError)} == {winner}
    assert sum(isinstance(outcome, UniqueViolationError) for outcome in outcomes) == CLIENTS - 1


async def test_a_released_unique_value_never_has_two_owners(store: Store) -> None:
    await store.commit([worker("w0", unique={"name": "one"})])

    async def pass_on(mine: int) -> None:
        """Take the value from its owner, in one commit."""
        for turn in range(3):
            while True:
                owner = await store.get_unique(WORKERS, "name", "one")
                assert owner is not None, "nobody had it"
                try:
                    take = worker(f"w{mine}-{turn}", unique={"name": "one"})
                    await store.commit([take, Delete(WORKERS, owner.id, owner.revision)])
                    break
                except (RevisionConflictError, UniqueViolationError):
                    continue

    await asyncio.gather(*(pass_on(client) for client in range(1, 9)))
    assert len(await ids(store)) == 1


async def test_a_guard_that_changes_concurrently_stops_the_commit(store: Store) -> None:
    """Each write is allowed only while the guard has the revision at which it was read."""
    await store.commit([note("limit", body=5)])

    async def use_one(client: int) -> None:
        while True:
            limit = await existing(store, NOTES, "limit")
            if int(limit.body) == 0:
                return
            try:
                await store.commit([note(f"u{client}"), note("limit", limit.revision, body=int(limit.body) - 1)])
                return
            except RevisionConflictError:
                continue

    await asyncio.gather(*(use_one(client) for client in range(16)))
    assert len(await ids(store, kind=NOTES)) == 6

    seen = await revision(store, NOTES, "limit")
    guarded = [store.commit([note(f"g{client}")], guards=[Guard(NOTES, "limit", seen)]) for client in range(16)]
    outcomes = await together([*guarded[:8], store.commit([note("limit", seen, body="moved")]), *guarded[8:]])
    made = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
    # Commits before the change succeed, those after it fail, and the change itself succeeds.
    assert len([name for name in await ids(store, kind=NOTES) if name.startswith("g")]) == len(made) - 1
    assert await body(store, NOTES, "limit") == "moved"


async def test_one_failed_commit_does_not_affect_concurrent_ones(store: Store) -> None:
    await store.commit([note("taken")])
    calls = [store.commit([note("taken") if number % 3 == 0 else note(f"n{number:02}")]) for number in range(60)]
    outcomes = await together(calls)
    for number, outcome in enumerate(outcomes):
        assert isinstance(outcome, RevisionConflictError) == (number % 3 == 0)
    assert len(await ids(store, kind=NOTES)) == 41


async def test_a_reader_never_sees_half_a_commit(store: Store) -> None:
    await store.commit([note("a", body=0), note("b", body=0)])
    done = asyncio.Event()

    async def write() -> None:
        for number in range(1, 40):
            a, b = await revision(store, NOTES, "a"), await revision(store, NOTES, "b")
            await store.commit([note("a", a, body=number), note("b", b, body=number)])
        done.set()

    async def read() -> None:
        while not done.is_set():
            page = await store.find(NOTES)
            assert len({item.body for item in page.items}) == 1

    await asyncio.gather(write(), read(), read())


@pytest.mark.parametrize("clients", [4])
async def test_a_commit_that_returned_is_seen_by_the_next_read(store: Store, clients: int) -> None:
    async def write_and_read(client: int) -> None:
        for number in range(20):
            await store.commit([note(f"{client}-{number}")], entries=[entry(f"{client}-{number}")])
            assert await store.get(NOTES, f"{client}-{number}") is not None
            assert await store.read_journal(subjects=[f"{client}-{number}"])

    await asyncio.gather(*(write_and_read(client) for client in range(clients)))
