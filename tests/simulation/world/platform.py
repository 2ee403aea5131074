"""The platform in the simulated world: a control plane and controllers that can die and restart, and users."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, cast

import structlog
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from lcm.client import Client
from lcm.cloud.types import RegionLaunchSettings
from lcm.control_plane.app import make_app
from lcm.control_plane.auth.rate_limit import SignInRateLimiter
from lcm.control_plane.auth.security_log import SecurityLog
from lcm.control_plane.auth.session_record import SESSIONS
from lcm.control_plane.auth.sessions import SessionService
from lcm.control_plane.auth.sign_in_links import SignInLinks
from lcm.control_plane.auth.tokens import TOKENS, TokenService
from lcm.control_plane.bookings import progress as booking_progress
from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.fleet.system import ensure_installation
from lcm.control_plane.fleet.templates import seed_templates
from lcm.control_plane.http.deps import Authenticator
from lcm.control_plane.journal.feed import JournalFeed
from lcm.control_plane.journal.mirror import Mirror, MirrorSettings
from lcm.control_plane.journal.mirror_keys import LABLET_MIRROR, WORKER_MIRROR
from lcm.control_plane.journal.sse import EventStream, StreamSettings
from lcm.control_plane.records.kinds import ALL_KINDS, LAUNCH_TIMES
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.services import Services
from lcm.control_plane.store.adapter_rules import Commit
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.control_plane.store.port import Put
from lcm.controllers.common import status_report
from lcm.controllers.lablet import stray_labs
from lcm.controllers.lablet.controller import LabletReconciler
from lcm.controllers.lablet.deps import LabletControllerConfig, LabletDependencies, LabletPolicy
from lcm.controllers.scheduler.config import SchedulerConfig
from lcm.controllers.scheduler.controller import SchedulerHostedService
from lcm.controllers.worker.controller import WorkerReconciler
from lcm.controllers.worker.deps import ControllerConfig, Dependencies, Policy
from lcm.controllers.worker.metrics import collector
from lcm.core import clock, clock_guard
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.core.controller.watch import WatchTriggeredHostedService
from lcm.model.access import Role
from lcm.model.audit import Actor, ActorKind
from lcm.model.booking.capacity import MAX_MEASUREMENTS
from lcm.model.worker.template import DEFAULT_TEMPLATES
from tests.simulation.invariants.during import Ledger, WatchedDisk
from tests.simulation.world.cloud_and_cml import Aws, Cml, Ec2
from tests.simulation.world.etcd import Etcd, EtcdClient
from tests.simulation.world.labs import LabSession
from tests.simulation.world.loop import Node, SeededLoop
from tests.simulation.world.network import Network
from tests.simulation.world.wire import SimulatedWire
from tests.support.virtual.fake_cml import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from fastapi import FastAPI

    from lcm.cml.client.session import CMLSession
    from lcm.control_plane.store.memory.store import MemoryDisk
    from lcm.control_plane.store.port import Store
    from lcm.core.hosting import HostedService
    from tests.simulation.script import ClassRules

Controller = WatchTriggeredHostedService[Any]
REGIONS = ("eu-west-1", "us-east-1")
WORKER_CONTROLLER, SCHEDULER, LABLET_CONTROLLER = "worker-controller", "resource-scheduler", "lablet-controller"
SERVICES = {
    "one": WORKER_CONTROLLER,
    "two": WORKER_CONTROLLER,
    "placer": SCHEDULER,
    "stand-in": SCHEDULER,
    "labs": LABLET_CONTROLLER,
}
"""The controller that each node runs."""
WAIT_LIMIT = 300.0
POLICY = Policy(
    provisioning_timeout=240.0,
    starting_timeout=240.0,
    stuck_after=240.0,
    cml_ready_timeout=200.0,
    capacity_wait_limit=WAIT_LIMIT,
    drain_timeout=300.0,
    license_release_timeout=60.0,
)
LABLET_POLICY = LabletPolicy(start_timeout=140.0, stop_timeout=120.0, worker_timeout=240.0)
"""Timeouts that expire within a run."""
_LABLETS = WatchConfig(prefix="/instances/")
_PROBE_SECONDS = 10.0  # of the mirror: with the default, probes would take most of the time
_FEED_SECONDS = 60.0  # the control plane is one process and wakes its feed with each commit
_REPORT_SECONDS = 300.0  # no decision depends on the status reports of controllers
_CAMPAIGN_SECONDS = 5.0
_RARE_SECONDS = 300.0
_OWN_PACE = (  # what processes do every few seconds whether or not anything happens
    (status_report, "REPORT_INTERVAL_SECONDS", _REPORT_SECONDS),
    (stray_labs, "SWEEP_POLL_SECONDS", stray_labs.SWEEP_POLL_SECONDS),
    (booking_progress, "IDLE_SECONDS", booking_progress.IDLE_SECONDS),
    (collector, "_NO_WORKERS_SECONDS", collector._NO_WORKERS_SECONDS),
)
_SETTLE_SECONDS = 420.0  # longer than every deadline of a run, as an hour is in production
_SYSTEM = Actor(kind=ActorKind.SYSTEM, name="start-up")
MEASURED = ("tiny", "wide", "exam", "lecture")
_KEY = generate_key()
_APP: list[FastAPI] = []


def quiet(report_seconds: float = _REPORT_SECONDS, *, long: bool = False) -> None:
    """Log nothing but violations: formatting log lines would take most of the time.

    In long runs, what happens by itself would take even more: it happens every few minutes.
    """
    structlog.configure(
        processors=[],
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        cache_logger_on_first_use=True,
    )
    logging.disable(logging.CRITICAL)
    for module, name, seconds in _OWN_PACE:
        _set_constant(module, name, _RARE_SECONDS if long else seconds)
    if not long:
        _set_constant(status_report, "REPORT_INTERVAL_SECONDS", report_seconds)
    _set_constant(clock_guard, "SETTLE_SECONDS", _SETTLE_SECONDS)


def _set_constant(module: ModuleType, name: str, value: float) -> None:
    """Replace a constant of the code under test. A renamed one must not be missed: the runs would only be slower."""
    assert name in vars(module), f"{module.__name__} has no {name}"
    vars(module)[name] = value


class Platform:
    """Everything that runs, and what it runs on."""

    def __init__(
        self,
        loop: SeededLoop,
        ledger: Ledger,
        *,
        polls: float | None,
        lease: int,
        upkeep: Callable[[Store, Services], HostedService] | None = None,
        rules: ClassRules | None = None,
        long: bool = False,
    ) -> None:
        """`upkeep` makes the service that deletes expired records; short runs need none."""
        self._license = SecretStr("good-token") if rules is not None and rules.licensed else None
        self.loop = loop
        self._upkeep = upkeep
        self.ledger = ledger
        self.disk = WatchedDisk(ledger)
        self.etcd = Etcd()
        self.network = Network(loop, ledger)
        self.ec2 = Ec2(loop, ledger, seed=loop.stream("ec2").randrange(2**32))
        ledger.ec2 = self.ec2
        self.cml = Cml(self.ec2, loop, ledger)
        self.config = ReconciliationConfig(interval_seconds=polls or 60.0, polling_enabled=polls is not None)
        self.lease = lease
        self._long = long
        self.plane_services: tuple[HostedService, ...] = ()  # of the control plane that was started last
        self.tokens: dict[Role, str] = {}
        self.nodes: dict[str, Node] = {}
        self.lives: dict[str, int] = {}
        self.controllers: dict[str, Controller] = {}
        self.jumps: dict[str, float] = {}  # a host keeps its wrong clock when its process restarts
        if rules is not None and rules.measured is not None:
            _measure(self.disk, rules.measured)
        for region in REGIONS:
            self.ec2.add_region(region, subnets={"subnet-a": f"{region}a", "subnet-b": f"{region}b"})
            self.ec2.add_image(region, "cml-2.9.1", created_at=clock.now())

    # The control plane

    async def start_plane(self) -> Node:
        """Start a control plane on the current disk."""
        node = self._born("plane")
        task = node.run(self._serve(node), "control plane")
        while not task.done() and not node.dead:
            await _moment()
        if task.done():
            task.result()
        return node

    async def _serve(self, node: Node) -> None:
        store = MemoryStore(self.disk)
        node.on_death = store.crash
        await store.open([*ALL_KINDS, TOKENS, SESSIONS])
        feed = JournalFeed(store, poll=self._pace(_FEED_SECONDS))
        unit_of_work = UnitOfWork(store, feed.wake)
        await unit_of_work.run(_SYSTEM, lambda tx: ensure_installation(tx, None))
        await unit_of_work.run(_SYSTEM, lambda tx: seed_templates(tx, None))
        tokens = TokenService(store)
        gate = Authenticator(
            tokens, SessionService(store, tokens), SignInRateLimiter(), SignInLinks(store), SecurityLog(store)
        )
        stream = EventStream(store, feed, StreamSettings(heartbeat=self._pace(15.0), access_check=self._pace(5.0)))
        parts = Services.create(
            ControlPlaneContext(
                store,
                unit_of_work,
                SecretBox([parse_key(_KEY, "test")]),
                REGIONS,
                scale_up_license=self._license,
            ),
            gate,
            stream,
        )
        if not self.tokens:
            for role in Role:
                self.tokens[role] = (await tokens.create(role.value, role, created_by="test"))[1].reveal()
        await feed.start()
        await stream.start()
        mirrors = [
            Mirror(
                store,
                EtcdClient(self.etcd, self.network.line("plane", "etcd")),
                feed,
                what,
                MirrorSettings(check_every=self._pace(_PROBE_SECONDS)),
            )
            for what in (WORKER_MIRROR, LABLET_MIRROR)
        ]
        for mirror in mirrors:
            await mirror.start()
        self.plane_services = (feed, *mirrors, stream)
        if self._upkeep is not None:
            await self._upkeep(store, parts).start()
        self.network.server = (node, _app_with(parts))

    def _pace(self, seconds: float) -> float:
        """How often something happens by itself in this run."""
        return _RARE_SECONDS if self._long else seconds

    # Controllers

    async def start_controller(self, name: str, *, rate: float = 1.0, offset: float = 0.0) -> Node:
        """Start a controller, which leads or stands by."""
        node = self._born(name, rate=rate, offset=offset)
        node.run(self._control(name), SERVICES[name])
        return node

    async def _control(self, name: str) -> None:
        service = SERVICES[name]
        controller = self.controllers[name] = self._makers[service](
            name,
            EtcdClient(self.etcd, self.network.line(name, "etcd")),
            LeaderElectionConfig(
                election_key_prefix="/lcm",
                lease_ttl=self.lease,
                retry_interval=self._pace(_CAMPAIGN_SECONDS),
                service_name=service,
                instance_id=f"{name}-{self.lives[name]}",
            ),
            self.client(name, Role.CONTROLLER),
        )
        await controller.start()

    @property
    def _makers(self) -> dict[str, Callable[[str, EtcdClient, LeaderElectionConfig, Client], Controller]]:
        return {
            WORKER_CONTROLLER: self._worker_controller,
            SCHEDULER: self._scheduler,
            LABLET_CONTROLLER: self._lablet_controller,
        }

    def _worker_controller(
        self, name: str, etcd: EtcdClient, election: LeaderElectionConfig, control: Client
    ) -> Controller:
        key, node = election.election_key, self.nodes[name]

        def leads() -> bool:
            """Whether it holds the leader key. A slow clock proves a lease a little longer than etcd keeps it."""
            held = self.etcd.state.get(key)
            mine = held is not None and held.value.decode() == election.instance_id
            return mine or (node.rate < 1.0 and bool(node.call(lambda: self.controllers[name].is_leader)))

        provider = Aws(self.ec2, self.network.line(name, "aws"), name, self.ledger, leads)
        return WorkerReconciler(
            etcd,
            election,
            WatchConfig(prefix="/workers/"),
            self.config,
            Dependencies(control, provider, provider, self.cml, {each: _site(each) for each in REGIONS}),
            ControllerConfig(DEFAULT, policy=POLICY),
            registry=CollectorRegistry(),
        )

    def leads(self, name: str) -> bool:
        """Whether the controller of a node leads, as far as it knows."""
        return not self.nodes[name].dead and bool(self.nodes[name].call(lambda: self.controllers[name].is_leader))

    def _scheduler(self, _: str, etcd: EtcdClient, election: LeaderElectionConfig, control: Client) -> Controller:
        return SchedulerHostedService(
            etcd,
            election,
            _LABLETS,
            self.config,
            control,
            SchedulerConfig(scale_up_cooldown=30.0),
            registry=CollectorRegistry(),
        )

    def _lablet_controller(
        self, name: str, etcd: EtcdClient, election: LeaderElectionConfig, control: Client
    ) -> Controller:
        session = cast("CMLSession", LabSession(self.cml, self.ledger, name))
        return LabletReconciler(
            etcd,
            election,
            _LABLETS,
            self.config,
            LabletDependencies(control, session, session.forget),
            LabletControllerConfig(DEFAULT, policy=LABLET_POLICY, sweep_interval=120.0),
            registry=CollectorRegistry(),
        )

    # People

    def client(self, name: str, role: Role) -> Client:
        """A client of the control plane, created by the node that uses it."""
        wire = SimulatedWire(self.network, name)
        return Client("http://lcm.test", self.tokens[role], wire=wire, with_metrics=False)

    def _born(self, name: str, **clock_settings: float) -> Node:
        self.lives[name] = self.lives.get(name, 0) + 1
        node = Node(self.loop, f"{name}#{self.lives[name]}", **clock_settings)
        node.clock.jumped = self.jumps.get(name, 0.0)
        self.nodes[name] = node
        return node

    def set_clock(self, name: str, seconds: float) -> None:
        """Somebody sets the clock of a host, so that it is off by so much."""
        self.jumps[name] = self.nodes[name].clock.jumped = seconds


def _measure(disk: MemoryDisk, seconds: float) -> None:
    """Write down how long launches and labs took before, by which warm-ups are planned."""
    times = {f"template {each.name}": seconds for each in DEFAULT_TEMPLATES}
    times |= {f"definition {each}@1": seconds / 6 for each in MEASURED}
    puts = [
        Put(LAUNCH_TIMES, name, json.dumps({"seconds": [each] * MAX_MEASUREMENTS}).encode(), None)
        for name, each in times.items()
    ]
    disk.commit(Commit(tuple(puts), (), ()))


def _app_with(parts: Services) -> Any:
    """The app is shared by all control planes of a process: creating it takes as long as minutes of simulation."""
    if not _APP:
        _APP.append(make_app(parts, "0.0.0"))
    _APP[0].state.services = parts
    return _APP[0]


def _site(region: str) -> RegionLaunchSettings:
    return RegionLaunchSettings(region, subnet_ids=("subnet-a", "subnet-b"))


async def _moment() -> None:
    import asyncio

    await asyncio.sleep(0.01)
