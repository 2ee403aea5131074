"""Lablets on real parts only: etcd, the control plane on SQLite and one controller of each kind as processes.

AWS is patched moto behind HTTP and CML servers are simulators behind TLS, both in the process of the test.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx

from lcm.core import clock
from tests.support.aws.conformance_aws import ACCOUNT, AwsBed
from tests.support.aws.credentials import CREDENTIALS, REGION, dummy_credentials
from tests.support.network.http_gate import LoopThread
from tests.support.real.cml_on_moto import Machines
from tests.support.real.worker_platform import ADMIN, CONTROLLER
from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.processes import ONE_REQUEST_EACH, LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 300.0
_SPEED = 20.0
_CONTROLLERS = ("worker-controller", "resource-scheduler", "lablet-controller")


class RealWhole:
    """The parts, and actions of users."""

    def __init__(self, folder: Path, etcd: EtcdServer, aws: AwsBed, loop: LoopThread) -> None:
        self.aws = aws
        self.loop = loop
        self.machines = Machines(_SPEED)
        loop.run(self.machines.open())
        port = free_ports(1)[0]
        url = f"http://127.0.0.1:{port}"
        self._people = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {ADMIN}"},
            timeout=60.0,
            limits=ONE_REQUEST_EACH,
        )
        env = {
            **CREDENTIALS,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": aws.server.url,
            "ETCD_ENDPOINTS": etcd.endpoint,
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
            "LCM_CONTROLLER_TOKEN": CONTROLLER,
            "CONTROL_PLANE_API_URL": url,
            "CML_PROXY_URL": self.machines.proxy.url,
            "CML_DEFAULT_PASSWORD": "simulated",
            "LEADER_LEASE_TTL": "15",
            "RETRY_INTERVAL": "1",
            "RECONCILE_INTERVAL": "5",
            "INITIAL_DELAY": "0.1",
            "METRICS_COLLECT_INTERVAL": "5",
        }
        plane = {
            "CONTROL_PLANE_PORT": str(port),
            "MAX_WORKERS_PER_REGION": "60",
            "WORKER_AUTO_PAUSE_ENABLED": "false",
            "WORKER_AUTO_PAUSE_SNOOZE_MINUTES": "0",
            "IDLE_DETECTION_INTERVAL": "1",
        }
        self.plane = LcmProcess(folder, "plane", "control-plane", env={**env, **plane})
        self.controllers = [LcmProcess(folder, name, name, env=env) for name in _CONTROLLERS]

    def start(self) -> RealWhole:
        """Start the control plane only."""
        self.plane.start()
        wait_until(self._ready, "the control plane is ready", PATIENCE)
        return self

    def start_controllers(self) -> None:
        """Start the controllers: they find all earlier requests at once, however long those took."""
        for controller in self.controllers:
            controller.start()

    def close(self) -> None:
        """Stop everything that was started here."""
        for process in (*self.controllers, self.plane):
            process.end()
        self.loop.run(self.machines.close())
        self._people.close()

    def ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """As an admin."""
        response = self._people.request(method, path, **options)
        assert response.status_code < 300, response.text
        result: dict[str, Any] = response.json()
        return result

    def lablets(self) -> list[dict[str, Any]]:
        """All records."""
        items: list[dict[str, Any]] = self.ask("GET", "/api/lablets", params={"limit": 200})["items"]
        return items

    def workers(self) -> list[dict[str, Any]]:
        """All records."""
        items: list[dict[str, Any]] = self.ask("GET", "/api/workers", params={"limit": 200})["items"]
        return items

    def steps(self, lablet_id: str) -> list[str]:
        """The statuses that a lablet had, in order."""
        items = self.ask("GET", f"/api/lablets/{lablet_id}/history", params={"limit": 100})["items"]
        return [str(entry["to_status"]) for entry in items]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the predicate is true; on failure describe all records."""
        try:
            wait_until(condition, what, PATIENCE)
        except AssertionError as error:
            workers = [(each["name"], each["status"], each["allocation"]) for each in self.workers()]
            lablets = [(each["name"], each["status"], each["message"], each["placement"]) for each in self.lablets()]
            raise AssertionError(f"{error}: {workers}, {lablets}") from error

    def _ready(self) -> bool:
        try:
            return self._people.get("/ready").status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def real_whole(folder: Path) -> Iterator[RealWhole]:
    """All parts; the controllers are not started yet, and there is no worker."""
    with ExitStack() as stack:
        stack.enter_context(dummy_credentials())
        loop = stack.enter_context(LoopThread())
        etcd = EtcdServer(folder / "etcd")
        stack.callback(etcd.stop)
        etcd.start()
        aws = AwsBed()
        stack.callback(lambda: asyncio.run(aws.close()))
        aws._add_image("cml-2.9.1", ACCOUNT, clock.now() - timedelta(days=1), "available")
        whole = RealWhole(folder, etcd, aws, loop)
        stack.callback(whole.close)
        yield whole.start()
