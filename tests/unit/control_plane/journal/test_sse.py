"""The event stream: every client gets all matching events, once and in order; one that does not read is cut off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.journal.sse import StreamSettings
from lcm.control_plane.journal.sse_client import EventFilter, StreamAccess, format_event
from lcm.control_plane.records.kinds import AUDIT, WORKER_CHANGED, WORKER_HISTORY
from lcm.control_plane.store.port import NewJournalEntry, StoreUnavailableError
from lcm.core import clock
from tests.support.records.workers import a_worker
from tests.support.virtual.mirror_world import fleet
from tests.support.virtual.stream_clients import SOON, Reader, Studio, a_studio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def studio() -> AsyncIterator[Studio]:
    async with a_studio() as studio:
        yield studio


async def test_a_change_is_sent_at_once_with_its_cursor(studio: Studio) -> None:
    reader = await studio.reader()
    await studio.changes(1)
    assert reader.names == [WORKER_HISTORY, AUDIT, WORKER_CHANGED]
    assert [event.id for event in reader.events] == (await studio.cursors())[3:]
    assert (reader.events[2].data["id"], reader.events[2].data["version"]) == ("w-1", 2)
    assert reader.text.startswith(b"retry: 2000\n")


async def test_data_is_one_line_whatever_the_journal_holds() -> None:
    assert format_event("audit", b'{\r\n "a": "b\\n"\n}', "7") == b'id: 7\nevent: audit\ndata: {   "a": "b\\n" }\n\n'


@pytest.mark.parametrize(
    ("event_filter", "count"),
    [
        (EventFilter(), 12),
        (EventFilter(topics=frozenset({WORKER_CHANGED, AUDIT})), 8),
        (EventFilter(worker_ids=frozenset({"w-2"})), 3),
        (EventFilter(regions=frozenset({"us-east-1"})), 6),
        (EventFilter(regions=frozenset({"eu-west-1", "us-east-1"})), 9),
        (
            EventFilter(
                regions=frozenset({"us-east-1"}), worker_ids=frozenset({"w-2"}), topics=frozenset({WORKER_HISTORY})
            ),
            1,
        ),
        (EventFilter(worker_ids=frozenset({"nobody"})), 0),
    ],
)
@pytest.mark.parametrize("live", [True, False])
async def test_every_client_gets_what_matches_its_filter(
    studio: Studio, event_filter: EventFilter, count: int, live: bool
) -> None:
    """Live or from the journal: the same events."""
    start = (await studio.cursors())[-1]
    reader = await studio.reader(event_filter) if live else None
    await studio.plane.edit(desired_status="STOPPED")
    for number in (2, 3):
        await studio.plane.add(a_worker(id=f"w-{number}", name=f"n{number}", aws_region="us-east-1"))
    lines = [NewJournalEntry(topic, "fleet", b'{"version":0}', clock.now()) for topic in (WORKER_HISTORY, AUDIT, AUDIT)]
    await studio.plane.store.commit([], entries=lines)
    studio.plane.feed.wake()
    await asyncio.sleep(SOON)
    reader = reader or await studio.reader(event_filter, start)
    assert len(reader.events) == count
    assert len({event.id for event in reader.events}) == count


async def test_a_slow_client_is_cut_off_without_affecting_others(studio: Studio) -> None:
    slow = studio.stream.subscribe()
    await anext(slow)
    others = [await studio.reader() for _ in range(5)]
    taken = await asyncio.wait_for(asyncio.gather(anext(slow), studio.changes(1)), 5)
    await studio.changes(60)  # many times the buffer size, as fast as possible
    await asyncio.sleep(1)
    assert studio.stream.counters.cut_off == 1
    for other in others:
        assert other.versions == list(range(2, 63))
        assert not other.ended
    (last,) = [chunk async for chunk in slow]
    assert last.startswith(b"event: overflow\n")
    assert b"Last-Event-ID" in last
    assert studio.stream.clients == 5
    seen = taken[0].decode().split("id: ")[-1].split("\n")[0]
    again = await studio.reader(last_event_id=seen)
    assert again.versions == list(range(3, 63))


async def test_a_burst_cuts_off_no_client_that_reads(studio: Studio) -> None:
    readers = [await studio.reader() for _ in range(5)]
    await studio.plane.add(*fleet(40)[2:])  # four times the buffer size, in one commit
    await asyncio.sleep(1)
    assert [len(reader.events) for reader in readers] == [114] * 5
    assert studio.stream.counters.cut_off == 0


async def test_an_event_is_encoded_once_for_all(studio: Studio) -> None:
    readers = [await studio.reader() for _ in range(200)]
    studio.stream.encoded = 0
    await studio.changes(5)
    assert studio.stream.encoded == 15
    assert all(reader.versions == [2, 3, 4, 5, 6] for reader in readers)
    assert studio.stream.counters.events == 15


async def test_nothing_is_encoded_without_a_client(studio: Studio) -> None:
    await studio.changes(5)
    assert studio.stream.encoded == 0


async def test_heartbeats_come_every_15_seconds_and_carry_the_current_cursor(studio: Studio) -> None:
    reader = await studio.reader(EventFilter(worker_ids=frozenset({"nobody"})))
    await studio.changes(3)
    await asyncio.sleep(15)
    assert reader.heartbeats == 1
    assert reader.last_id == (await studio.cursors())[-1]
    await asyncio.sleep(60)
    assert (reader.heartbeats, reader.events) == (5, [])


async def test_a_shutdown_is_sent_and_ends_at_once(studio: Studio) -> None:
    readers = [await studio.reader() for _ in range(3)]
    readers.append(await studio.reader(last_event_id=(await studio.cursors())[0]))
    idle = studio.stream.subscribe()
    await anext(idle)
    await studio.stream.stop()
    for _ in range(5):
        await asyncio.sleep(0)
    assert all(reader.ended and reader.names[-1] == "shutdown" for reader in readers)
    assert [chunk.split(b"\n")[0] async for chunk in idle] == [b"event: shutdown"]
    late = await studio.reader()
    assert (late.names, late.ended) == (["shutdown"], True)
    assert studio.stream.clients == 0


async def test_clients_are_told_to_reconnect_while_the_store_is_unreadable(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (await studio.cursors())[0]
    listening = await studio.reader()

    async def down(**_: object) -> None:
        raise StoreUnavailableError("no primary")

    with monkeypatch.context() as patch:
        patch.setattr(studio.plane.store, "read_journal", down)
        reader = await studio.reader(last_event_id=first)
        assert (reader.names, reader.ended) == (["unavailable"], True)
        assert reader.events[0].data["last_event_id"] == first
    await studio.changes(1)
    await asyncio.sleep(20)
    assert listening.versions == [2]


async def test_a_fault_while_access_is_checked_ends_that_stream_only(studio: Studio) -> None:
    async def broken() -> bool:
        raise ValueError("1 validation error for StoredSession")

    async def fine() -> bool:
        return True

    one, other = (Reader(studio.stream.subscribe(access=StreamAccess("ann", each))) for each in (broken, fine))
    studio.readers += [one, other]
    await asyncio.sleep(2 * StreamSettings().access_check)
    assert (one.names, one.ended) == (["signed_out"], True)
    assert not other.ended
    assert studio.stream.failure is not None
    assert not studio.stream.failure.done(), "the control plane goes on"
    await studio.changes(1)
    assert other.versions == [2]


async def test_missed_entries_cause_a_reset(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed delivery to the stream, for whatever reason, always causes a reset."""
    reader = await studio.reader(EventFilter(regions=frozenset({"eu-west-1"})))

    async def down(*_: object) -> None:
        raise StoreUnavailableError("no primary")

    with monkeypatch.context() as patch:
        patch.setattr(studio.plane.store, "get", down)
        lines = [NewJournalEntry(AUDIT, "w-7", b"{}", clock.now())]
        await studio.plane.store.commit([], entries=lines)
        await asyncio.sleep(2)
    assert reader.names == ["reset"]
    assert reader.last_id == (await studio.cursors())[-1]
    await studio.changes(1)
    assert reader.versions == [2]


async def test_disconnected_clients_leave_nothing_behind(studio: Studio) -> None:
    for _ in range(50):
        reader = await studio.reader()
        await reader.leave()
    assert studio.stream.clients == 0
    assert studio.stream.counters.opened == 50
