"""The journal feed: every entry once and in order, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lcm.control_plane.journal.feed import JournalFeed
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.control_plane.store.port import InvalidCursorError, NewJournalEntry, StoreUnavailableError
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from lcm.control_plane.store.port import JournalEntry


class FaultyStore(MemoryStore):
    """A store whose journal can be made unreadable."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        super().__init__(disk)
        self.error: Exception | None = None
        self.reads = 0

    async def read_journal(self, **query: object) -> Sequence[JournalEntry]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return await super().read_journal(**query)  # type: ignore[arg-type]


class DeafStore(MemoryStore):
    """Responds when it is cancelled, as the driver of MongoDB does when both come together."""

    async def read_journal(self, **query: object) -> Sequence[JournalEntry]:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)
        return await super().read_journal(**query)  # type: ignore[arg-type]


class Listener:
    """Records what was delivered."""

    def __init__(self, name: str = "listener") -> None:
        self.name = name
        self.subjects: list[str] = []
        self.batches: list[int] = []
        self.gaps = 0
        self.fail_entries = False
        self.fail_gap = False
        self.hang = False

    def on_gap(self) -> None:
        if self.fail_gap:
            raise RuntimeError("cannot read")
        self.gaps += 1

    async def on_entries(self, batch: Sequence[JournalEntry]) -> None:
        if self.fail_entries:
            raise RuntimeError("cannot take it")
        if self.hang:
            await asyncio.sleep(3600)
        self.subjects += [line.subject for line in batch]
        self.batches.append(len(batch))


async def add(store: MemoryStore, *subjects: str) -> None:
    await store.commit([], entries=[NewJournalEntry("audit", subject, b"{}", clock.now()) for subject in subjects])


@pytest.fixture
async def store() -> FaultyStore:
    store = FaultyStore()
    await store.open([WORKERS])
    return store


@pytest.fixture
async def feed(store: FaultyStore) -> AsyncIterator[JournalFeed]:
    feed = JournalFeed(store, poll=1.0, batch=10)
    await feed.start()
    yield feed
    await feed.stop()


async def settled() -> None:
    """Let everything run that needs no time."""
    await asyncio.sleep(0.001)


async def test_earlier_entries_are_reported_as_a_gap_and_not_delivered(store: FaultyStore) -> None:
    await add(store, "old")
    feed, listener = JournalFeed(store), Listener()
    feed.subscribe(listener)
    assert listener.gaps == 0
    await feed.start()
    await settled()
    assert (listener.gaps, listener.subjects) == (1, [])
    await add(store, "new")
    feed.wake()
    await settled()
    assert (listener.gaps, listener.subjects) == (1, ["new"])
    await feed.stop()


async def test_a_wake_delivers_at_once_and_a_poll_delivers_entries_of_other_processes(
    store: FaultyStore, feed: JournalFeed
) -> None:
    listener = Listener()
    feed.subscribe(listener)
    await settled()
    await add(store, "ours")
    feed.wake()
    await settled()
    assert listener.subjects == ["ours"]
    other = MemoryStore(store.disk)
    await other.open([WORKERS])
    await add(other, "theirs")
    await asyncio.sleep(1.01)
    assert listener.subjects == ["ours", "theirs"]


async def test_many_entries_are_delivered_in_order_and_in_batches(store: FaultyStore, feed: JournalFeed) -> None:
    listener = Listener()
    feed.subscribe(listener)
    await settled()
    expected = [f"s{number:03d}" for number in range(95)]
    for subject in expected:
        await add(store, subject)
    feed.wake()
    await settled()
    assert listener.subjects == expected
    assert max(listener.batches) <= 10


async def test_a_quiet_journal_costs_one_read_a_poll(store: FaultyStore, feed: JournalFeed) -> None:
    await settled()
    store.reads = 0
    await asyncio.sleep(60)
    assert store.reads <= 61


async def test_a_commit_during_a_read_is_not_missed(store: FaultyStore, feed: JournalFeed) -> None:
    listener = Listener()
    feed.subscribe(listener)
    await settled()
    feed.wake()
    for number in range(50):  # each lands at another point of the feed's round
        await add(store, f"s{number}")
        feed.wake()
        await asyncio.sleep(0)
    await settled()
    assert listener.subjects == [f"s{number}" for number in range(50)]


@pytest.mark.parametrize("fault", ["fail_entries", "hang"])
async def test_a_failing_subscriber_gets_a_gap_and_the_others_every_entry(
    store: FaultyStore, feed: JournalFeed, fault: str
) -> None:
    bad, good = Listener("bad"), Listener("good")
    feed.subscribe(bad)
    feed.subscribe(good)
    await settled()
    setattr(bad, fault, True)
    with capture_logs() as logs:
        for subject in "abc":
            await add(store, subject)
            feed.wake()
            await asyncio.sleep(6)
    assert good.subjects == ["a", "b", "c"]
    assert (good.gaps, bad.gaps) == (1, 4)
    assert [line["subscriber"] for line in logs] == ["bad"]
    setattr(bad, fault, False)
    await add(store, "d")
    feed.wake()
    await settled()
    assert bad.subjects == ["d"]


async def test_a_subscriber_that_fails_on_a_gap_gets_no_entries_until_it_succeeds(
    store: FaultyStore, feed: JournalFeed
) -> None:
    bad = Listener()
    bad.fail_gap = True
    feed.subscribe(bad)
    await add(store, "a")
    feed.wake()
    await asyncio.sleep(5)
    assert (bad.gaps, bad.subjects) == (0, [])
    bad.fail_gap = False
    await asyncio.sleep(1.1)
    assert (bad.gaps, bad.subjects) == (1, [])
    await add(store, "b")
    await asyncio.sleep(1.1)
    assert bad.subjects == ["b"]


async def test_a_store_that_is_down_for_an_hour_loses_nothing(store: FaultyStore, feed: JournalFeed) -> None:
    listener = Listener()
    feed.subscribe(listener)
    await settled()
    store.error = StoreUnavailableError("no primary")
    store.reads = 0
    with capture_logs() as logs:
        for number in range(60):
            await add(store, f"s{number}")
            await asyncio.sleep(60)
        assert feed.readiness() == ["store: the journal cannot be read: no primary"]
        assert store.reads < 300
        store.error = None
        await asyncio.sleep(17)
    assert listener.subjects == [f"s{number}" for number in range(60)]
    assert listener.gaps == 1
    assert feed.readiness() == []
    assert [line["log_level"] for line in logs] == ["warning", "info"]


async def test_a_store_that_is_down_at_the_start_is_waited_for(store: FaultyStore) -> None:
    store.error = StoreUnavailableError("no primary")
    feed, listener = JournalFeed(store), Listener()
    feed.subscribe(listener)
    await feed.start()
    await asyncio.sleep(100)
    assert listener.gaps == 0
    store.error = None
    await asyncio.sleep(17)
    assert listener.gaps == 1
    await feed.stop()


async def test_an_unknown_position_is_a_gap(store: FaultyStore, feed: JournalFeed) -> None:
    listener = Listener()
    feed.subscribe(listener)
    await settled()
    store.error = InvalidCursorError("not one of ours")
    await asyncio.sleep(30)
    store.error = None
    await asyncio.sleep(17)
    assert listener.gaps == 2
    await add(store, "a")
    await asyncio.sleep(1.1)
    assert listener.subjects == ["a"]


async def test_an_ended_subscription_gets_no_more_entries(store: FaultyStore, feed: JournalFeed) -> None:
    listener = Listener()
    leave = feed.subscribe(listener)
    await settled()
    leave()
    leave()
    await add(store, "a")
    await asyncio.sleep(2)
    assert listener.subjects == []


@pytest.mark.parametrize("moment", [0.05, 0.15, 1.25])
async def test_it_stops_even_if_a_cancellation_is_lost(moment: float) -> None:
    feed = JournalFeed(DeafStore())
    await feed.start()
    await asyncio.sleep(moment)  # during a read
    async with asyncio.timeout(0.5):
        await feed.stop()
