"""A control plane that dies at each of its writes: another goes on, and nothing is lost or out of order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.notifications.lease import StoreLease
from lcm.control_plane.records.kinds import ALERT, ALL_KINDS
from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.control_plane.store.port import StoreUnavailableError
from lcm.model.notification.alert import Alert
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.notifications import NotificationWorld, notification_world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.network.webhook_receiver import Receiver

WORKERS, ROUNDS = 6, 4
MAX_WRITES = 25


class MortalStore(MemoryStore):
    """The store of a process that is killed at one of its commits, right before or right after it took effect."""

    def __init__(self, disk: MemoryDisk, commits: int, when: str) -> None:
        super().__init__(disk)
        self._left = commits
        self._when = when
        self.is_dead = False

    async def commit(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0 and self._when == "before":
            self._die()
        result = await super().commit(*arguments, **options)
        if self._left == 0:
            self._die()
        return result

    def _die(self) -> None:
        self.is_dead = True
        self.crash()
        raise StoreUnavailableError("the process was killed")


async def deliver(disk: MemoryDisk, commits: int, when: str, digest_seconds: float) -> tuple[Receiver, bool]:
    """Deliver many alerts with a control plane that dies at this commit, and with the next; returns whether it died."""
    async with notification_world(digest_seconds=digest_seconds, store=MemoryStore(disk)) as world:
        await world.add_workers(WORKERS)
        receiver, _ = await world.subscribe()
        mortal = MortalStore(disk, commits, when)
        await mortal.open(ALL_KINDS)
        first = NotificationWorld(mortal, digest_seconds)
        first.box, first.receivers, first.config = world.box, world.receivers, world.config
        first.context = first._context(first.feed)
        sender = await first.start_sender(StoreLease(mortal, "first"))
        for step in range(ROUNDS):
            for number in range(WORKERS):
                await world.set_status(number, WorkerStatus.RUNNING if step % 2 else WorkerStatus.FAILED)
                await asyncio.sleep(0.2)
        second = await world.start_sender(StoreLease(world.store, "second"))
        await asyncio.sleep(300)
        assert second.status().sending is mortal.is_dead
        await first.stop_sender(sender)
        await first.feed.stop()
    return receiver, mortal.is_dead


def check(receiver: Receiver, committed: Sequence[Alert]) -> None:
    """All have arrived, those of a subject in order, and a message that came twice has the same id and content."""
    first: dict[str, None] = dict.fromkeys(alert["id"] for alert in receiver.alerts)
    assert set(first) == {alert.id for alert in committed}
    for subject in {alert.subject.id for alert in committed}:
        expected = [alert.id for alert in committed if alert.subject.id == subject]
        mine = set(expected)
        assert [each for each in first if each in mine] == expected
    carried_by: dict[str, set[tuple[str, bytes]]] = {each: set() for each in first}
    for message in receiver.messages:
        for alert in message.alerts:
            carried_by[alert["id"]].add((message.id, message.body))
    assert all(len(messages) == 1 for messages in carried_by.values())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("digest_seconds", [0.0, 3.0])
async def test_a_control_plane_may_die_at_any_of_its_writes(when: str, digest_seconds: float) -> None:
    deaths = 0
    for commits in range(1, MAX_WRITES):
        disk = MemoryDisk()
        receiver, died = await deliver(disk, commits, when, digest_seconds)
        reader = MemoryStore(disk)
        await reader.open(ALL_KINDS)
        entries = await reader.read_journal(topics=[ALERT], limit=1000)
        assert len(entries) == WORKERS * ROUNDS
        check(receiver, [Alert.model_validate_json(entry.body) for entry in entries])
        deaths += died
    assert deaths > 5, "it writes more often than that"
