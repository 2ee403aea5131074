"""Lablets on real parts: etcd, the control plane on SQLite and lablet controllers as processes, CML behind TLS.

Workers are records that the test writes in the name of a worker controller: their CML servers are simulators in the
process of the test. What the lablet controllers say to the control plane goes through a gate, where it can be held.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from lcm.cml.client.labs import marker_in_title
from lcm.cml.client.tls import fingerprint
from lcm.cml.simulator import SimulatorFarm
from lcm.cml.simulator.state.world import SimulatorSettings
from lcm.core import clock
from tests.support.network.http_gate import HttpGate, LoopThread
from tests.support.real.worker_platform import ADMIN, CONTROLLER, PATIENCE, TTL, terms
from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.processes import ONE_REQUEST_EACH, LcmProcess, wait_until
from tests.support.virtual.lablet_platform import TOPOLOGY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lcm.cml.simulator.state.labs import Lab
    from tests.support.network.http_gate import Hold

_SETTINGS = SimulatorSettings(boot_seconds=0.0, login_seconds=0.0, speed=20.0)
_WORKERS = {"X-LCM-Controller": "worker-controller", "X-LCM-Leader-Term": "1"}
_SCHEDULER = {"X-LCM-Controller": "resource-scheduler", "X-LCM-Leader-Term": "1"}


class RealLablets:
    """The parts, and actions of tests."""

    def __init__(self, folder: Path, etcd: EtcdServer, loop: LoopThread) -> None:
        self.loop = loop
        self.farm = SimulatorFarm(_SETTINGS)
        self._folder = folder
        self._port = free_ports(1)[0]
        self._number = 0
        self.gate = HttpGate(self._port)
        loop.run(self.gate.open())
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=60.0, limits=ONE_REQUEST_EACH)
        self._env = {
            "ETCD_ENDPOINTS": etcd.endpoint,
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
            "LCM_CONTROLLER_TOKEN": CONTROLLER,
        }
        plane = {"CONTROL_PLANE_PORT": str(self._port)}
        self.plane = LcmProcess(folder, "plane", "control-plane", env={**self._env, **plane})
        self.controllers: dict[str, LcmProcess] = {}

    def start(self, *names: str) -> RealLablets:
        """The control plane, lablet controllers of these names, and a definition."""
        self.plane.start()
        wait_until(self._plane_ready, "the control plane is ready", PATIENCE)
        for headers in (_WORKERS, _SCHEDULER):
            self.write("leadership", headers, {"term": 1, "startup_sweep_done": True})
        needs = {"license": False, "cpu_cores": 0.5, "nodes": 2, "ports": ["CONSOLE"]}
        body = {"name": "exercise", "version": "1", "topology": TOPOLOGY, "requirements": needs}
        self.ask("POST", "/api/lablet-definitions", json=body)
        for name in names:
            self.start_controller(name)
        return self

    def start_controller(self, name: str) -> None:
        """Start a lablet controller, or restart one that has ended."""
        if name not in self.controllers:
            overrides = {
                "CONTROL_PLANE_API_URL": self.gate.url,
                "CML_DEFAULT_PASSWORD": _SETTINGS.password,
                "LEADER_LEASE_TTL": str(TTL),
                "RETRY_INTERVAL": "1",
                "RECONCILE_INTERVAL": "1",
                "INITIAL_DELAY": "0.1",
            }
            process = LcmProcess(self._folder, name, "lablet-controller", env={**self._env, **overrides})
            process._env["LABLET_CONTROLLER_PORT"] = str(process.port)
            self.controllers[name] = process
        self.controllers[name].start()

    def close(self) -> None:
        """Stop everything that was started here."""
        for process in (*self.controllers.values(), self.plane):
            process.end()
        self.loop.run(self.gate.close())
        self.loop.run(self.farm.stop())
        self._http.close()

    def until_led(self) -> LcmProcess:
        """Wait until one leads and the other is ready to take over."""
        found: list[LcmProcess] = []

        def led() -> bool:
            running = [process for process in self.controllers.values() if process.running]
            found[:] = [process for process in running if process.is_leader]
            ready = [process for process in running if process.get("/ready")[0] == 200]
            return len(found) == 1 and len(ready) == len(self.controllers)

        wait_until(led, "one leads and the other stands by", PATIENCE)
        return found[0]

    def kill_at(self, hold: Hold) -> LcmProcess:
        """SIGKILL the controller that has reached this step; what is held does not continue."""
        exchange = hold.wait()
        assert exchange is not None
        found: list[LcmProcess] = []

        def known() -> bool:
            found[:] = [one for one in self.controllers.values() if exchange.term in terms(one)]
            return bool(found)

        wait_until(known, "the log says who leads in the term of the request", PATIENCE)
        (killed,) = found
        killed.signal(signal.SIGKILL)
        killed.wait()
        hold.drop()
        return killed

    # Workers and lablets

    def worker(self) -> str:
        """A worker that is ready, with a CML server behind TLS."""
        self._number += 1
        name = f"w{self._number}"
        server = self.loop.run(self.farm.add(name))
        address, certificate = server.url.removeprefix("https://"), fingerprint(server.identity.pem)
        made = self.ask("POST", "/api/workers", json={"name": name, "template_name": "large"})
        path = f"workers/{made['id']}/status"
        ready = {"type": "CmlReady", "status": "True", "since": clock.now().isoformat()}
        for status, fields in (
            ("PROVISIONING", {"instance_id": f"i-{name}"}),
            ("STARTING", {}),
            ("RUNNING", {"public_ip": address, "conditions": [ready], "cml_certificate": certificate}),
        ):
            body = {"status": status, "version": made["version"], "reason": "observed", **fields}
            made = self.write(path, _WORKERS, body)
        worker_id: str = made["id"]
        return worker_id

    def lablet(self, worker_id: str) -> str:
        """A lablet that is placed on a worker."""
        made = self.ask("POST", "/api/lablets", json={"definition": "exercise"})
        item = {
            "lablet_id": made["id"],
            "version": made["version"],
            "worker_id": worker_id,
            "placement": {"at": clock.now().isoformat(), "worker_id": worker_id, "reason": "the only one"},
        }
        (done,) = self.write("lablets/schedule", _SCHEDULER, {"items": [item]})["items"]
        assert done["placed"], done
        lablet_id: str = made["id"]
        return lablet_id

    def until(self, lablet_id: str, status: str) -> dict[str, Any]:
        """Wait for a status."""
        last: dict[str, Any] = {}

        def reached() -> bool:
            last.update(self.ask("GET", f"/api/lablets/{lablet_id}"))
            return bool(last["status"] == status)

        try:
            wait_until(reached, f"{lablet_id} is {status}", PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}") from error
        return last

    def labs(self) -> list[Lab]:
        """All labs of all servers that carry a marker of ours."""

        async def read() -> list[Lab]:
            worlds = [self.farm[address].world for address in self.farm.addresses]
            for world in worlds:
                world.time.advance()
            return [lab for world in worlds for lab in world.labs.all if marker_in_title(lab.plan.title)]

        return self.loop.run(read())

    def imports(self) -> int:
        """All labs that were created."""
        return sum(self.farm[address].world.labs.imported for address in self.farm.addresses)

    def ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """As an admin, not through the gate."""
        headers = {"Authorization": f"Bearer {ADMIN}"}
        response = self._http.request(method, path, headers=headers, **options)
        assert response.status_code < 300, response.text
        result: dict[str, Any] = response.json()
        return result

    def write(self, path: str, leader: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        """As a controller, not through the gate."""
        headers = {"Authorization": f"Bearer {CONTROLLER}", **leader}
        response = self._http.post(f"/api/internal/{path}", headers=headers, json=body)
        assert response.status_code < 300, response.text
        result: dict[str, Any] = response.json()
        return result

    def _plane_ready(self) -> bool:
        try:
            return self._http.get("/ready").status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def real_lablets(folder: Path, *names: str) -> Iterator[RealLablets]:
    """All parts, running; lablet controllers of these names."""
    with ExitStack() as stack:
        loop = stack.enter_context(LoopThread())
        etcd = EtcdServer(folder / "etcd")
        stack.callback(etcd.stop)
        etcd.start()
        platform = RealLablets(folder, etcd, loop)
        stack.callback(platform.close)
        yield platform.start(*names)
