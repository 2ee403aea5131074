"""One record that cannot be read stops the notifications of no other subscription, and is named."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.notifications.lease import StoreLease
from lcm.control_plane.records.kinds import (
    ALERT,
    DEAD_LETTERS,
    DELIVERY_STATES,
    SUBSCRIPTION_SECRETS,
    SUBSCRIPTIONS,
)
from lcm.control_plane.store.port import NewJournalEntry, Put
from lcm.core import clock
from lcm.model.problems import ProblemCode
from tests.support.records.worker_records import ANNA
from tests.support.virtual.notifications import notification_world

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Kind
    from tests.support.virtual.notifications import NotificationWorld


async def spoil(world: NotificationWorld, kind: Kind, document_id: str, body: object = None) -> None:
    """Write a record as no version could have written it."""
    stored = await world.store.get(kind, document_id)
    assert stored is not None
    fields = dict.fromkeys(kind.fields, "broken")
    await world.store.commit([Put(kind, document_id, json.dumps(body).encode(), stored.revision, fields)])


@pytest.mark.parametrize("kind", [SUBSCRIPTIONS, DELIVERY_STATES, SUBSCRIPTION_SECRETS])
async def test_others_are_delivered_and_the_record_is_named(kind: Kind) -> None:
    async with notification_world() as world:
        await world.add_workers(2)
        broken, created = await world.subscribe("broken")
        healthy, _ = await world.subscribe("healthy")
        sender = await world.start_sender(StoreLease(world.store, "one"))
        await world.until(lambda: sender.status().subscriptions == 2)
        await spoil(world, kind, created.subscription.id)
        await world.stop_sender(sender)
        sender = await world.start_sender(StoreLease(world.store, "two"))
        await world.until(lambda: sender.status().sending)
        await asyncio.sleep(60)
        assert sender.status().sending
        for number in range(2):
            await world.fail(number)
        await world.until(lambda: len(healthy.messages) == 2, seconds=5)
        assert broken.messages == []
        (problem,) = sender.degradation()
        named = created.subscription.id if kind is SUBSCRIPTIONS else "broken"
        assert problem.startswith(f"notifications: {named}: ")
        assert "cannot be read" in problem
        assert sender.status().failing == (named,)


async def test_without_any_other_subscription_it_is_named_too_until_it_is_deleted() -> None:
    async with notification_world() as world:
        _, created = await world.subscribe()
        await spoil(world, SUBSCRIPTIONS, created.subscription.id)
        sender = await world.start_sender()
        await world.until(lambda: bool(sender.degradation()))
        with pytest.raises(ProblemError, match="cannot be read; delete it") as caught:
            await world.subscriptions.get(created.subscription.id)
        assert caught.value.code is ProblemCode.NOT_POSSIBLE_NOW
        deleted = await world.subscriptions.delete(ANNA, created.subscription.id)
        assert deleted.id == created.subscription.id
        await world.until(lambda: not sender.degradation())


async def test_lists_leave_out_what_cannot_be_read() -> None:
    async with notification_world() as world:
        await world.add_workers(2)
        receiver, created = await world.subscribe("rejecting")
        receiver.status = 400
        _, broken = await world.subscribe("broken")
        await world.start_sender()
        for number in range(2):
            await world.fail(number)
        await asyncio.sleep(5)
        subscription_id = created.subscription.id
        letters = (await world.subscriptions.dead_letters(subscription_id, limit=10, cursor=None)).items
        assert len(letters) == 2
        stored = await world.store.get(DEAD_LETTERS, letters[0].id)
        assert stored is not None
        known = {"subscription_id": subscription_id, "at": letters[0].at.isoformat()}
        await world.store.commit([Put(DEAD_LETTERS, letters[0].id, b"null", stored.revision, known)])
        assert (await world.subscriptions.dead_letters(subscription_id, limit=10, cursor=None)).items == letters[1:]
        await spoil(world, SUBSCRIPTIONS, broken.subscription.id)
        statuses = await world.subscriptions.statuses()
        assert [each.subscription.name for each in statuses] == ["rejecting"]


async def test_an_alert_that_cannot_be_read_hides_no_status() -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        _, created = await world.subscribe()
        broken = NewJournalEntry(at=clock.now(), topic=ALERT, subject="w-0", body=b"null")
        await world.store.commit([], entries=[broken])
        await world.fail(0)
        assert (await world.subscriptions.status(created.subscription.id)).pending == 1


async def test_a_status_says_that_its_deliveries_cannot_be_read() -> None:
    async with notification_world() as world:
        _, created = await world.subscribe()
        await spoil(world, DELIVERY_STATES, created.subscription.id)
        status = await world.subscriptions.status(created.subscription.id)
        assert (
            status.problem == "the record of its deliveries cannot be read; delete the subscription and create it again"
        )
