"""A control plane to measure: a separate process on SQLite or mongod and a real etcd, with 10,000 workers."""

from __future__ import annotations

import asyncio
import tempfile
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.store import REGIONS, fill
from benchmarks.store import WORKERS as MANY
from benchmarks.support import process as proc
from lcm.control_plane.records.kinds import WORKERS, worker_fields, worker_unique_keys
from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.port import Put
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from lcm.model.worker.template import Capacity
from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.mongod import MongoServer
from tests.support.servers.processes import LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lcm.control_plane.store.port import Store

TOKEN = "bootstrap-token-for-benchmarks-0123456789"
STATUSES = (
    WorkerStatus.RUNNING,
    WorkerStatus.STOPPED,
    WorkerStatus.PENDING,
    WorkerStatus.TERMINATED,
    WorkerStatus.FAILED,
)
_SINCE = datetime(2026, 1, 17, 10, 30, tzinfo=UTC)
_SIZE = Capacity(cpu_cores=48, memory_gb=96.0, storage_gb=512.0, max_nodes=200)
_CONDITIONS = tuple(
    Condition(type=kind, status=ConditionStatus.TRUE, reason="Seen", message="as it should be", since=_SINCE)
    for kind in (ConditionType.INSTANCE_READY, ConditionType.CML_READY, ConditionType.LICENSED)
)


def worker_id(number: int) -> str:
    """The id of a worker."""
    return f"w-{number:012}"


def record(number: int) -> Put:
    """A worker record as the control plane writes it."""
    status = STATUSES[number % len(STATUSES)]
    worker = Worker(
        id=worker_id(number),
        name=f"worker-{number:05}",
        template_name=("small", "medium", "large")[number % 3],
        aws_region=REGIONS[number % len(REGIONS)],
        aws_account_id="123456789012",
        status=status,
        status_since=_SINCE,
        desired_status=DesiredStatus.STOPPED if status is WorkerStatus.STOPPED else DesiredStatus.RUNNING,
        conditions=_CONDITIONS if status is WorkerStatus.RUNNING else (),
        instance_id=f"i-{number:017x}",
        instance_type="c5.12xlarge",
        ami_id="ami-0123456789abcdef0",
        public_ip="192.0.2.7",
        private_ip="10.0.0.7",
        launch_attempt=1,
        tags={f"tag-{tag}": f"value {tag} of a worker" for tag in range(8)},
        capacity=_SIZE,
        cost_per_hour_usd=2.04,
        cml_version="2.9.0",
        last_activity_at=_SINCE,
        last_resumed_at=_SINCE,
        created_at=_SINCE,
        updated_at=_SINCE,
    )
    body = worker.model_dump_json().encode()
    return Put(WORKERS, worker.id, body, None, worker_fields(worker), worker_unique_keys(worker))


@dataclass(frozen=True, slots=True)
class Served:
    """The address and the process of the control plane."""

    port: int
    pid: int
    etcd: str
    folder: Path
    told: Mapping[str, str]

    @property
    def rss(self) -> float:
        """Resident memory in MiB."""
        return proc.rss(self.pid)

    def figure(self, name: str) -> float:
        """The value of one of its metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


@contextmanager
def served_plane(
    record: Callable[[int], Put] = record, count: int = MANY, mongo: bool = False, /, **env: str
) -> Iterator[Served]:
    """Start it and wait until it is ready and idle. `record` makes each worker from its number."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as ended:
        folder = Path(name)
        store: Store = SqliteStore(folder / "lcm.db")
        store_url = f"sqlite:///{folder / 'lcm.db'}"
        if mongo:
            server = MongoServer(folder / "mongod").start()
            ended.callback(server.kill)
            store, store_url = MongoStore(server.uri, "lcm"), server.uri
        etcd = EtcdServer(folder / "etcd").start()
        port = free_ports(1)[0]
        told = {
            "ETCD_ENDPOINTS": etcd.endpoint,
            "CONTROL_PLANE_PORT": str(port),
            "LCM_BOOTSTRAP_TOKEN": TOKEN,
            "STORE_URL": store_url,
            **env,
        }
        process = LcmProcess(folder, "plane", "control-plane", env=told)
        process.port = port
        try:
            asyncio.run(_fill(store, record, count))
            process.start()
            served = Served(port, process.pid, etcd.endpoint, folder, told)
            wait_until(lambda: process.get("/ready")[0] == 200, "the control plane is ready")
            # Wait for the mirror: while it writes a key per worker to etcd, it would dominate the measurement.
            _wait_for_mirror(served)
            yield served
        finally:
            process.end()
            etcd.stop()


@contextmanager
def one_more(first: Served) -> Iterator[Served]:
    """Another control plane on the same store and the same etcd."""
    port = free_ports(1)[0]
    told = {**first.told, "CONTROL_PLANE_PORT": str(port), "LCM_DATA_DIR": str(first.folder / "second")}
    process = LcmProcess(first.folder, "second", "control-plane", env=told)
    process.port = port
    try:
        process.start()
        wait_until(lambda: process.get("/ready")[0] == 200, "the second control plane is ready")
        yield Served(port, process.pid, first.etcd, first.folder, told)
    finally:
        process.end()


async def _fill(store: Store, record: Callable[[int], Put], count: int) -> None:
    await store.open([WORKERS])
    await fill(store, record, count)
    await store.close()


def _wait_for_mirror(served: Served) -> None:
    """Wait for as long as it makes progress: on a busy machine ten thousand keys take minutes."""
    while not _mirrored(served):
        wait_until(
            partial(_mirrors_more, served, served.figure("lcm_mirror_written_total")),
            "the mirror writes one more worker",
            patience=120.0,
        )


def _mirrors_more(served: Served, written: float) -> bool:
    return _mirrored(served) or served.figure("lcm_mirror_written_total") > written


def _mirrored(served: Served) -> bool:
    return served.figure("lcm_mirror_comparisons_total") >= 1 and served.figure("lcm_mirror_pending") == 0
