"""A real control plane that is killed again and again while it sends notifications to a real webhook."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import SecretStr
from standardwebhooks import Webhook

from lcm.client import Client, Leader
from lcm.client.errors import ClientError
from lcm.control_plane.records.kinds import ALERT, ALL_KINDS
from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.mongo_address import database_name
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.model.notification.alert import Alert
from lcm.model.notification.subscription import CreateSubscriptionRequest, TargetKind
from lcm.model.worker.requests import CreateWorkerRequest, WorkerStatusUpdate
from lcm.model.worker.status import WorkerStatus
from tests.support.servers.control_plane import ADMIN, CONTROLLER, ControlPlaneProcess

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator
    from pathlib import Path

    from lcm.control_plane.store.port import Store
    from tests.support.servers.etcd import EtcdServer

LEADER = Leader("worker-controller", 7)
WORKERS = 10


@dataclass(slots=True)
class Delivery:
    """A message that the webhook received."""

    id: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def alert(self) -> Alert:
        """What it is about."""
        return Alert.model_validate(json.loads(self.body)["data"])


@dataclass(slots=True)
class WebhookServer:
    """A webhook on loopback that accepts everything."""

    deliveries: list[Delivery] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                pairs = (line.split(": ", 1) for line in head[1:] if ": " in line)
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers["content-length"]))
                self.deliveries.append(Delivery(headers["webhook-id"], headers, body, time.time()))
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # its client ended, or was killed
        finally:
            writer.close()


@asynccontextmanager
async def webhook_server() -> AsyncIterator[WebhookServer]:
    """A webhook that listens."""
    receiver = WebhookServer()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


@dataclass(slots=True)
class DrillResult:
    """What was committed and what arrived."""

    committed: list[Alert]
    deliveries: list[Delivery]
    secret: str
    kills: int
    written_at: list[float]

    @property
    def longest_pause(self) -> float:
        """The longest time, in seconds, in which no change was accepted from anyone."""
        moments = sorted(self.written_at)
        return max(later - earlier for earlier, later in pairwise(moments))

    @property
    def lost(self) -> list[str]:
        """Alerts that never arrived."""
        arrived = {each.id for each in self.deliveries}
        return [alert.id for alert in self.committed if alert.id not in arrived]

    @property
    def repeated(self) -> int:
        """Deliveries of something that had arrived before."""
        return len(self.deliveries) - len({each.id for each in self.deliveries})

    def check(self) -> None:
        """Nothing is lost or made up, repetitions share id and content, and each subject is in order."""
        assert not self.lost, f"{len(self.lost)} of {len(self.committed)} alerts were lost"
        known = {alert.id: alert for alert in self.committed}
        seen: dict[str, None] = {}
        for each in self.deliveries:
            assert each.id in known, f"{each.id} was never committed"
            assert each.alert == known[each.id].model_copy(update={"links": json.loads(each.body)["data"]["links"]})
            seen.setdefault(each.id)
        for subject in {alert.subject.id for alert in self.committed}:
            expected = [alert.id for alert in self.committed if alert.subject.id == subject]
            assert [each for each in seen if known[each].subject.id == subject] == expected
        for each in self.deliveries[-20:]:  # the verifier rejects what is older than five minutes
            Webhook(self.secret).verify(each.body, each.headers)

    def delays(self) -> list[float]:
        """Seconds from each alert to its first delivery, in order of length."""
        first: dict[str, float] = {}
        for each in self.deliveries:
            first.setdefault(each.id, each.at)
        return sorted(first[alert.id] - alert.at.timestamp() for alert in self.committed if alert.id in first)


class NotificationDrill:
    """Workers that fail and are retried, while their control plane is killed and started again."""

    def __init__(
        self, folder: Path, etcd: EtcdServer, namespace: str, receiver: WebhookServer, mongodb_url: str = ""
    ) -> None:
        """With the URL of a database of its own the control plane uses MongoDB, otherwise SQLite."""
        self._folder = folder
        self._receiver = receiver
        self._mongodb_url = mongodb_url
        self._plane = ControlPlaneProcess(
            folder,
            etcd,
            namespace,
            LCM_DATA_DIR=str(folder / "data"),
            NOTIFY_ALLOWED_HOSTS="127.0.0.1",
            NOTIFY_DIGEST_SECONDS="0",
            **({"STORE_URL": mongodb_url} if mongodb_url else {}),
        )
        self._written_at: list[float] = []

    async def run(self, kills: int, events: int, rng: random.Random, *, seconds: float = 0.0) -> DrillResult:
        """Kill it so many times, spread at random over so many alerts; then wait until all have arrived.

        The alerts come within `seconds`, or as fast as possible.
        """
        await asyncio.to_thread(self._plane.start)
        try:
            secret, workers = await self._set_up()
            moments = sorted(rng.randrange(1, events) for _ in range(kills))
            per_worker = events // len(workers)
            tasks = [
                asyncio.create_task(self._fail_and_retry(each, per_worker, seconds / per_worker)) for each in workers
            ]
            for moment in moments:
                while len(self._written_at) < moment:
                    await asyncio.sleep(0.002)
                await asyncio.sleep(rng.random() * 0.02)
                await asyncio.to_thread(self._kill_and_start)
            await asyncio.gather(*tasks)
            wanted = per_worker * len(workers)
            while len({each.id for each in self._receiver.deliveries}) < wanted:
                await asyncio.sleep(0.05)  # the test that runs this has a bound
        finally:
            await asyncio.to_thread(self._plane.process.end)
        return DrillResult(await self._committed(), self._receiver.deliveries, secret, kills, self._written_at)

    async def _set_up(self) -> tuple[str, list[str]]:
        async with Client(self._plane.url, ADMIN, with_metrics=False) as client:
            request = CreateSubscriptionRequest(
                name="drill", target=TargetKind.WEBHOOK, url=SecretStr(self._receiver.url)
            )
            created = await client.subscriptions.create(request)
            assert created.signing_secret is not None
            wanted = [CreateWorkerRequest(name=f"n{number}", template_name="small") for number in range(WORKERS)]
            workers = [(await client.workers.create(each)).id for each in wanted]
        async with Client(self._plane.url, CONTROLLER, with_metrics=False) as client:
            await client.internal.announce_leadership(LEADER)
        return created.signing_secret.get_secret_value(), workers

    async def _fail_and_retry(self, worker_id: str, alerts: int, pause: float) -> None:
        """Each failure and each retry is one alert. A request whose response is lost is made again if need be."""
        async with (
            Client(self._plane.url, ADMIN, with_metrics=False) as admin,
            Client(self._plane.url, CONTROLLER, with_metrics=False) as controller,
        ):
            for number in range(alerts):
                wanted = WorkerStatus.FAILED if number % 2 == 0 else WorkerStatus.PENDING
                await self._bring_to(admin, controller, worker_id, wanted)
                self._written_at.append(time.monotonic())
                await asyncio.sleep(pause)

    async def _bring_to(self, admin: Client, controller: Client, worker_id: str, wanted: WorkerStatus) -> None:
        while True:
            try:
                worker = await controller.internal.worker(worker_id)
                if worker.status is wanted:
                    return
                if wanted is WorkerStatus.FAILED:
                    write = WorkerStatusUpdate(status=wanted, version=worker.version, reason="drill")
                    await controller.internal.write_status(LEADER, worker_id, write)
                else:
                    await admin.workers.retry(worker_id)
            except ClientError:
                await asyncio.sleep(0.02)

    def _kill_and_start(self) -> None:
        self._plane.process.end()
        self._plane.start()

    async def _committed(self) -> list[Alert]:
        store = self._store()
        await store.open(ALL_KINDS)
        try:
            entries = await store.read_journal(topics=[ALERT], limit=10_000)
        finally:
            await store.close()
        return [Alert.model_validate_json(entry.body) for entry in entries]

    def _store(self) -> Store:
        if self._mongodb_url:
            return MongoStore(self._mongodb_url, database_name(self._mongodb_url))
        return SqliteStore(self._folder / "data" / "lcm.db")
