"""A demo fleet: a few workers, simulated users, and an occasional stop from outside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog
from pydantic import SecretStr

from lcm.client.errors import NameTakenError
from lcm.cloud.simulated.faults import ExternalAction, ExternalChange
from lcm.cloud.types import LaunchParameters
from lcm.core import clock
from lcm.core.hosting import HostedService, cancel_and_wait, keep_running
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, LabletRequirements
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.worker.requests import CreateWorkerRequest
from lcm.model.worker.status import DesiredStatus, LostInstancePolicy, WorkerStatus

if TYPE_CHECKING:
    from lcm.client.client import Client
    from lcm.wiring.simulated.world import SimulatedWorld

log = structlog.get_logger(__name__)

PEOPLE: Final = ("ada", "grace", "edsger", "barbara", "ken")
LICENSE_TOKEN: Final = "demo-license-token"  # noqa: S105
_LAB_ACTIVITY_SECONDS: Final = (15.0, 45.0)
_RESUME_SECONDS: Final = (90.0, 240.0)
_OUTSIDE_STOP_SECONDS: Final = (300.0, 600.0)
_HOUR_SECONDS: Final = 3600.0
_LABLET_SECONDS: Final = (40.0, 120.0)
_LABLET_MINUTES: Final = (4.0, 12.0)
_MAX_LABLETS: Final = 5
_MAX_RUNNING_LABS: Final = 3
_MAX_STOPPED_LABS: Final = 4
_MAX_STOPS_PER_HOUR: Final = 2  # a worker that is stopped more often is no longer restarted automatically
_LABLET_TITLE_MARKER: Final = "[lcm:"  # in the titles of lablets' labs, which simulated users do not touch
_UNMANAGED_NAME: Final = "found-by-discovery"


def _definition(name: str, nodes: int, needs: LabletRequirements) -> CreateDefinitionRequest:
    entries = "".join(
        f"  - {{id: n{number}, label: r{number + 1}, node_definition: iosv, x: {100 * number}, y: 0, interfaces: []}}\n"
        for number in range(nodes)
    )
    topology = f"lab: {{version: 0.2.2, title: {name}}}\nnodes:\n{entries}links: []\n"
    return CreateDefinitionRequest(name=name, version="1", topology=topology, requirements=needs)


DEFINITIONS: Final = (
    _definition("two-routers", 2, LabletRequirements(cpu_cores=0.5, memory_gb=0.8, storage_gb=5, nodes=2)),
    _definition("campus", 5, LabletRequirements(cpu_cores=1.5, memory_gb=3, storage_gb=20, nodes=5)),
)
"""Definitions that the demo creates lablets from."""


def first_workers(regions: tuple[str, ...]) -> list[CreateWorkerRequest]:
    """The workers of the first start: several regions, sizes and desired states."""
    home, second, third = (regions * 3)[:3]
    token = SecretStr(LICENSE_TOKEN)
    return [
        CreateWorkerRequest(name="alpha", template_name="small", aws_region=home, license_token=token),
        CreateWorkerRequest(name="bravo", template_name="medium", aws_region=second, license_token=token),
        CreateWorkerRequest(
            name="charlie",
            template_name="large",
            aws_region=second,
            lost_instance_policy=LostInstancePolicy.REPLACE,
            tags={"course": "routing-101"},
        ),
        CreateWorkerRequest(
            name="delta", template_name="small", aws_region=third, desired_status=DesiredStatus.STOPPED
        ),
        CreateWorkerRequest(name="echo", template_name="metal", aws_region=home),
    ]


class Demo(HostedService):
    """Creates the first workers in an empty store, then simulates users and disturbances."""

    def __init__(self, control: Client, world: SimulatedWorld, regions: tuple[str, ...], *, speed: float) -> None:
        super().__init__("demo")
        self._control = control
        self._world = world
        self._regions = regions
        self._speed = speed
        self._disturbed: dict[str, list[float]] = {}
        self._living: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run in the background: a failing demo must not block the platform."""
        self._living = self._spawn(keep_running("demo", self._live), "live")

    async def stop(self) -> None:
        if self._living is not None:
            await cancel_and_wait([self._living])

    async def _live(self) -> None:
        await self._create_first()
        await self._define()
        await asyncio.gather(self._people(), self._lablets(), self._disturbances(), self._returning())

    async def _create_first(self) -> None:
        async for _ in self._control.workers.list(page_size=1):
            return  # the store is in use: add nothing to it
        for request in first_workers(self._regions):
            try:
                await self._control.workers.create(request)
            except NameTakenError:
                continue
        self._launch_unmanaged()

    async def _define(self) -> None:
        """Create the definitions. A version that exists already is identical."""
        for definition in DEFINITIONS:
            await self._control.definitions.create(definition)

    async def _lablets(self) -> None:
        """Users request lablets for some minutes each; without free capacity a worker is launched."""
        while True:
            await self._pause(_LABLET_SECONDS)
            present = [
                lablet async for lablet in self._control.lablets.list(exclude_statuses=sorted(FINAL_LABLET_STATUSES))
            ]
            if len(present) >= _MAX_LABLETS:
                continue
            chance = clock.rng()
            minutes = chance.uniform(*_LABLET_MINUTES) / self._speed
            request = CreateLabletRequest(
                definition=chance.choice(DEFINITIONS).name,
                owner=chance.choice(PEOPLE),
                time_to_live_minutes=max(0.2, minutes),
            )
            await self._control.lablets.create(request)

    def _launch_unmanaged(self) -> None:
        """An instance launched by hand and tagged for discovery."""
        region = self._world.cloud.region(self._regions[0])
        parameters = LaunchParameters(
            region=region.name,
            client_token=f"demo-{region.serials}",
            image_id=next(iter(region.images)),
            instance_type="t3.medium",
            subnet_id=None,
            security_group_ids=(),
            key_name=None,
            tags={"Name": _UNMANAGED_NAME, "cml-managed": "true", "cml-environment": "demo"},
        )
        region.run_instance(parameters, self._world.cloud.time())

    async def _people(self) -> None:
        """Users start labs, and leave them running or stop them."""
        while True:
            await self._pause(_LAB_ACTIVITY_SECONDS)
            chance = clock.rng()
            ready = [server for _, _, server in self._world.running() if server.world.boot.is_listening]
            if not ready:
                continue
            world = chance.choice(ready).world
            world.time.advance()
            theirs = [lab for lab in world.labs.all if _LABLET_TITLE_MARKER not in lab.plan.title]
            going = [lab for lab in theirs if lab.state == "STARTED"]
            if going and chance.random() < 0.6:
                lab = chance.choice(going)
                world.labs.stop(lab, lab.owner)
            elif len(going) < _MAX_RUNNING_LABS:
                left = [lab for lab in theirs if lab.state != "STARTED"]
                if len(left) >= _MAX_STOPPED_LABS:
                    lab = chance.choice(left)
                    world.labs.start(lab, lab.owner)
                else:
                    world.start_user_lab(chance.choice(PEOPLE))

    async def _returning(self) -> None:
        """A user resumes a worker that was paused for being idle."""
        while True:
            await self._pause(_RESUME_SECONDS)
            paused = [
                worker
                async for worker in self._control.workers.list(status=[WorkerStatus.STOPPED])
                if worker.paused_by_policy
            ]
            if paused:
                worker = clock.rng().choice(paused)
                await self._control.workers.start(worker.id, f"{clock.rng().choice(PEOPLE)} needs it again")

    async def _disturbances(self) -> None:
        """From time to time an instance is stopped from outside."""
        while True:
            await self._pause(_OUTSIDE_STOP_SECONDS)
            now = asyncio.get_running_loop().time()
            for machine_id, moments in self._disturbed.items():
                self._disturbed[machine_id] = [moment for moment in moments if now - moment < _HOUR_SECONDS]
            running = [
                (region, machine)
                for region, machine, _ in self._world.running()
                if len(self._disturbed.get(machine.id, [])) < _MAX_STOPS_PER_HOUR
            ]
            if running:
                region, machine = clock.rng().choice(running)
                self._disturbed.setdefault(machine.id, []).append(now)
                log.info("demo: stopping an instance from outside", instance=machine.id, region=region)
                self._world.cloud.inject_fault(region, ExternalChange(ExternalAction.STOP, machine.id))

    async def _pause(self, span: tuple[float, float]) -> None:
        await asyncio.sleep(clock.rng().uniform(*span) / self._speed)
