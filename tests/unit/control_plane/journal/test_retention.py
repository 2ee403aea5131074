"""Old lines go in portions, younger ones never, and whoever comes back for gone ones is told so."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lcm.control_plane.journal.feed import JournalFeed
from lcm.control_plane.journal.retention import RetentionPolicy, delete_expired_entries, deleted_through
from lcm.control_plane.journal.sse_client import EventFilter
from lcm.control_plane.maintenance import MaintenanceService
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
from lcm.wiring.control_plane import make_maintenance as made_tidying
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
    """Lines of a topic that are so old now, in one commit."""
    lines = [NewJournalEntry(topic, subject, b"{}", clock.now() - age) for age in ages]
    cursors: Sequence[str] = await store.commit([], entries=lines)
    return cursors


async def ages(store: Store, topic: str) -> list[timedelta]:
    return [clock.now() - line.at for line in await store.journal(topics=[topic], limit=10_000)]


async def test_events_go_after_a_day_and_audit_and_history_after_ninety(store: MemoryStore) -> None:
    for topic in (WORKER_CHANGED, AUDIT, WORKER_HISTORY, LABLET_CHANGED, LABLET_HISTORY):
        await add(store, topic, 91 * DAY, 89 * DAY, 25 * HOUR, 23 * HOUR, timedelta(0))
    assert await delete_expired_entries(store, DEFAULT) == 9
    for topic in (WORKER_CHANGED, LABLET_CHANGED):
        assert await ages(store, topic) == [23 * HOUR, timedelta(0)]
    for topic in (AUDIT, WORKER_HISTORY, LABLET_HISTORY):
        assert await ages(store, topic) == [89 * DAY, 25 * HOUR, 23 * HOUR, timedelta(0)]
    assert await delete_expired_entries(store, DEFAULT) == 0


async def test_audit_and_history_can_be_kept_for_ever(store: MemoryStore) -> None:
    for topic in (WORKER_CHANGED, AUDIT, WORKER_HISTORY, LABLET_CHANGED, LABLET_HISTORY):
        await add(store, topic, 9_000 * DAY)
    assert await delete_expired_entries(store, RetentionPolicy(journal=None)) == 2
    assert len(await store.journal()) == 3


async def test_much_goes_in_portions(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(12):
        await add(store, WORKER_CHANGED, *[2 * DAY] * 100)
    portions: list[int] = []
    forget = store.forget

    async def counted(topic: str, *, through: str, limit: int = 1000) -> int:
        portions.append(await forget(topic, through=through, limit=limit))
        return portions[-1]

    monkeypatch.setattr(store, "forget", counted)
    assert await delete_expired_entries(store, DEFAULT) == 1200
    assert portions == [500, 500, 200]


async def test_a_wrong_clock_takes_no_younger_line_along_and_holds_nothing_up(store: MemoryStore) -> None:
    """One line claims to be from 1970 and one from next year; the others are from two days ago and from now."""
    await add(store, AUDIT, 100 * DAY, -365 * DAY, 95 * DAY, HOUR, 20_000 * DAY, HOUR)
    assert await delete_expired_entries(store, DEFAULT) == 3
    assert await ages(store, AUDIT) == [HOUR, 20_000 * DAY, HOUR]


async def test_how_far_it_was_forgotten_is_known_before_a_line_is_gone() -> None:
    """The process ends between the two: the lines are there, and count as gone until they are."""
    store = GatedStore()
    await store.open(ALL_KINDS)
    cursors = await add(store, WORKER_CHANGED, 2 * DAY, 2 * DAY, HOUR)
    store.loses_answers = True
    with pytest.raises(StoreUnavailableError):
        await delete_expired_entries(store, DEFAULT)
    assert await deleted_through(store) == cursors[1]
    assert len(await store.journal()) == 3
    store.loses_answers = False
    assert await delete_expired_entries(store, DEFAULT) == 2


async def test_two_control_planes_at_it_at_once_do_no_harm() -> None:
    disk, looked = MemoryDisk(), asyncio.Event()
    slow, quick = GatedStore(disk), MemoryStore(disk)
    for store in (slow, quick):
        await store.open(ALL_KINDS)
    cursors = await add(quick, WORKER_CHANGED, 2 * DAY, 2 * DAY, HOUR)
    slow.gate = looked
    first = asyncio.create_task(delete_expired_entries(slow, DEFAULT))
    await asyncio.sleep(0.01)
    assert await delete_expired_entries(quick, DEFAULT) == 2
    later = await add(quick, WORKER_CHANGED, timedelta(0))
    looked.set()
    assert await first == 0
    assert await deleted_through(quick) == cursors[1]
    assert [line.cursor for line in await quick.journal()] == [cursors[2], *later]


async def test_how_far_is_told_by_topic(store: MemoryStore) -> None:
    assert await deleted_through(store) is None
    (event,) = await add(store, WORKER_CHANGED, 2 * DAY)
    await delete_expired_entries(store, DEFAULT)
    assert await deleted_through(store) == event
    assert await deleted_through(store, {WORKER_CHANGED, "\0 whatever"}) == event
    assert await deleted_through(store, {AUDIT, WORKER_HISTORY}) is None


# The stream


async def test_whoever_comes_back_for_what_is_forgotten_is_told_to_read_again(studio: Studio) -> None:
    await studio.changes(2)
    cursors = await studio.cursors()
    await asyncio.sleep(61 * 60)
    await studio.changes(1)
    await delete_expired_entries(studio.plane.store, AN_HOUR)
    late = await studio.reader(last_event_id=cursors[0])
    assert late.names == ["reset"]
    assert "not kept that long" in late.events[0].data["reason"]
    await studio.changes(1)
    assert late.names == ["reset", WORKER_HISTORY, AUDIT, WORKER_CHANGED]


async def test_whoever_has_seen_the_last_forgotten_line_misses_nothing(studio: Studio) -> None:
    await studio.changes(2)
    seen = (await studio.cursors())[-1]
    await asyncio.sleep(61 * 60)
    await studio.changes(1)
    await delete_expired_entries(studio.plane.store, AN_HOUR)
    back = await studio.reader(last_event_id=seen)
    assert back.names == [WORKER_HISTORY, AUDIT, WORKER_CHANGED]


async def test_what_is_forgotten_of_other_topics_does_not_matter(studio: Studio) -> None:
    await studio.changes(2)
    first = (await studio.cursors())[0]
    await asyncio.sleep(61 * 60)
    await delete_expired_entries(studio.plane.store, AN_HOUR)
    back = await studio.reader(EventFilter(topics=frozenset({AUDIT})), last_event_id=first)
    assert back.names == [AUDIT] * 3


async def test_what_is_forgotten_while_it_catches_up_is_noticed(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page is read in time; before the second the lines that stood on it are gone."""
    await studio.changes(50)
    first = (await studio.cursors())[0]
    store = studio.plane.store
    journal, pages = store.journal, 0

    async def forgetful(**query: Any) -> Any:
        nonlocal pages
        if query.get("limit") == 100 and "topics" not in query:
            pages += 1
            if pages == 2:
                await asyncio.sleep(61 * 60)
                await delete_expired_entries(store, AN_HOUR)
        return await journal(**query)

    monkeypatch.setattr(store, "journal", forgetful)
    reader = await studio.reader(last_event_id=first)
    await asyncio.sleep(62 * 60)
    assert reader.names.count("reset") == 1
    assert reader.names[-1] == "reset"
    assert len(reader.names) == 101
    await studio.changes(1)
    assert reader.names[-3:] == [WORKER_HISTORY, AUDIT, WORKER_CHANGED]


async def test_a_feed_that_slept_longer_than_lines_are_kept_says_that_there_is_a_gap(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that was suspended: another control plane has gone on, and forgotten what was not read here."""
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
    assert [line["event"] for line in logs] == ["old lines of the journal were forgotten before they were read here"]
    await studio.changes(1)
    feed.wake()
    await asyncio.sleep(SOON)
    assert listener.subjects == ["w-1"] * 3
    await feed.stop()


# The chores


async def test_chores_are_done_now_and_then_and_one_that_fails_keeps_no_other_from_it() -> None:
    done: list[float] = []

    async def good() -> int:
        done.append(asyncio.get_running_loop().time())
        return 1

    async def bad() -> int:
        raise StoreUnavailableError("no primary")

    began = asyncio.get_running_loop().time()
    tidying = MaintenanceService({"bad": bad, "good": good}, every=600)
    with capture_logs() as logs:
        await tidying.start()
        await asyncio.sleep(1801)
    await tidying.stop()
    await asyncio.sleep(1800)
    assert [round(at - began) for at in done] == [600, 1200, 1800]
    assert [line["chore"] for line in logs if line["log_level"] == "error"] == ["bad"] * 3


async def test_lines_go_by_themselves_as_time_passes(store: MemoryStore) -> None:
    tidying = MaintenanceService({"journal": lambda: delete_expired_entries(store, RetentionPolicy(journal=9 * DAY))})
    await tidying.start()
    await add(store, WORKER_CHANGED, timedelta(0))
    await add(store, AUDIT, timedelta(0))
    left = []
    for _ in range(3):
        await asyncio.sleep(23.5 * 3600)
        left.append([line.topic for line in await store.journal()])
    assert left == [[WORKER_CHANGED, AUDIT], [AUDIT], [AUDIT]]
    await asyncio.sleep(9 * 24 * 3600)
    assert list(await store.journal()) == []
    await tidying.stop()


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        (StoreSettings(), [2, 2]),
        (StoreSettings(journal_retention_days=0), [3, 2]),
        (StoreSettings(journal_retention_days=1, event_retention_hours=48), [1, 3]),
    ],
)
async def test_the_settings_reach_the_chores(settings: StoreSettings, left: list[int]) -> None:
    """Lines that are 91 days, 30 hours and no time old at all."""
    async with serving_plane() as plane:
        store = plane.parts.plane.store
        for topic in (AUDIT, WORKER_CHANGED):
            before = await store.journal(topics=[topic], limit=1000)
            if before:
                await store.forget(topic, through=before[-1].cursor)
        await add(store, AUDIT, 91 * DAY, 30 * HOUR, timedelta(0))
        await add(store, WORKER_CHANGED, 30 * HOUR, HOUR, timedelta(0))
        service = made_tidying(settings, store, plane.parts)
        await service.start()
        await asyncio.sleep(601)
        await service.stop()
        assert [len(await store.journal(topics=[topic])) for topic in (AUDIT, WORKER_CHANGED)] == left
