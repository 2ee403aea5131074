"""Control planes that send notifications, over one store and to receivers inside the test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.journal.feed import JournalFeed
from lcm.control_plane.notifications.lease import AlwaysHeld
from lcm.control_plane.notifications.messages import Links
from lcm.control_plane.notifications.sender import NotificationSender, SenderConfig, TargetFactory
from lcm.control_plane.notifications.subscriptions import SubscriptionService
from lcm.control_plane.records.kinds import ALL_KINDS
from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.model.notification.subscription import AlertFilter, CreateSubscriptionRequest, TargetKind
from lcm.model.worker.status import WorkerStatus
from tests.support.network.webhook_receiver import Receivers
from tests.support.records.worker_records import ANNA, CONTROLLER
from tests.support.records.workers import a_worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lcm.control_plane.notifications.lease import SenderLease
    from lcm.control_plane.store.port import Store
    from lcm.model.notification.subscription import CreatedSubscription
    from tests.support.network.webhook_receiver import Receiver

LINKS = Links("https://lcm.test", "https://docs.test")
_LONG_POLL = 10.0  # the commits of this world wake it: it need not look every second, for days


class NotificationWorld:
    """A store, the receivers, and any number of control planes."""

    def __init__(self, store: Store, digest_seconds: float) -> None:
        self.store = store
        self.receivers = Receivers()
        self.box = SecretBox([parse_key(generate_key(), "test")])
        self.feed = JournalFeed(store, poll=_LONG_POLL)
        self.context = self._context(self.feed)
        self.subscriptions = SubscriptionService(self.context)
        self.config = SenderConfig(links=LINKS, digest_seconds=digest_seconds)
        self.senders: list[NotificationSender] = []
        self._started: list[NotificationSender | JournalFeed] = []

    def _context(self, feed: JournalFeed) -> ControlPlaneContext:
        return ControlPlaneContext(self.store, UnitOfWork(self.store, feed.wake), self.box, ("eu-west-1",))

    async def start_sender(self, lease: SenderLease | None = None) -> NotificationSender:
        """One more control plane that sends."""
        feed = self.feed if not self.senders else JournalFeed(self.store)
        context = self.context if not self.senders else self._context(feed)
        targets = TargetFactory(context, self.receivers, self.config)
        sender = NotificationSender(context, feed, lease or AlwaysHeld(), targets, self.receivers)
        self.senders.append(sender)
        for service in (feed, sender):
            await service.start()
            self._started.append(service)
        return sender

    async def stop_sender(self, sender: NotificationSender) -> None:
        """End one of them."""
        self._started.remove(sender)
        await sender.stop()

    async def stop(self) -> None:
        for service in reversed(self._started):
            await service.stop()
        await self.store.close()

    async def subscribe(self, name: str = "ops", **alert_filter: Any) -> tuple[Receiver, CreatedSubscription]:
        """A webhook at a new host of this name."""
        request = CreateSubscriptionRequest(
            name=name,
            target=TargetKind.WEBHOOK,
            url=SecretStr(f"https://{name}/hook/s3cret"),
            filter=AlertFilter(**alert_filter),
        )
        return self.receivers.add(name), await self.subscriptions.create(ANNA, request)

    async def add_workers(self, count: int) -> None:
        """Running workers w-0, w-1 …"""

        async def attempt(tx: Transaction) -> None:
            for number in range(count):
                worker = a_worker(id=f"w-{number}", name=f"n{number}", status=WorkerStatus.RUNNING)
                tx.save_worker(worker, "created")

        await self.context.unit_of_work.run(ANNA, attempt)

    async def set_status(self, number: int, status: WorkerStatus, reason: str = "it broke") -> None:
        """A controller writes a worker's status."""

        async def attempt(tx: Transaction) -> None:
            worker = await tx.worker(f"w-{number}")
            after = worker.model_copy(update={"status": status, "version": worker.version + 1})
            tx.save_worker(after, "status_reported", reason)

        await self.context.unit_of_work.run(CONTROLLER, attempt)

    async def fail(self, number: int, reason: str = "it broke") -> None:
        """A worker fails."""
        await self.set_status(number, WorkerStatus.FAILED, reason)

    async def until(self, condition: Callable[[], bool], *, seconds: float = 3600.0) -> None:
        """Let time pass until a condition is true."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.05)


@asynccontextmanager
async def notification_world(
    *, digest_seconds: float = 0.0, store: Store | None = None
) -> AsyncIterator[NotificationWorld]:
    """A world in which nothing is sent before `start_sender`."""
    opened = store or MemoryStore()
    await opened.open(ALL_KINDS)
    world = NotificationWorld(opened, digest_seconds)
    try:
        yield world
    finally:
        await world.stop()
