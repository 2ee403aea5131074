"""Resuming the event stream: nothing is missed and nothing is sent twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.records.kinds import AUDIT, WORKER_CHANGED, WORKER_HISTORY
from tests.support.virtual.stream_clients import SOON, Reader, Studio, a_studio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def studio() -> AsyncIterator[Studio]:
    async with a_studio() as studio:
        yield studio


async def test_a_client_that_resumes_misses_nothing_from_any_point(studio: Studio) -> None:
    await studio.changes(40)  # more than a page of the journal
    cursors = await studio.cursors()
    for position, cursor in enumerate(cursors):
        reader = await studio.reader(last_event_id=cursor)
        assert [event.id for event in reader.events] == cursors[position + 1 :]
        await reader.leave()


async def test_changes_during_the_catch_up_are_sent_once_and_in_order(studio: Studio) -> None:
    await studio.changes(50)
    first = (await studio.cursors())[0]
    for delay in range(30):  # the changes come at another point of the catch-up each time
        reader = Reader(studio.stream.subscribe(last_event_id=first))
        studio.readers.append(reader)
        for _ in range(delay):
            await asyncio.sleep(0)
        await studio.changes(2)
        assert [event.id for event in reader.events] == (await studio.cursors())[1:]
        await reader.leave()


async def test_repeated_reconnects_lose_nothing(studio: Studio) -> None:
    """A client that reconnects after every event or none, with its last id, gets what a connected client gets."""
    steady = await studio.reader()
    heard: list[str | None] = []
    last: str | None = None
    for number in range(20):
        reader = await studio.reader(last_event_id=last)
        if number % 3:
            await studio.changes(1)
        heard += [event.id for event in reader.events]
        last = reader.last_id or last  # as a browser keeps it
        await reader.leave()
        if number % 2:
            await studio.changes(1)
    reader = await studio.reader(last_event_id=last)
    heard += [event.id for event in reader.events]
    assert heard == [event.id for event in steady.events]
    assert studio.stream.clients == 2


@pytest.mark.parametrize("unknown", ["rubbish", "", "0000000000000000", "0000000000009999", "1", "\u06f1" * 16])
async def test_an_unknown_id_causes_a_reset(studio: Studio, unknown: str) -> None:
    reader = await studio.reader(last_event_id=unknown)
    assert reader.names == ["reset"]
    assert reader.last_id == (await studio.cursors())[-1]
    await studio.changes(1)
    assert reader.names == ["reset", WORKER_HISTORY, AUDIT, WORKER_CHANGED]
    assert studio.stream.counters.resets == 1


async def test_an_id_that_is_too_old_causes_a_reset(studio: Studio) -> None:
    for _ in range(9):
        await studio.changes(19)
    old, young = (await studio.cursors())[0], (await studio.cursors())[20]
    assert (await studio.reader(last_event_id=old)).names == ["reset"]
    assert "reset" not in (await studio.reader(last_event_id=young)).names


async def test_a_client_that_is_slow_to_catch_up_is_cut_off_too(studio: Studio) -> None:
    await studio.changes(10)
    slow = studio.stream.subscribe(last_event_id=(await studio.cursors())[0])
    assert b"retry" in await anext(slow)
    assert b"event: worker" in await anext(slow)
    waiting = asyncio.ensure_future(anext(slow))
    await asyncio.sleep(SOON)
    await studio.changes(1)
    await waiting
    await studio.changes(40)
    assert [chunk.split(b"\n")[0] async for chunk in slow] == [b"event: overflow"]


@pytest.fixture
def slow_pages(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that catches up waits a second for each page of the journal; the feed does not."""
    read_journal = studio.plane.store.read_journal

    async def slowly(**query: Any) -> Any:
        if query.get("limit") == 100:
            await asyncio.sleep(1)
        return await read_journal(**query)

    monkeypatch.setattr(studio.plane.store, "read_journal", slowly)


@pytest.mark.usefixtures("slow_pages")
async def test_an_entry_that_comes_live_and_from_the_journal_is_sent_once(studio: Studio) -> None:
    first = (await studio.cursors())[0]
    reader = await studio.reader(last_event_id=first)
    for _ in range(6):
        await asyncio.sleep(0.4)
        await studio.plane.edit(desired_status="STOPPED")
    await asyncio.sleep(3)
    assert [event.id for event in reader.events] == (await studio.cursors())[1:]


@pytest.mark.usefixtures("slow_pages")
async def test_a_client_cut_off_during_the_catch_up_gets_no_live_events(studio: Studio) -> None:
    source = studio.stream.subscribe(last_event_id=(await studio.cursors())[0])
    assert b"retry" in await anext(source)
    assert b"event: worker" in await anext(source)
    waiting = asyncio.ensure_future(anext(source))
    await asyncio.sleep(0.5)  # it receives live events, and reads what came before
    await studio.changes(20)
    assert b"event: worker" in await waiting
    assert b"event: overflow" in await anext(source)
    await studio.changes(20)
    assert studio.stream.counters.cut_off == 1
    assert [chunk async for chunk in source] == []
