"""1,000 lablets onto 100 workers: control plane and scheduler as processes, SQLite FULL, a real etcd, real HTTP."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.output import report
from lcm.client import Client
from lcm.client.base import Leader
from lcm.control_plane.records.kinds import WORKERS, worker_fields, worker_unique_keys
from lcm.control_plane.store.port import Put
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.controllers.scheduler.config import SchedulerConfig
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, Lablet, LabletRequirements
from lcm.model.lablet.scheduling.planner import make_plan
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.record import Worker
from lcm.model.worker.status import LicenseStatus, WorkerStatus
from lcm.model.worker.template import DEFAULT_TEMPLATES, Capacity
from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.processes import LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

LABLETS = 1_000
FLEET = 100
LARGE = 10_000
TOKEN = "bootstrap-token-for-benchmarks-0123456789"
CONTROLLER = "controller-token-for-benchmarks-0123456789"
TOPOLOGY = "lab: {title: t}\nnodes: [{id: n0, label: a, node_definition: alpine}]\n"
_SINCE = datetime(2026, 1, 17, 10, 30, tzinfo=UTC)
_READY = Condition(type=ConditionType.CML_READY, status=ConditionStatus.TRUE, since=_SINCE)
_SIZE = Capacity(cpu_cores=12, memory_gb=48.0, storage_gb=500.0, max_nodes=100)


def worker(number: int) -> Worker:
    """A worker that accepts lablets."""
    return Worker(
        id=f"w-{number:012}",
        name=f"worker-{number:05}",
        template_name="large",
        aws_region="us-east-1",
        status=WorkerStatus.RUNNING,
        status_since=_SINCE,
        conditions=(_READY,),
        instance_id=f"i-{number:017x}",
        license_status=LicenseStatus.REGISTERED,
        has_license_token=True,
        capacity=_SIZE,
        cost_per_hour_usd=0.0832,
        cml_version="2.9.0",
        node_definitions=("alpine", "iosv"),
        created_at=_SINCE,
        updated_at=_SINCE,
    )


def requirements(number: int) -> LabletRequirements:
    """One of five sizes."""
    return LabletRequirements(
        cpu_cores=0.5 + number % 5 * 0.25, memory_gb=1.0 + number % 5, nodes=2, ports=("SSH", "WEB")
    )


async def fill(path: Path) -> None:
    store = SqliteStore(path)
    await store.open([WORKERS])
    made = [worker(number) for number in range(FLEET)]
    puts = [
        Put(WORKERS, each.id, each.model_dump_json().encode(), None, worker_fields(each), worker_unique_keys(each))
        for each in made
    ]
    await store.commit(puts)
    await store.close()


async def make_lablets(people: Client) -> None:
    for number in range(5):
        body = CreateDefinitionRequest(
            name=f"lab-{number}", version="1", topology=TOPOLOGY, requirements=requirements(number)
        )
        await people.definitions.create(body)
    slots = asyncio.Semaphore(8)

    async def one(number: int) -> None:
        async with slots:
            await people.lablets.create(CreateLabletRequest(definition=f"lab-{number % 5}"))

    await asyncio.gather(*(one(number) for number in range(LABLETS)))


async def measure(port: int, scheduler: LcmProcess) -> None:
    address = f"http://127.0.0.1:{port}"
    people, controller = Client(address, TOKEN), Client(address, CONTROLLER)
    await make_lablets(people)
    scheduler.start()
    await asyncio.to_thread(wait_until, lambda: scheduler.is_leader, "the scheduler leads")
    await asyncio.to_thread(wait_until, lambda: _told(scheduler, "lablets_pending") == LABLETS, "it has listed them")
    began = time.perf_counter()
    await controller.internal.announce_leadership(Leader("worker-controller", 1), startup_sweep_done=True)
    await asyncio.to_thread(wait_until, lambda: _told(scheduler, "lablets_placed") == LABLETS, "all are placed")
    took = time.perf_counter() - began
    placed = [lablet async for lablet in people.lablets.list(status=[LabletStatus.SCHEDULED])]
    assert len(placed) == LABLETS
    _check_books(placed, [each async for each in controller.internal.workers()])
    report(
        "placement: 1,000 lablets onto 100 workers, all reserved",
        took,
        "s",
        aim="5",
        beside="up to 0.25 s of it waiting",
    )
    await people.aclose()
    await controller.aclose()


def _told(scheduler: LcmProcess, name: str) -> int:
    status, body = scheduler.get("/health")
    return int(body[name]) if status == 200 else -1


def _check_books(placed: Sequence[Lablet], workers: Sequence[Worker]) -> None:
    ports = [(lablet.worker_id, number) for lablet in placed for number in lablet.ports.values()]
    assert len(set(ports)) == len(ports) == 2 * LABLETS
    assert sum(each.allocation.lablets for each in workers) == LABLETS
    assert all(each.allocation.cpu_cores <= _SIZE.cpu_cores for each in workers)


def planning() -> None:
    """The planner alone, on a fleet a hundred times as large."""
    now = datetime.now(UTC)
    pending = [
        Lablet(
            id=f"l-{number:04}",
            name=f"l-{number}",
            owner="ada",
            definition="lab@1",
            requirements=requirements(number),
            status_since=now,
            created_at=now,
            updated_at=now,
        )
        for number in range(LABLETS)
    ]
    workers = [worker(number) for number in range(LARGE)]
    began = time.perf_counter()
    made = make_plan(pending, workers, DEFAULT_TEMPLATES, now=now, config=SchedulerConfig())
    took = time.perf_counter() - began
    assert len(made.placed) == LABLETS
    report("placement: one plan for 1,000 lablets on 10,000 workers", took, "s", aim="1")


def main() -> None:
    planning()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        etcd = EtcdServer(folder / "etcd").start()
        port, own = free_ports(2)
        env = {
            "ETCD_ENDPOINTS": etcd.endpoint,
            "CONTROL_PLANE_PORT": str(port),
            "CONTROL_PLANE_API_URL": f"http://127.0.0.1:{port}",
            "RESOURCE_SCHEDULER_PORT": str(own),
            "LCM_BOOTSTRAP_TOKEN": TOKEN,
            "LCM_CONTROLLER_TOKEN": CONTROLLER,
            "STORE_URL": f"sqlite:///{folder / 'lcm.db'}",
            "LOG_LEVEL": "warning",
        }
        plane = LcmProcess(folder, "plane", "control-plane", env=env)
        scheduler = LcmProcess(folder, "scheduler", "resource-scheduler", env=env)
        plane.port, scheduler.port = port, own
        try:
            asyncio.run(fill(folder / "lcm.db"))
            plane.start()
            wait_until(lambda: plane.get("/ready")[0] == 200, "the control plane is ready")
            asyncio.run(measure(port, scheduler))
        except AssertionError:
            print(json.dumps({each.name: each.log_path.read_text()[-2000:] for each in (plane, scheduler)}))
            raise
        finally:
            scheduler.end()
            plane.end()
            etcd.stop()
