"""Resource schedulers as real processes: a real etcd, a real control plane on SQLite, one of them frozen and stale."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lcm.client import Client, Leader
from lcm.control_plane.records.kinds import WORKERS, worker_fields, worker_unique_keys
from lcm.control_plane.store.port import Put
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, Lablet
from lcm.model.lablet.status import LabletStatus
from tests.support.records.placement import a_ready_worker, needs
from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.processes import PATIENCE, ROOT, LcmProcess, wait_until
from tests.support.virtual.scheduling import TOPOLOGY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lcm.model.worker.record import Worker

ADMIN = "bootstrap-token-for-tests-0123456789"
CONTROLLER = "controller-token-for-tests-0123456789"
TTL = 5
FLEET = 10


class Platform:
    """A control plane with ten ready workers, and schedulers."""

    def __init__(self, folder: Path, etcd: EtcdServer, namespace: str) -> None:
        self.folder = folder
        self.port = free_ports(1)[0]
        self.env = {
            "ETCD_ENDPOINTS": etcd.endpoint,
            "ETCD_NAMESPACE": f"/{namespace}",
            "CONTROL_PLANE_PORT": str(self.port),
            "CONTROL_PLANE_API_URL": f"http://127.0.0.1:{self.port}",
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
            "LCM_CONTROLLER_TOKEN": CONTROLLER,
            "STORE_URL": f"sqlite:///{folder / 'lcm.db'}",
            "LEADER_LEASE_TTL": str(TTL),
            "RETRY_INTERVAL": "1",
            "RECONCILE_INTERVAL": "2",
        }
        self.plane = LcmProcess(folder, "plane", "control-plane", env=self.env)
        self.plane.port = self.port
        self.schedulers: list[LcmProcess] = []

    async def prepare(self) -> None:
        store = SqliteStore(self.folder / "lcm.db")
        await store.open([WORKERS])
        workers = [a_ready_worker(number, aws_region="us-east-1") for number in range(1, FLEET + 1)]
        await store.commit(
            [
                Put(
                    WORKERS,
                    each.id,
                    each.model_dump_json().encode(),
                    None,
                    worker_fields(each),
                    worker_unique_keys(each),
                )
                for each in workers
            ]
        )
        await store.close()
        self.plane.start()
        await until(lambda: self.plane.get("/ready")[0] == 200, "the control plane is ready")
        async with self.client(CONTROLLER) as client:
            await client.internal.announce_leadership(Leader("worker-controller", 1), startup_sweep_done=True)
        async with self.client(ADMIN) as client:
            wish = needs(cpu=1, memory=1, ports=("SSH", "WEB"))
            body = CreateDefinitionRequest(name="lab", version="1", topology=TOPOLOGY, requirements=wish)
            await client.definitions.create(body)

    def client(self, token: str) -> Client:
        return Client(f"http://127.0.0.1:{self.port}", token)

    def scheduler(self, name: str) -> LcmProcess:
        port = free_ports(1)[0]
        env = {**self.env, "RESOURCE_SCHEDULER_PORT": str(port), "WORKER_CONTROLLER_INSTANCE_ID": name}
        process = LcmProcess(self.folder, name, "resource-scheduler", env=env, forked=False)
        process.port = port
        self.schedulers.append(process)
        return process.start()

    async def make(self, count: int) -> None:
        async with self.client(ADMIN) as client:
            slots = asyncio.Semaphore(8)

            async def one() -> None:
                async with slots:
                    await client.lablets.create(CreateLabletRequest(definition="lab"))

            await asyncio.gather(*(one() for _ in range(count)))

    async def books(self) -> tuple[list[Lablet], list[Worker]]:
        async with self.client(CONTROLLER) as client:
            lablets = [each async for each in client.internal.lablets()]
            return lablets, [each async for each in client.internal.workers()]

    async def placed(self) -> int:
        lablets, _ = await self.books()
        return sum(each.status is LabletStatus.SCHEDULED for each in lablets)


async def until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


@pytest.fixture
def platform(tmp_path: Path, etcd_server: EtcdServer, request: pytest.FixtureRequest) -> Iterator[Platform]:
    made = Platform(tmp_path, etcd_server, request.node.name)
    yield made
    for process in (*made.schedulers, made.plane):
        process.end()


async def until_placed(platform: Platform, count: int) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while await platform.placed() < count:
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{await platform.placed()} of {count} were placed") from None


async def test_two_schedulers_one_of_them_frozen_and_stale(platform: Platform) -> None:
    """A leader that was frozen resumes after another has led for a while: nothing is reserved twice."""
    await platform.prepare()
    first = platform.scheduler("first")
    await until(lambda: first.is_leader, "the first leads")
    making = asyncio.create_task(platform.make(30))
    await until_placed(platform, 5)
    first.signal(signal.SIGSTOP)
    await making
    second = platform.scheduler("second")
    await until(lambda: second.is_leader, "the second leads")
    await until_placed(platform, 30)
    making = asyncio.create_task(platform.make(50))
    await until_placed(platform, 40)
    first.signal(signal.SIGCONT)
    await making
    await until_placed(platform, 80)
    await platform.make(5)  # more than fit: 10 workers of 8 cores, and 80 lablets of one
    await asyncio.sleep(3)  # a slow host sees less of what must not happen, never a failure
    lablets, workers = await platform.books()
    fleet = [each for each in workers if each.id.startswith("w-00")]
    assert [each.allocation.cpu_cores for each in fleet] == [8.0] * FLEET
    ports = [(lablet.worker_id, port) for lablet in lablets for port in lablet.ports.values()]
    assert len(ports) == len(set(ports)) == 160
    for worker in fleet:
        mine = [lablet for lablet in lablets if lablet.worker_id == worker.id]
        assert len(mine) == worker.allocation.lablets == 8
    assert len([each for each in workers if each.id not in {known.id for known in fleet}]) <= 3
    # Read one after the other, both may have led in turn: in the end exactly one leads.
    await until(lambda: first.is_leader != second.is_leader, "exactly one leads")


async def test_a_signal_stops_the_process(platform: Platform) -> None:
    await platform.prepare()
    scheduler = platform.scheduler("only")
    await until(lambda: scheduler.is_leader, "it leads")
    status, info = scheduler.get("/info")
    assert (status, info["service"], info["instance_id"]) == (200, "resource-scheduler", "only")
    await until(lambda: scheduler.get("/ready")[0] == 200, "it is ready")
    scheduler.signal(signal.SIGTERM)
    assert scheduler.wait() == 0
    assert "resource scheduler only" in scheduler.log_path.read_text()


def test_a_token_is_required(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lcm", "resource-scheduler"],
        cwd=ROOT,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 2
    assert "LCM_CONTROLLER_TOKEN" in done.stderr
