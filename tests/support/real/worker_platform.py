"""The whole platform of real parts: mongod, three etcd nodes, the control plane and worker controllers as processes.

AWS is patched moto behind HTTP and CML servers are simulators behind TLS, both in the process of the test. What the
controllers say to the control plane and to AWS goes through gates, where it can be held.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx

from lcm.cloud.types import WORKER_TAG
from lcm.core import clock
from tests.support.aws.conformance_aws import ACCOUNT, AwsBed
from tests.support.aws.credentials import CREDENTIALS, REGION, dummy_credentials
from tests.support.aws.ec2_rules import RULES
from tests.support.network.http_gate import HttpGate, LoopThread
from tests.support.real.cml_on_moto import DEREGISTRATION, Machines
from tests.support.servers.etcd import EtcdCluster, free_ports
from tests.support.servers.mongod import MongoServer
from tests.support.servers.processes import ONE_REQUEST_EACH, LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.network.http_gate import Exchange, Hold

ADMIN = "bootstrap-token-for-tests-0123456789"
CONTROLLER = "controller-token-for-tests-0123456789"
TTL = 3
PATIENCE = 240.0


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a leader: just before a request is executed, or just before its response arrives."""

    where: str
    what: str
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'}-{self.what.replace(' ', '-')}"


def around(where: str, what: str) -> list[Step]:
    """The steps before and after a request."""
    return [Step(where, what, after) for after in (False, True)]


class RealPlatform:
    """The parts, and actions of tests."""

    def __init__(
        self,
        folder: Path,
        etcd: EtcdCluster,
        mongod: MongoServer,
        aws: AwsBed,
        loop: LoopThread,
        regions: Sequence[str],
        lease_ttl: int,
        pollers: int = 0,
        *,
        shared_reads: bool = False,
    ) -> None:
        self.aws = aws
        self._shared_reads = shared_reads
        self._pollers = pollers
        self._lease_ttl = lease_ttl
        self.loop = loop
        self.machines = Machines()
        self._folder = folder
        self._port = free_ports(1)[0]
        self._numbers = itertools.count(1)
        self._people = httpx.Client(
            base_url=f"http://127.0.0.1:{self._port}",
            headers={"Authorization": f"Bearer {ADMIN}"},
            timeout=60.0,
            limits=ONE_REQUEST_EACH,
        )
        self.plane_gate = HttpGate(self._port)
        self.aws_gate = HttpGate(aws.server.port)
        for part in (self.machines, self.plane_gate, self.aws_gate):
            loop.run(part.open())
        self._env = {
            **CREDENTIALS,
            "AWS_REGION_CONFIGS": json.dumps({region: {} for region in regions}),
            "ETCD_ENDPOINTS": ",".join(etcd.endpoints),
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
            "LCM_CONTROLLER_TOKEN": CONTROLLER,
        }
        plane = {
            "STORE_URL": mongod.uri,
            "CONTROL_PLANE_PORT": str(self._port),
            "WORKER_AUTO_PAUSE_SNOOZE_MINUTES": "0",
            "IDLE_DETECTION_INTERVAL": "1",
            "DISCOVERY_INTERVAL": "2",
        }
        self.plane = LcmProcess(folder, "plane", "control-plane", env={**self._env, **plane})
        self.controllers: dict[str, LcmProcess] = {}

    def close(self) -> None:
        """Stop everything that was started here."""
        for process in (*self.controllers.values(), self.plane):
            process.end()
        for part in (self.plane_gate, self.aws_gate, self.machines):
            self.loop.run(part.close())
        self._people.close()

    # Processes

    def start(self, *names: str) -> RealPlatform:
        """The control plane, and controllers of these names."""
        self.plane.start()
        for name in names:
            self.start_controller(name)
        wait_until(lambda: self.ask("GET", "/ready").status_code == 200, "the control plane is ready", PATIENCE)
        return self

    def start_controller(self, name: str) -> None:
        """Start a controller, or restart one that has ended. Its AWS key identifies its calls."""
        if name not in self.controllers:
            settings = {
                "AWS_ACCESS_KEY_ID": name,
                "AWS_ENDPOINT_URL": self.aws_gate.url,
                "CONTROL_PLANE_API_URL": self.plane_gate.url,
                "CML_PROXY_URL": self.machines.proxy.url,
                "CML_DEFAULT_PASSWORD": "simulated",
                "LEADER_LEASE_TTL": str(self._lease_ttl),
                "RETRY_INTERVAL": "1",
                "RECONCILE_INTERVAL": "1",
                "INITIAL_DELAY": "0.1",
                "METRICS_COLLECT_INTERVAL": "5",
                "CML_POLLER_PROCESSES": str(self._pollers),
                "LICENSE_RELEASE_TIMEOUT": "900",  # on a busy host the license is deregistered all the same
            }
            process = LcmProcess(self._folder, name, "worker-controller", env={**self._env, **settings})
            if self._shared_reads:
                process.add_settings(CML_READER_URL=f"http://127.0.0.1:{process.port}")
            self.controllers[name] = process
        self.controllers[name].start()

    def leaders(self) -> list[LcmProcess]:
        """The controller that leads; at most one."""
        return [process for process in self.controllers.values() if process.running and process.is_leader]

    def until_led(self, *, standbys: int = 1) -> LcmProcess:
        """Wait until one leads, has verified all workers, and enough others are ready to take over."""
        found: list[LcmProcess] = []

        def led() -> bool:
            found[:] = self.leaders()
            others = [one for one in self.controllers.values() if one.running and one not in found]
            ready = [one for one in others if one.get("/ready")[0] == 200]
            return len(found) == 1 and len(ready) >= standbys and self.known_leader()["startup_sweep_done"]

        wait_until(led, "one leads and others stand by", PATIENCE)
        return found[0]

    def until_another_leads(self, than: LcmProcess) -> LcmProcess:
        """Wait until the control plane knows of another leader."""
        found: list[LcmProcess] = []

        def taken_over() -> bool:
            term = self.known_leader()["term"]
            others = [process for process in self.controllers.values() if process is not than and process.running]
            found[:] = [process for process in others if term in terms(process)]
            return bool(found)

        wait_until(taken_over, f"another controller takes over from {than.name}", PATIENCE)
        return found[0]

    def known_leader(self) -> dict[str, Any]:
        """What the control plane knows about the current leader."""
        none = {"term": 0, "startup_sweep_done": False}
        response = self.ask("GET", "/api/fleet")
        leaders = response.json()["leaders"] if response.status_code == 200 else ()
        return next((one for one in leaders if one["controller"] == "worker-controller"), none)

    # Steps

    def hold(self, step: Step, instance_id: str = "") -> Hold:
        """Hold the next such step."""
        if step.where == "cml":
            return self.machines.holds.add(f"{DEREGISTRATION} {instance_id}", after=step.after)
        gate = self.plane_gate if step.where == "plane" else self.aws_gate
        return gate.holds.add(step.what, after=step.after)

    def sent_by(self, process: LcmProcess, exchange: Exchange) -> bool:
        """Whether this controller made a call to AWS."""
        return f"Credential={process.name}/" in _signature(exchange)

    def sender(self, exchange: Exchange | None) -> LcmProcess:
        """The controller that sent a request; for calls to CML that is unknown, so it must be the leader."""
        if exchange is None:
            return self.until_led()
        if exchange.term:
            return self._who_led(exchange.term)
        return next(one for one in self.controllers.values() if self.sent_by(one, exchange))

    def _who_led(self, term: int) -> LcmProcess:
        found: list[LcmProcess] = []

        def known() -> bool:
            found[:] = [one for one in self.controllers.values() if term in terms(one)]
            return bool(found)

        wait_until(known, f"the log says who leads in term {term}", PATIENCE)
        return found[0]

    def calm(self) -> None:
        """Clean up after a test: nothing is held and no process is stopped."""
        for part in (self.plane_gate, self.aws_gate, self.machines):
            part.holds.clear()
        for process in self.controllers.values():
            if process.running:
                process.signal(signal.SIGCONT)

    def kill_at(self, hold: Hold) -> LcmProcess:
        """SIGKILL the controller that has reached this step; what is held does not continue.

        Returns when another one has taken over.
        """
        killed = self.sender(hold.wait())
        killed.signal(signal.SIGKILL)
        killed.wait()
        hold.drop()
        self.until_another_leads(killed)
        self.start_controller(killed.name)
        return killed

    # Workers

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """As an admin, not through the gate."""
        try:
            return self._people.request(method, path, **options)
        except httpx.TransportError:
            return httpx.Response(0)

    def create(self, **fields: Any) -> str:
        """A new worker, by default without idle detection."""
        name = f"w{next(self._numbers)}"
        body = {"name": name, "template_name": "small", "idle_detection_enabled": False, **fields}
        response = self.ask("POST", "/api/workers", json=body)
        assert response.status_code == 201, response.text
        worker_id: str = response.json()["id"]
        return worker_id

    def command(self, worker_id: str, name: str) -> None:
        """Send a request of a person."""
        response = self.ask("POST", f"/api/workers/{worker_id}/{name}")
        assert response.status_code < 300, response.text

    def change_settings(self, **groups: dict[str, Any]) -> None:
        """An admin changes settings at run time."""
        response = self.ask("PATCH", "/api/settings", json=groups)
        assert response.status_code == 200, response.text

    def worker(self, worker_id: str) -> dict[str, Any]:
        """The record."""
        response = self.ask("GET", f"/api/workers/{worker_id}")
        return response.json() if response.status_code == 200 else {}

    def until(self, worker_id: str, **fields: Any) -> dict[str, Any]:
        """Wait until the record has these values."""

        def matches() -> bool:
            worker = self.worker(worker_id)
            return all(worker.get(name) == value for name, value in fields.items())

        try:
            wait_until(matches, f"{worker_id} is {fields}", PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.worker(worker_id)}") from error
        return self.worker(worker_id)

    def until_condition(self, worker_id: str, kind: str, message: str = "") -> None:
        """Wait until a condition is true and has this message."""

        def matches() -> bool:
            conditions = self.worker(worker_id).get("conditions", ())
            true = [one for one in conditions if (one["type"], one["status"]) == (kind, "True")]
            return any(message in one["message"] for one in true)

        wait_until(matches, f"{worker_id} is {kind} {message}", PATIENCE)

    def history(self, worker_id: str) -> list[str]:
        """The statuses of the worker, in order."""
        items = self.ask("GET", f"/api/workers/{worker_id}/history", params={"limit": 500}).json()["items"]
        return [str(entry["to_status"]) for entry in items]

    def audits(self, subject: str) -> list[str]:
        """The audit actions of the subject, oldest first."""
        params = {"subject": subject, "newest_first": "false", "limit": "500"}
        return [str(line["action"]) for line in self.ask("GET", "/api/audit", params=params).json()["items"]]

    def launched_for(self, worker_id: str) -> list[str]:
        """All instances that were launched for the worker."""
        with RULES.lock:
            return [
                instance.id
                for instance in RULES.instances.values()
                if any((tag["key"], tag["value"]) == (WORKER_TAG, worker_id) for tag in instance.get_tags())
            ]


def terms(process: LcmProcess) -> list[int]:
    """The terms in which the controller led."""
    return [entry["term"] for entry in process.logged("leadership won")]


def _signature(exchange: Exchange) -> str:
    return exchange.headers.get("authorization", "")


@contextmanager
def real_platform(
    folder: Path,
    *names: str,
    regions: Sequence[str] = (REGION,),
    lease_ttl: int = TTL,
    pollers: int = 0,
    shared_reads: bool = False,
) -> Iterator[RealPlatform]:
    """All parts, running; controllers of these names with so many pollers of CML, and these regions of AWS.

    With `shared_reads` the controllers read CML servers together, each a part of them.
    """
    with ExitStack() as stack:
        stack.enter_context(dummy_credentials())
        loop = stack.enter_context(LoopThread())
        etcd = EtcdCluster(folder / "etcd")
        stack.callback(etcd.stop)
        etcd.start()
        mongod = MongoServer(folder / "mongod")
        stack.callback(mongod.kill)
        mongod.start()
        aws = AwsBed()
        stack.callback(lambda: asyncio.run(aws.close()))
        for region in regions:
            aws._add_image("cml-2.9.1", ACCOUNT, clock.now() - timedelta(days=1), "available", region)
        platform = RealPlatform(folder, etcd, mongod, aws, loop, regions, lease_ttl, pollers, shared_reads=shared_reads)
        stack.callback(platform.close)
        yield platform.start(*names)
