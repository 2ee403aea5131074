"""Watches: what the port promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.core.coordination import CompactedError, EventKind, WatchEvent, WatchLostError
from tests.support.network.coordination import DEADLINE, take

if TYPE_CHECKING:
    from lcm.core.coordination import Coordination
    from tests.contract.coordination.conftest import Deployment


async def test_changes_arrive_in_order(client: Coordination, prefix: str) -> None:
    start = (await client.list_prefix(prefix)).revision + 1
    async with client.watch(prefix, from_revision=start) as batches:
        first = await client.put(prefix + "a", b"1")
        second = await client.put(prefix + "a", b"2")
        await client.delete(prefix + "a")
        events = await take(batches, 3)
    assert events == [
        WatchEvent(EventKind.PUT, prefix + "a", b"1", first),
        WatchEvent(EventKind.PUT, prefix + "a", b"2", second),
        WatchEvent(EventKind.DELETE, prefix + "a", b"", events[2].revision),
    ]
    assert events[2].revision > second


async def test_a_watch_keeps_to_its_prefix(client: Coordination, prefix: str) -> None:
    start = (await client.list_prefix(prefix)).revision + 1
    async with client.watch(prefix + "p/", from_revision=start) as batches:
        for key in ("pq", "p", "p0", "o/", "p/in"):
            await client.put(prefix + key, b"")
        (event,) = await take(batches, 1)
    assert event.key == prefix + "p/in"


async def test_a_watch_of_the_empty_prefix_sees_everything(client: Coordination, prefix: str) -> None:
    start = await client.put(prefix + "a", b"")
    async with client.watch("", from_revision=start) as batches:
        (event,) = await take(batches, 1)
    assert (event.key, event.revision) == (prefix + "a", start)


async def test_the_past_is_replayed_in_order_and_once(client: Coordination, prefix: str) -> None:
    revisions = [await client.put(f"{prefix}{number % 7}", str(number).encode()) for number in range(2000)]
    async with client.watch(prefix, from_revision=revisions[500]) as batches:
        revisions.append(await client.put(prefix + "last", b"2000"))
        events = await take(batches, 1501)
    assert [event.revision for event in events] == revisions[500:]
    assert [event.value for event in events] == [str(number).encode() for number in range(500, 2001)]


async def test_a_watch_may_begin_in_the_future(client: Coordination, prefix: str) -> None:
    now = await client.put(prefix + "a", b"")
    async with client.watch(prefix, from_revision=now + 2) as batches:
        await client.put(prefix + "b", b"")
        await client.put(prefix + "c", b"")
        (event,) = await take(batches, 1)
    assert event.key == prefix + "c"


async def test_all_keys_of_one_change_come_in_one_batch(client: Coordination, prefix: str) -> None:
    lease = await client.grant_lease(60)
    revisions = [await client.put(f"{prefix}{number:02}", b"", lease_id=lease.id) for number in range(20)]
    async with client.watch(prefix, from_revision=revisions[-1] + 1) as batches:
        await client.revoke_lease(lease.id)
        async with asyncio.timeout(DEADLINE):
            batch = await anext(batches)
            while not batch.events:
                batch = await anext(batches)
    assert sorted(event.key for event in batch.events) == [f"{prefix}{number:02}" for number in range(20)]
    assert {event.revision for event in batch.events} == {batch.revision}


async def test_many_watches_see_the_same(deployment: Deployment, prefix: str) -> None:
    client = deployment.client()
    start = (await client.list_prefix(prefix)).revision + 1

    async def watch() -> list[WatchEvent]:
        async with client.watch(prefix, from_revision=start) as batches:
            return await take(batches, 50)

    watching = [asyncio.create_task(watch()) for _ in range(20)]
    writer = deployment.client()
    for number in range(50):
        await writer.put(f"{prefix}{number}", b"")
    seen = await asyncio.gather(*watching)
    assert all(events == seen[0] for events in seen)


async def test_big_values_arrive_whole(client: Coordination, prefix: str) -> None:
    start = (await client.list_prefix(prefix)).revision + 1
    for number in range(8):
        await client.put(f"{prefix}{number}", bytes([number]) * 1_000_000)
    async with client.watch(prefix, from_revision=start) as batches:
        events = await take(batches, 8)
    assert [event.value for event in events] == [bytes([number]) * 1_000_000 for number in range(8)]


async def test_a_slow_reader_loses_nothing(client: Coordination, prefix: str) -> None:
    """More is written than a watch may hold before the first batch is taken."""
    start = (await client.list_prefix(prefix)).revision + 1
    async with client.watch(prefix, from_revision=start) as batches:
        for number in range(300):
            await client.put(prefix + "a", str(number).encode())
        events = await take(batches, 300)
    assert [event.value for event in events] == [str(number).encode() for number in range(300)]


async def test_a_compacted_revision_is_named(deployment: Deployment, prefix: str) -> None:
    client = deployment.client()
    old = await client.put(prefix + "a", b"1")
    await client.put(prefix + "a", b"2")
    now = await client.put(prefix + "a", b"3")
    deployment.compact(now)
    with pytest.raises(CompactedError) as caught:
        async with client.watch(prefix, from_revision=old) as batches:
            await take(batches, 1)
    assert caught.value.compact_revision == now
    async with client.watch(prefix, from_revision=now) as batches:
        (event,) = await take(batches, 1)
    assert event.revision == now
    listing = await client.list_prefix(prefix)
    assert [item.value for item in listing.items] == [b"3"]


async def test_a_watch_that_is_up_to_date_survives_compaction(deployment: Deployment, prefix: str) -> None:
    client = deployment.client()
    await client.put(prefix + "a", b"1")
    now = await client.put(prefix + "a", b"2")
    async with client.watch(prefix, from_revision=now + 1) as batches:
        deployment.compact(now)
        revision = await client.put(prefix + "a", b"3")
        (event,) = await take(batches, 1)
    assert event.revision == revision


async def test_a_revision_below_one_is_a_mistake(client: Coordination, prefix: str) -> None:
    with pytest.raises(ValueError, match="start at 1"):
        async with client.watch(prefix, from_revision=0):
            pass


async def test_leaving_ends_the_watch(client: Coordination, prefix: str) -> None:
    start = (await client.list_prefix(prefix)).revision + 1
    async with client.watch(prefix, from_revision=start) as batches:
        pass
    with pytest.raises(WatchLostError):
        await take(batches, 1)


async def test_an_error_inside_comes_out_as_it_is(client: Coordination, prefix: str) -> None:
    start = (await client.list_prefix(prefix)).revision + 1
    with pytest.raises(LookupError, match="mine"):
        async with client.watch(prefix, from_revision=start):
            raise LookupError("mine")


async def test_a_cancelled_reader_is_cancelled(client: Coordination, prefix: str) -> None:
    start = (await client.list_prefix(prefix)).revision + 1
    inside = asyncio.Event()

    async def watch() -> None:
        async with client.watch(prefix, from_revision=start) as batches:
            inside.set()
            # Progress without events may come; a change never does.
            await take(batches, 1)

    task = asyncio.create_task(watch())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await client.put(prefix + "a", b"") >= start


async def test_closing_ends_open_watches_with_an_error(deployment: Deployment, prefix: str) -> None:
    client = deployment.client()
    start = (await client.list_prefix(prefix)).revision + 1
    async with client.watch(prefix, from_revision=start) as batches:
        reading = asyncio.create_task(take(batches, 1))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(WatchLostError, match="closed"):
            await reading
        with pytest.raises(WatchLostError):
            await take(batches, 1)
