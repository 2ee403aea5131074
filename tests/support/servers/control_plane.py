"""A real control plane as a process, a stand-in for the worker controller, and the `lcm` command against it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lcm.client import Client, Leader
from lcm.core import clock
from lcm.model.audit import DecisionReport
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.requests import MetricsBatch, WorkerStatusUpdate
from lcm.model.worker.status import WorkerStatus
from tests.support.run import watchdog
from tests.support.servers.etcd import free_ports
from tests.support.servers.forked_lcm import fork_server
from tests.support.servers.processes import LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lcm.model.worker.record import Worker
    from tests.support.servers.etcd import EtcdServer

ADMIN = "bootstrap-token-for-tests-0123456789"
CONTROLLER = "controller-token-for-tests-0123456789"
_LEADER = Leader("worker-controller", 7)
_BOOT = (WorkerStatus.PROVISIONING, WorkerStatus.STARTING, WorkerStatus.RUNNING)


class ControlPlaneProcess:
    """One control-plane process, and the `lcm` command against it."""

    def __init__(self, folder: Path, etcd: EtcdServer, namespace: str, **more: str) -> None:
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        settings = {
            "ETCD_ENDPOINTS": etcd.endpoint,
            "ETCD_NAMESPACE": f"/{namespace}",
            "CONTROL_PLANE_PORT": str(self.port),
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
            "LCM_CONTROLLER_TOKEN": CONTROLLER,
            "AWS_REGION_CONFIGS": '{"eu-west-1": {}, "us-east-1": {}}',
            "AWS_DEFAULT_REGION": "eu-west-1",
            **more,
        }
        self.process = LcmProcess(folder, "plane", "control-plane", env=settings)
        self.process.port = self.port

    def start(self) -> ControlPlaneProcess:
        self.process.start()
        wait_until(lambda: self.process.get("/ready")[0] == 200, "the control plane is ready")
        return self

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of `lcm`, without that of the test run."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", watchdog.VARIABLE) if name in os.environ}
        plain = {"HOME": str(self.home), "LCM_URL": self.url, "LCM_TOKEN": ADMIN, "PYTHONUTF8": "1", "TZ": "UTC"}
        return {**kept, **plain, **more}

    def lcm(
        self, *arguments: str, check: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command without a terminal."""
        with TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            command = fork_server().start(arguments, self.environment(**env or {}), out=str(out), err=str(err))
            code = command.wait(180)
            done = subprocess.CompletedProcess(arguments, code, out.read_text("utf-8"), err.read_text("utf-8"))
        assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def ask(self, question: Callable[[Client], Awaitable[Any]], token: str = ADMIN) -> Any:
        """Make a client call from outside any event loop."""

        async def call() -> Any:
            async with Client(self.url, token, with_metrics=False) as client:
                return await question(client)

        return asyncio.run(call())

    def worker(self, name: str) -> Worker:
        """The newest worker of this name."""

        async def find(client: Client) -> Worker:
            found = [worker async for worker in client.workers.list(q=name, sort="-created_at") if worker.name == name]
            return found[0]

        return self.ask(find)  # type: ignore[no-any-return]


class FakeWorkerController:
    """Reports like a worker controller without a cloud, one step at a time."""

    def __init__(self, plane: ControlPlaneProcess) -> None:
        self._plane = plane
        self._lead()

    def _lead(self) -> None:
        self._plane.ask(lambda client: client.internal.announce_leadership(_LEADER), CONTROLLER)

    def report(self, name: str, status: WorkerStatus, reason: str = "seen on EC2", **fields: Any) -> Worker:
        """A status write that must succeed."""
        worker = self._plane.worker(name)
        write = WorkerStatusUpdate(status=status, version=worker.version, reason=reason, **fields)
        return self._plane.ask(  # type: ignore[no-any-return]
            lambda client: client.internal.write_status(_LEADER, worker.id, write), CONTROLLER
        )

    def boot(self, name: str, *, ready: bool = True) -> Worker:
        """Bring a worker up until CML responds."""
        worker = self._plane.worker(name)
        for status in _BOOT:
            fields: dict[str, Any] = {}
            if status is WorkerStatus.PROVISIONING:
                fields["instance_id"] = f"i-{worker.id.removeprefix('w-')}"
            if status is WorkerStatus.RUNNING:
                fields["public_ip"] = "192.0.2.7"
            worker = self.report(name, status, "the instance is coming up", **fields)
        return self.cml(name, ready=ready)

    def cml(self, name: str, *, ready: bool = True) -> Worker:
        """Report whether CML responds, with the decision."""
        now = clock.now()
        status = ConditionStatus.TRUE if ready else ConditionStatus.FALSE
        message = "CML 2.9.0 responds" if ready else "connection refused"
        said = Condition(type=ConditionType.CML_READY, status=status, reason="Asked", message=message, since=now)
        decision = DecisionReport(
            rule="running.steady" if ready else "running.booting",
            reason="the worker runs and CML responds" if ready else "the instance runs, CML does not respond yet",
            decided_at=now,
            next_look_at=clock.after(30),
        )
        return self.report(name, WorkerStatus.RUNNING, "CML was checked", conditions=(said,), decision=decision)

    def measure(self, name: str, cpu: float = 41.0, labs: int = 2, nodes: int = 9) -> None:
        """Report current metrics."""
        worker = self._plane.worker(name)
        assert worker.instance_id is not None
        sample = MetricsSample(
            worker_id=worker.id,
            instance_id=worker.instance_id,
            collected_at=clock.now(),
            cpu_utilization=cpu,
            memory_utilization=63.0,
            disk_utilization=22.0,
            labs_count=labs,
            nodes_count=nodes,
            running_nodes=nodes,
        )
        self._plane.ask(
            lambda client: client.internal.write_metrics(_LEADER, MetricsBatch(items=(sample,))), CONTROLLER
        )
