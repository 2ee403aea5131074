"""Acknowledged commits survive closing and reopening the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.store.port import Kind, Put, Sort, StoreUnavailableError, UniqueViolationError, Where
from tests.support.records.store_documents import (
    KINDS,
    NOTES,
    START,
    WORKERS,
    body,
    entry,
    existing,
    ids,
    note,
    sample,
    worker,
)

if TYPE_CHECKING:
    from tests.contract.store.conftest import Bed


async def test_everything_survives_reopening(bed: Bed) -> None:
    store = await bed.open()
    await store.commit([worker("a", name="A", status="up", unique={"name": "A"}, body=1)], entries=[entry("a")])
    await store.append_samples("metrics", [sample("a", 1)])
    before, lines = await existing(store, WORKERS, "a"), await store.read_journal()
    store = await bed.open()
    assert await existing(store, WORKERS, "a") == before
    assert await store.read_journal() == lines
    assert await store.get_unique(WORKERS, "name", "A") == before
    assert await ids(store, Where(any_of={"status": ["up"]}, contains={"name": "a"})) == ["a"]
    assert list(await store.read_samples("metrics", "a", since=START)) == [sample("a", 1)]
    with pytest.raises(UniqueViolationError):
        await store.commit([worker("b", unique={"name": "A"})])


async def test_cursors_and_revisions_continue_after_reopening(bed: Bed) -> None:
    store = await bed.open()
    (first,) = await store.commit([note("a")], entries=[entry("a")])
    old = await existing(store, NOTES, "a")
    store = await bed.open()
    (second,) = await store.commit([note("a", old.revision)], entries=[entry("a")])
    assert second > first
    assert (await existing(store, NOTES, "a")).revision > old.revision
    assert [line.cursor for line in await store.read_journal(after=first)] == [second]


async def test_a_page_continues_after_reopening(bed: Bed) -> None:
    store = await bed.open()
    await store.commit([worker(name, name=name) for name in "abc"])
    first = await store.find(WORKERS, sort=Sort("name"), limit=2)
    store = await bed.open()
    page = await store.find(WORKERS, sort=Sort("name"), after=first.next_cursor)
    assert [item.id for item in page.items] == ["c"]


async def test_a_field_declared_later_is_none_in_older_documents(bed: Bed) -> None:
    store = await bed.open()
    await store.commit([worker("a", status="up")])
    later = Kind("worker", (*WORKERS.fields, "size"), WORKERS.unique, ("region", "size"))
    store = await bed.open((later, NOTES))
    new = Put(later, "b", b"", None, dict.fromkeys(later.fields, 1))
    await store.commit([new])
    assert await ids(store, Where(any_of={"size": [None]}), kind=later) == ["a"]
    assert await ids(store, sort=Sort("size"), kind=later) == ["a", "b"]
    assert await ids(store, Where(none_of={"size": [None]}), kind=later) == ["b"]
    assert list(await store.count_by(later, ["size"])) == [((None,), 1, ()), ((1,), 1, ())]
    store = await bed.open()
    assert await ids(store) == ["a", "b"]
    await store.commit([worker("c")])


async def test_closing_finishes_commits_in_progress(bed: Bed) -> None:
    store = await bed.open()
    commits = [asyncio.ensure_future(store.commit([note(f"n{number}")])) for number in range(100)]
    await asyncio.sleep(0)
    await store.close()
    outcomes = await asyncio.gather(*commits, return_exceptions=True)
    made = sum(not isinstance(outcome, BaseException) for outcome in outcomes)
    assert all(isinstance(outcome, StoreUnavailableError) for outcome in outcomes if isinstance(outcome, BaseException))
    assert made == 100
    store = await bed.open(KINDS)
    assert len(await ids(store, kind=NOTES)) == made


async def test_a_cancelled_commit_is_applied_completely_or_not_at_all(bed: Bed) -> None:
    store = await bed.open()
    await store.commit([note("steady", body=0)])
    for number in range(20):
        call = asyncio.ensure_future(
            store.commit([note(f"a{number}"), note(f"b{number}")], entries=[entry(f"{number}")])
        )
        for _ in range(number % 4):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    store = await bed.open()
    names = set(await ids(store, kind=NOTES))
    subjects = {line.subject for line in await store.read_journal()}
    for number in range(20):
        assert {f"a{number}" in names, f"b{number}" in names, str(number) in subjects} in ({True}, {False})
    assert await body(store, NOTES, "steady") == 0
