"""The outbox, the cursors of subscriptions and the lease of the sender are in every store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.control_plane.notifications.lane import load_state
from lcm.control_plane.notifications.lease import StoreLease
from lcm.control_plane.records.kinds import ALL_KINDS
from lcm.model.worker.status import WorkerStatus
from tests.support.records.worker_records import ANNA
from tests.support.virtual.notifications import NotificationWorld

if TYPE_CHECKING:
    from tests.contract.store.conftest import Bed


async def test_deliveries_go_on_where_they_ended(bed: Bed) -> None:
    world = NotificationWorld(await bed.open(ALL_KINDS), 0.0)
    await world.add_workers(3)
    receiver, created = await world.subscribe()
    receiver.status = None
    sender = await world.start_sender()
    await world.fail(0)
    await world.until(lambda: receiver.requests > 0)
    await world.stop_sender(sender)
    await world.fail(1)
    await world.feed.stop()

    again = NotificationWorld(await bed.open(ALL_KINDS), 0.0)
    again.box, again.receivers = world.box, world.receivers
    again.context = again._context(again.feed)
    receiver.status = 200
    sender = await again.start_sender()
    await again.set_status(0, WorkerStatus.TERMINATED)
    await again.until(lambda: len(receiver.messages) >= 3, seconds=60)
    while (loaded := await load_state(again.store, created.subscription.id)) is None or loaded.state.delivered < 3:
        await asyncio.sleep(0.02)
    await again.stop_sender(sender)
    await again.feed.stop()
    found = [(alert["subject"]["id"], alert["state"]) for alert in receiver.alerts]
    assert found == [("w-0", "raised"), ("w-1", "raised"), ("w-0", "resolved")]
    await again.subscriptions.delete(ANNA, created.subscription.id)
    assert await load_state(again.store, created.subscription.id) is None


async def test_one_of_two_holds_the_lease_until_it_is_released(bed: Bed) -> None:
    store = await bed.open(ALL_KINDS)
    first, second = StoreLease(store, "one"), StoreLease(store, "two")
    assert await first.acquire()
    assert not await second.acquire()
    assert await first.acquire()
    assert first.is_held()
    await first.release()
    assert not first.is_held()
    assert await second.acquire()
    assert not await first.acquire()
