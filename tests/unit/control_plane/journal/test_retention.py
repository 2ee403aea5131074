"""Expired entries are deleted in batches, younger ones never, and clients that missed deleted ones get a reset."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lcm.control_plane.journal.feed import JournalFeed
from lcm.control_plane.journal.retention import (
    MaintenanceService,
    RetentionPolicy,
    delete_expired_entries,
    deleted_through,
)
from lcm.control_plane.journal.sse_client import EventFilter
from lcm.control_plane.records.kinds import (
    ALL_KINDS,
    AUDIT,
    LABLET_CHANGED,
    LABLET_HISTORY,
    WORKER_CHANGED,
    WORKER_HISTORY,
)
from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.control_plane.store.port import NewJournalEntry, StoreUnavailableError
from lcm.core import clock
from lcm.settings import StoreSettings
from lcm.wiring.control_plane import make_maintenance
from tests.support.records.gated_store import GatedStore
from tests.support.virtual.control_plane import serving_plane
from tests.support.virtual.stream_clients import SOON, Studio, a_studio
from tests.unit.control_plane.journal.test_feed import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Any

    from lcm.control_plane.store.port import Store

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DEFAULT, AN_HOUR = RetentionPolicy(), RetentionPolicy(events=HOUR)


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    await store.open(ALL_KINDS)
    return store


@pytest.fixture
async def studio() -> AsyncIterator[Studio]:
    async with a_studio() as studio:
        yield studio


async def add(store: Store, topic: str, *ages: timedelta, subject: str = "w-1") -> Sequence[str]:
    """Entries of a topic with these ages, in one commit."""
    lines = [NewJournalEntry(topic, subject, b"{}", clock.now() - age) for age in ages]
    cursors: Sequence[str] = await store.commit([], entries=lines)
    return cursors


async def ages(store: Store, topic: str) -> list[timedelta]:
    return [clock.now() - line.at for line in await store.read_journal(topics=[topic], limit=10_000)]


async def test_events_go_after_a_day_and_audit_and_history_after_ninety(store: MemoryStore) -> None:
    for topic in (WORKER_CHANGED, AUDIT, WORKER_HISTORY, LABLET_CHANGED, LABLET_HISTORY):
        await add(store, topic, 91 * DAY, 89 * DAY, 25 * HOUR, 23 * HOUR, timedelta(0))
    assert await delete_expired_entries(store, DEFAULT) == 9
    for topic in (WORKER_CHANGED, LABLET_CHANGED):
        assert await ages(store, topic) == [23 * HOUR, timedelta(0)]
    for topic in (AUDIT, WORKER_HISTORY, LABLET_HISTORY):
        assert await ages(store, topic) == [89 * DAY, 25 * HOUR, 23 * HOUR, timedelta(0)]
    assert await delete_expired_entries(store, DEFAULT) == 0


async def test_audit_and_history_can_be_kept_forever(store: MemoryStore) -> None:
    for topic in (WORKER_CHANGED, AUDIT, WORKER_HISTORY, LABLET_CHANGED, LABLET_HISTORY):
        await add(store, topic, 9_000 * DAY)
    assert await delete_expired_entries(store, RetentionPolicy(journal=None)) == 2
    assert len(await store.read_journal()) == 3


async def test_many_entries_are_deleted_in_batches(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(12):
        await add(store, WORKER_CHANGED, *[2 * DAY] * 100)
    portions: list[int] = []
    forget = store.trim_journal

    async def counted(topic: str, *, through: str, limit: int = 1000) -> int:
        portions.append(await forget(topic, through=through, limit=limit))
        return portions[-1]

    monkeypatch.setattr(store, "trim_journal", counted)
    assert await delete_expired_entries(store, DEFAULT) == 1200
    assert portions == [500, 500, 200]


async def test_an_entry_with_a_wrong_clock_deletes_no_younger_entry_and_blocks_nothing(store: MemoryStore) -> None:
    """One entry is dated 1970 and one next year; the others are from two days ago and from now."""
    await add(store, AUDIT, 100 * DAY, -365 * DAY, 95 * DAY, HOUR, 20_000 * DAY, HOUR)
    assert await delete_expired_entries(store, DEFAULT) == 3
    assert await ages(store, AUDIT) == [HOUR, 20_000 * DAY, HOUR]


async def test_the_marker_is_stored_before_an_entry_is_deleted() -> None:
    """The process ends between the two: the entries exist, and count as deleted until they are."""
    store = GatedStore()
    await store.open(ALL_KINDS)
    cursors = await add(store, WORKER_CHANGED, 2 * DAY, 2 * DAY, HOUR)
    store.loses_responses = True
    with pytest.raises(StoreUnavailableError):
        await delete_expired_entries(store, DEFAULT)
    assert await deleted_through(store) == cursors[1]
    assert len(await store.read_journal()) == 3
    store.loses_responses = False
    assert await delete_expired_entries(store, DEFAULT) == 2


async def test_two_control_planes_may_delete_at_once() -> None:
    disk, gate = MemoryDisk(), asyncio.Event()
    slow, quick = GatedStore(disk), MemoryStore(disk)
    for store in (slow, quick):
        await store.open(ALL_KINDS)
    cursors = await add(quick, WORKER_CHANGED, 2 * DAY, 2 * DAY, HOUR)
    slow.gate = gate
    first = asyncio.create_task(delete_expired_entries(slow, DEFAULT))
    await asyncio.sleep(0.01)
    assert await delete_expired_entries(quick, DEFAULT) == 2
    later = await add(quick, WORKER_CHANGED, timedelta(0))
    gate.set()
    assert await first == 0
    assert await deleted_through(quick) == cursors[1]
    assert [line.cursor for line in await quick.read_journal()] == [cursors[2], *later]


async def test_markers_are_per_topic(store: MemoryStore) -> None:
    assert await deleted_through(store) is None
    (event,) = await add(store, WORKER_CHANGED, 2 * DAY)
    await delete_expired_entries(store, DEFAULT)
    assert await deleted_through(store) == event
    assert await deleted_through(store, {WORKER_CHANGED, "\0 whatever"}) == event
    assert await deleted_through(store, {AUDIT, WORKER_HISTORY}) is None


# The stream


async def test_a_client_that_resumes_after_deleted_entries_gets_a_reset(studio: Studio) -> None:
    await studio.changes(2)
    cursors = await studio.cursors()
    await asyncio.sleep(61 * 60)
    await studio.changes(1)
    await delete_expired_entries(studio.plane.store, AN_HOUR)
    late = await studio.reader(last_event_id=cursors[0])
    assert late.names == ["reset"]
    assert "have expired" in late.events[0].data["reason"]
    await studio.changes(1)
    assert late.names == ["reset", WORKER_HISTORY, AUDIT, WORKER_CHANGED]


async def test_a_client_that_has_seen_the_last_deleted_entry_misses_nothing(studio: Studio) -> None:
    await studio.changes(2)
    seen = (await studio.cursors())[-1]
    await asyncio.sleep(61 * 60)
    await studio.changes(1)
    await delete_expired_entries(studio.plane.store, AN_HOUR)
    back = await studio.reader(last_event_id=seen)
    assert back.names == [WORKER_HISTORY, AUDIT, WORKER_CHANGED]


async def test_deleted_entries_of_other_topics_do_not_matter(studio: Studio) -> None:
    await studio.changes(2)
    first = (await studio.cursors())[0]
    await asyncio.sleep(61 * 60)
    await delete_expired_entries(studio.plane.store, AN_HOUR)
    back = await studio.reader(EventFilter(topics=frozenset({AUDIT})), last_event_id=first)
    assert back.names == [AUDIT] * 3


async def test_entries_deleted_during_the_catch_up_are_noticed(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page is read in time; the entries of the second are deleted before it is read."""
    await studio.changes(50)
    first = (await studio.cursors())[0]
    store = studio.plane.store
    journal, pages = store.read_journal, 0

    async def forgetful(**query: Any) -> Any:
        nonlocal pages
        if query.get("limit") == 100 and "topics" not in query:
            pages += 1
            if pages == 2:
                await asyncio.sleep(61 * 60)
                await delete_expired_entries(store, AN_HOUR)
        return await journal(**query)

    monkeypatch.setattr(store, "read_journal", forgetful)
    reader = await studio.reader(last_event_id=first)
    await asyncio.sleep(62 * 60)
    assert reader.names.count("reset") == 1
    assert reader.names[-1] == "reset"
    assert len(reader.names) == 101
    await studio.changes(1)
    assert reader.names[-3:] == [WORKER_HISTORY, AUDIT, WORKER_CHANGED]


async def test_a_feed_that_paused_longer_than_the_retention_reports_a_gap(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a process that was suspended: another control plane has deleted entries that were not read here."""
    disk = studio.plane.store.disk
    asleep = MemoryStore(disk)
    await asleep.open(ALL_KINDS)
    feed, listener = JournalFeed(asleep, poll=3 * 3600), Listener()
    feed.subscribe(listener)
    await feed.start()
    await asyncio.sleep(SOON)
    assert listener.gaps == 1
    await studio.changes(3)
    await asyncio.sleep(61 * 60)
    await delete_expired_entries(studio.plane.store, RetentionPolicy(journal=HOUR, events=HOUR))
    await studio.changes(1)
    with capture_logs() as logs:
        feed.wake()
        await asyncio.sleep(SOON)
    assert (listener.gaps, listener.subjects) == (2, [])
    assert [line["event"] for line in logs] == ["journal entries expired before they were read here"]
    await studio.changes(1)
    feed.wake()
    await asyncio.sleep(SOON)
    assert listener.subjects == ["w-1"] * 3
    await feed.stop()


# Maintenance


async def test_tasks_run_periodically_and_a_failing_one_does_not_block_the_others() -> None:
    done: list[float] = []

    async def good() -> int:
        done.append(asyncio.get_running_loop().time())
        return 1

    async def bad() -> int:
        raise StoreUnavailableError("no primary")

    began = asyncio.get_running_loop().time()
    maintenance = MaintenanceService({"bad": bad, "good": good}, every=600)
    with capture_logs() as logs:
        await maintenance.start()
        await asyncio.sleep(1801)
    await maintenance.stop()
    await asyncio.sleep(1800)
    assert [round(at - began) for at in done] == [600, 1200, 1800]
    assert [line["task"] for line in logs if line["log_level"] == "error"] == ["bad"] * 3


async def test_entries_expire_as_time_passes(store: MemoryStore) -> None:
    maintenance = MaintenanceService(
        {"journal": lambda: delete_expired_entries(store, RetentionPolicy(journal=9 * DAY))}
    )
    await maintenance.start()
    await add(store, WORKER_CHANGED, timedelta(0))
    await add(store, AUDIT, timedelta(0))
    left = []
    for _ in range(3):
        await asyncio.sleep(23.5 * 3600)
        left.append([line.topic for line in await store.read_journal()])
    assert left == [[WORKER_CHANGED, AUDIT], [AUDIT], [AUDIT]]
    await asyncio.sleep(9 * 24 * 3600)
    assert list(await store.read_journal()) == []
    await maintenance.stop()


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        (StoreSettings(), [2, 2]),
        (StoreSettings(journal_retention_days=0), [3, 2]),
        (StoreSettings(journal_retention_days=1, event_retention_hours=48), [1, 3]),
    ],
)
async def test_the_settings_reach_the_maintenance_tasks(settings: StoreSettings, left: list[int]) -> None:
    """Entries that are 91 days old, 30 hours old, and new."""
    async with serving_plane() as plane:
        store = plane.services.context.store
        for topic in (AUDIT, WORKER_CHANGED):
            before = await store.read_journal(topics=[topic], limit=1000)
            if before:
                await store.trim_journal(topic, through=before[-1].cursor)
        await add(store, AUDIT, 91 * DAY, 30 * HOUR, timedelta(0))
        await add(store, WORKER_CHANGED, 30 * HOUR, HOUR, timedelta(0))
        service = make_maintenance(settings, store, plane.services)
        await service.start()
        await asyncio.sleep(601)
        await service.stop()
        assert [len(await store.read_journal(topics=[topic])) for topic in (AUDIT, WORKER_CHANGED)] == left
