"""A small lively fleet to look at: a few workers, people who use them, and somebody who stops one now and then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog
from pydantic import SecretStr

from lcm.client.errors import NameTaken
from lcm.cloud.simulated.faults import Action, Disturb
from lcm.cloud.types import LaunchParameters
from lcm.core import clock
from lcm.core.hosting import HostedService, cancel_and_wait, keep_running
from lcm.model.lablet.record import CreateDefinition, CreateLablet, Requirements
from lcm.model.lablet.status import FINAL
from lcm.model.worker.requests import CreateWorker
from lcm.model.worker.status import DesiredStatus, LostInstancePolicy, WorkerStatus

if TYPE_CHECKING:
    from lcm.client.client import Client
    from lcm.wiring.simulated.world import SimulatedWorld

log = structlog.get_logger(__name__)

PEOPLE: Final = ("ada", "grace", "edsger", "barbara", "ken")
LICENCE: Final = "demo-licence-token"
_SOMETHING_EVERY: Final = (15.0, 45.0)
_BACK_EVERY: Final = (90.0, 240.0)
_DISTURBED_EVERY: Final = (300.0, 600.0)
_AN_HOUR: Final = 3600.0
_LABLET_EVERY: Final = (40.0, 120.0)
_LABLET_MINUTES: Final = (4.0, 12.0)
_MOST_LABLETS: Final = 5
_MOST_GOING: Final = 3
_MOST_LEFT: Final = 4
_MOST_DISTURBED: Final = 2  # an hour: one that is stopped more often is no longer started again by itself
_MARKER: Final = "[lcm:"  # in the titles of lablets' labs, which people leave alone
_UNMANAGED: Final = "found-by-discovery"


def _definition(name: str, nodes: int, needs: Requirements) -> CreateDefinition:
    entries = "".join(
        f"  - {{id: n{number}, label: r{number + 1}, node_definition: iosv, x: {100 * number}, y: 0, interfaces: []}}\n"
        for number in range(nodes)
    )
    topology = f"lab: {{version: 0.2.2, title: {name}}}\nnodes:\n{entries}links: []\n"
    return CreateDefinition(name=name, version="1", topology=topology, requirements=needs)


DEFINITIONS: Final = (
    _definition("two-routers", 2, Requirements(cpu_cores=0.5, memory_gb=0.8, storage_gb=5, nodes=2)),
    _definition("campus", 5, Requirements(cpu_cores=1.5, memory_gb=3, storage_gb=20, nodes=5)),
)
"""What people of the demo make lablets from."""


def first_workers(regions: tuple[str, ...]) -> list[CreateWorker]:
    """Who is there on the first start: several regions, sizes and wishes."""
    home, second, third = (regions * 3)[:3]
    licence = SecretStr(LICENCE)
    return [
        CreateWorker(name="alpha", template_name="small", aws_region=home, license_token=licence),
        CreateWorker(name="bravo", template_name="medium", aws_region=second, license_token=licence),
        CreateWorker(
            name="charlie",
            template_name="large",
            aws_region=second,
            lost_instance_policy=LostInstancePolicy.REPLACE,
            tags={"course": "routing-101"},
        ),
        CreateWorker(name="delta", template_name="small", aws_region=third, desired_status=DesiredStatus.STOPPED),
        CreateWorker(name="echo", template_name="metal", aws_region=home),
    ]


class Demo(HostedService):
    """Creates the first workers, in a store that has none, then lets the world live."""

    def __init__(self, control: Client, world: SimulatedWorld, regions: tuple[str, ...], *, speed: float) -> None:
        super().__init__("demo")
        self._control = control
        self._world = world
        self._regions = regions
        self._speed = speed
        self._disturbed: dict[str, list[float]] = {}
        self._living: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin beside everything else: a demo that does not come up must not keep the platform from it."""
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
            return  # somebody has worked with this store: nothing is added to it
        for wanted in first_workers(self._regions):
            try:
                await self._control.workers.create(wanted)
            except NameTaken:
                continue
        self._launch_unmanaged()

    async def _define(self) -> None:
        """What lablets are made from. A version that is there already is the same one."""
        for definition in DEFINITIONS:
            await self._control.definitions.create(definition)

    async def _lablets(self) -> None:
        """People want a lab of their own for some minutes; where there is no room for it, a worker is launched."""
        while True:
            await self._pause(_LABLET_EVERY)
            present = [lablet async for lablet in self._control.lablets.list(exclude_statuses=sorted(FINAL))]
            if len(present) >= _MOST_LABLETS:
                continue
            chance = clock.chance()
            minutes = chance.uniform(*_LABLET_MINUTES) / self._speed
            wanted = CreateLablet(
                definition=chance.choice(DEFINITIONS).name,
                owner=chance.choice(PEOPLE),
                time_to_live_minutes=max(0.2, minutes),
            )
            await self._control.lablets.create(wanted)

    def _launch_unmanaged(self) -> None:
        """An instance that somebody launched by hand and tagged for discovery."""
        region = self._world.cloud.region(self._regions[0])
        parameters = LaunchParameters(
            region=region.name,
            client_token=f"demo-{region.serials}",
            image_id=next(iter(region.images)),
            instance_type="t3.medium",
            subnet_id=None,
            security_group_ids=(),
            key_name=None,
            tags={"Name": _UNMANAGED, "cml-managed": "true", "cml-environment": "demo"},
        )
        region.run_instance(parameters, self._world.cloud.time())

    async def _people(self) -> None:
        """People start labs, and leave them or stop them."""
        while True:
            await self._pause(_SOMETHING_EVERY)
            chance = clock.chance()
            ready = [server for _, _, server in self._world.running() if server.world.boot.listens]
            if not ready:
                continue
            world = chance.choice(ready).world
            world.time.advance()
            theirs = [lab for lab in world.labs.all if _MARKER not in lab.plan.title]
            going = [lab for lab in theirs if lab.state == "STARTED"]
            if going and chance.random() < 0.6:
                lab = chance.choice(going)
                world.labs.stop(lab, lab.owner)
            elif len(going) < _MOST_GOING:
                left = [lab for lab in theirs if lab.state != "STARTED"]
                if len(left) >= _MOST_LEFT:
                    lab = chance.choice(left)
                    world.labs.start(lab, lab.owner)
                else:
                    world.person_starts_lab(chance.choice(PEOPLE))

    async def _returning(self) -> None:
        """Somebody comes back to a worker that was paused because nobody used it."""
        while True:
            await self._pause(_BACK_EVERY)
            paused = [
                worker
                async for worker in self._control.workers.list(status=[WorkerStatus.STOPPED])
                if worker.paused_by_policy
            ]
            if paused:
                worker = clock.chance().choice(paused)
                await self._control.workers.start(worker.id, f"{clock.chance().choice(PEOPLE)} needs it again")

    async def _disturbances(self) -> None:
        """Now and then somebody stops an instance from outside."""
        while True:
            await self._pause(_DISTURBED_EVERY)
            now = asyncio.get_running_loop().time()
            for machine_id, moments in self._disturbed.items():
                self._disturbed[machine_id] = [moment for moment in moments if now - moment < _AN_HOUR]
            running = [
                (region, machine)
                for region, machine, _ in self._world.running()
                if len(self._disturbed.get(machine.id, [])) < _MOST_DISTURBED
            ]
            if running:
                region, machine = clock.chance().choice(running)
                self._disturbed.setdefault(machine.id, []).append(now)
                log.info("demo: somebody stops an instance from outside", instance=machine.id, region=region)
                self._world.cloud.strike(region, Disturb(Action.STOP, machine.id))

    async def _pause(self, span: tuple[float, float]) -> None:
        await asyncio.sleep(clock.chance().uniform(*span) / self._speed)
