"""A crash of the store in memory is like kill -9: a commit in progress is applied completely or not at all."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.control_plane.store.port import StoreUnavailableError
from tests.support.records.store_documents import KINDS, NOTES, WORKERS, entry, ids, note, worker

if TYPE_CHECKING:
    from tests.support.virtual.time import VirtualClock


async def opened(disk: MemoryDisk) -> MemoryStore:
    store = MemoryStore(disk)
    await store.open(KINDS)
    return store


async def test_a_crash_keeps_what_was_acknowledged_and_all_or_nothing_of_the_rest(virtual_clock: VirtualClock) -> None:
    applied: set[int] = set()
    for seed in range(20):
        virtual_clock.rng = random.Random(seed)
        disk = MemoryDisk()
        store = await opened(disk)
        await store.commit([note("acknowledged")], entries=[entry("acknowledged")])
        interrupted = [
            asyncio.ensure_future(
                store.commit([note(f"n{number}"), worker(f"w{number}")], entries=[entry(str(number))])
            )
            for number in range(4)
        ]
        await asyncio.sleep(0)
        assert not any(call.done() for call in interrupted)
        store.crash()
        for outcome in await asyncio.gather(*interrupted, return_exceptions=True):
            assert isinstance(outcome, StoreUnavailableError)
        reopened = await opened(disk)
        notes, workers = await ids(reopened, kind=NOTES), await ids(reopened, kind=WORKERS)
        subjects = [line.subject for line in await reopened.read_journal()]
        assert notes[0] == subjects[0] == "acknowledged"
        assert [name[1:] for name in notes[1:]] == [name[1:] for name in workers] == subjects[1:]
        applied.add(len(workers))
    assert len(applied) > 2, "both outcomes must occur"


async def test_a_crashed_store_rejects_calls_and_a_new_one_works() -> None:
    disk = MemoryDisk()
    store = await opened(disk)
    store.crash()
    with pytest.raises(StoreUnavailableError, match="killed"):
        await store.commit([note("a")])
    assert await (await opened(disk)).get(NOTES, "a") is None


async def test_of_two_commits_applied_in_a_crash_one_has_the_unique_value(virtual_clock: VirtualClock) -> None:
    for seed in range(10):
        virtual_clock.rng = random.Random(seed)
        disk = MemoryDisk()
        store = await opened(disk)
        calls = [asyncio.ensure_future(store.commit([worker(name, unique={"name": "one"})])) for name in "ab"]
        await asyncio.sleep(0)
        store.crash()
        await asyncio.gather(*calls, return_exceptions=True)
        assert len(await ids(await opened(disk))) <= 1


async def test_two_handles_share_one_disk() -> None:
    disk = MemoryDisk()
    first, second = await opened(disk), await opened(disk)
    await first.commit([note("a")])
    assert await second.get(NOTES, "a") == await first.get(NOTES, "a")


async def test_the_caller_may_change_its_input_afterwards() -> None:
    store = await opened(MemoryDisk())
    change = worker("a", name="A", unique={"name": "A"})
    await store.commit([change])
    change.fields["name"] = "B"  # type: ignore[index]  # declared as a read-only mapping
    assert [values for values, _, _ in await store.count_by(WORKERS, ["name"])] == [("A",)]
