"""A control plane as a process without controllers: the test acts as the users and as the controller."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx

from lcm.core import clock
from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.processes import ONE_REQUEST_EACH, LcmProcess, wait_until

if TYPE_CHECKING:
    from pathlib import Path

ADMIN = "bootstrap-token-for-tests-0123456789"
CONTROLLER = "controller-token-for-tests-0123456789"
LEADER = {"X-LCM-Controller": "worker-controller", "X-LCM-Leader-Term": "5"}
REGIONS = ("eu-west-1", "us-east-1", "ap-southeast-2")

_READY = ("InstanceReady", "CmlReady", "Licensed")


class ScriptedControlPlane:
    """The process, its etcd, and requests to it."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.plane_port = free_ports(1)[0]
        self._etcd = EtcdServer(folder / "etcd")
        self._folder = folder
        self._settings = {
            "CONTROL_PLANE_PORT": str(self.plane_port),
            "LCM_DATA_DIR": str(folder / "data"),
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
            "LCM_CONTROLLER_TOKEN": CONTROLLER,
            "AWS_REGION_CONFIGS": "{" + ",".join(f'"{region}":{{}}' for region in REGIONS) + "}",
            **env,
        }
        self.process: LcmProcess | None = None
        self._http = httpx.Client(base_url=self.url, timeout=60, limits=ONE_REQUEST_EACH)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.plane_port}"

    def add_settings(self, **settings: str) -> None:
        """Environment variables for the next start."""
        self._settings |= settings

    def start(self) -> ScriptedControlPlane:
        """Start it with its etcd, also after a stop."""
        if self.process is None:
            self._etcd.start()
        settings = {**self._settings, "ETCD_ENDPOINTS": self._etcd.endpoint}
        self.process = LcmProcess(self._folder, "plane", "control-plane", env=settings)
        self.process.start()
        wait_until(self._responds, "the control plane is ready")
        self.controller("POST", "/api/internal/leadership", {"term": 5, "startup_sweep_done": True})
        return self

    def stop(self) -> None:
        """Kill it; the store stays."""
        assert self.process is not None
        self.process.end()

    def close(self) -> None:
        """Stop it for good."""
        self.stop()
        self._etcd.stop()
        self._http.close()

    def ask(self, method: str, path: str, body: object = None, token: str = ADMIN, **headers: str) -> Any:
        """One request as admin that must succeed."""
        headers = {"Authorization": f"Bearer {token}", **headers}
        response = self._http.request(method, path, json=body, headers=headers)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return response.json() if response.content else None

    def controller(self, method: str, path: str, body: object = None) -> Any:
        """One request as the leading controller that must succeed."""
        return self.ask(method, path, body, CONTROLLER, **LEADER)

    def create(self, name: str, **body: Any) -> dict[str, Any]:
        """Create a worker."""
        made: dict[str, Any] = self.ask("POST", "/api/workers", {"name": name, "template_name": "small", **body})
        return made

    def command(self, worker: dict[str, Any], name: str, body: object = None) -> dict[str, Any]:
        """Send a command to a worker."""
        changed: dict[str, Any] = self.ask("POST", f"/api/workers/{worker['id']}/{name}", body)
        return changed

    def worker(self, worker: dict[str, Any]) -> dict[str, Any]:
        """The current record."""
        now: dict[str, Any] = self.ask("GET", f"/api/workers/{worker['id']}")
        return now

    def report(self, worker: dict[str, Any], status: str, **body: Any) -> dict[str, Any]:
        """Write a status as the controller."""
        update = {"status": status, "version": self.worker(worker)["version"], "reason": "seen", **body}
        written: dict[str, Any] = self.controller("POST", f"/api/internal/workers/{worker['id']}/status", update)
        return written

    def running(self, name: str, **body: Any) -> dict[str, Any]:
        """A running worker whose CML responds."""
        worker = self.create(name, **body)
        self.report(worker, "PROVISIONING", instance_id=worker["id"].replace("w-", "i-"))
        self.report(worker, "STARTING")
        self.report(worker, "RUNNING", public_ip="192.0.2.7", private_ip="10.0.0.7")
        return self.report(worker, "RUNNING", conditions=[condition(kind) for kind in _READY])

    def stopped(self, name: str, **body: Any) -> dict[str, Any]:
        """A worker that a user stopped."""
        worker = self.running(name, **body)
        self.command(worker, "stop")
        self.report(worker, "STOPPING")
        return self.report(worker, "STOPPED")

    def failed(self, name: str, reason: str = "InsufficientInstanceCapacity", **body: Any) -> dict[str, Any]:
        """A worker whose launch failed."""
        return self.report(self.create(name, **body), "FAILED", reason=reason)

    def measured(self, worker: dict[str, Any], count: int = 40) -> None:
        """Metrics samples of the last minutes up to now."""
        instance = self.worker(worker)["instance_id"]
        items = [
            {
                "worker_id": worker["id"],
                "instance_id": instance,
                "collected_at": (clock.now() - timedelta(minutes=count - 1 - number)).isoformat(),
                "cpu_utilization": 20.0 + number % 30,
                "memory_utilization": 55.0,
                "disk_utilization": 31.0,
                "labs_count": number % 4,
                "nodes_count": 6,
                "running_nodes": 4,
                "cml_version": "2.9.0",
            }
            for number in range(count)
        ]
        self.controller("POST", "/api/internal/workers/metrics", {"items": items})

    def decided(self, worker: dict[str, Any], reason: str, *actions: str, rule: str = "running.steady") -> None:
        """Report a decision as the controller."""
        decision = {"rule": rule, "reason": reason, "actions": actions, "decided_at": clock.now().isoformat()}
        self.controller(
            "POST",
            "/api/internal/workers/decisions",
            {"items": [{"worker_id": worker["id"], "decision": decision}]},
        )

    def _responds(self) -> bool:
        assert self.process is not None
        assert self.process.running, self.process.log_path.read_text()
        try:
            return self._http.get("/ready").status_code == 200
        except httpx.TransportError:
            return False


def condition(kind: str, status: str = "True", reason: str = "Seen", message: str = "") -> dict[str, str]:
    """A condition of a worker that starts now."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "since": clock.now().isoformat()}
