"""A team that is deleted while something is added to it, on every store: nothing is left in a team that is gone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.teams import TeamDirectory
from lcm.control_plane.bookings.service import BookingService
from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.templates import seed_templates
from lcm.control_plane.lablets.definitions import add_definition
from lcm.control_plane.lablets.service import LabletService
from lcm.control_plane.records.kinds import ALL_KINDS, BOOKINGS, DEFINITIONS, LABLETS, TEAMS, WORKERS
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.store.port import Where
from lcm.control_plane.teams.choice import add_to_team
from lcm.control_plane.teams.service import TeamService
from lcm.control_plane.workers.service import WorkerService
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from lcm.model.booking.requests import CreateBookingRequest
from lcm.model.lablet.record import (
    AssignLabletRequest,
    CreateDefinitionRequest,
    CreateLabletRequest,
    Lablet,
    LabletRequirements,
)
from lcm.model.team import CreateTeamRequest, Team
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import CreateWorkerRequest, UpdateWorkerRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from tests.contract.store.conftest import Bed

ROOT = Caller("root", CallerKind.TOKEN, Role.ADMIN)
WAYS = ("create a lablet", "assign a lablet", "create a definition", "book a class", "dedicate a worker")
TOPOLOGY = "lab: {version: 0.2.2}\nnodes:\n- {id: n0, label: R1}\n"


class InterruptedStore:
    """A store of one control plane. When it has read everything and commits, another one comes first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.first: Callable[[], Awaitable[Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, *arguments: Any, **options: Any) -> Any:
        first, self.first = self.first, None
        if first is not None:
            await first()
        return await self._store.commit(*arguments, **options)


@dataclass(frozen=True, slots=True)
class Plane:
    """One control plane: what it can add to the team, and delete."""

    context: ControlPlaneContext
    team: Team
    lablet: str
    worker: str

    @property
    def _directory(self) -> TeamDirectory:
        return TeamDirectory(self.context.store)

    async def delete(self) -> None:
        await TeamService(self.context, self._directory).delete(ROOT, self.team.id)

    async def add(self, way: str) -> None:
        lablets = LabletService(self.context, self._directory)
        if way == "create a lablet":
            await lablets.create(ROOT, CreateLabletRequest(definition="bgp", team=self.team.name))
        elif way == "assign a lablet":
            await lablets.assign(ROOT, self.lablet, AssignLabletRequest(team=self.team.name))
        elif way == "create a definition":
            await self.context.unit_of_work.run(ROOT.actor, self._define)
        elif way == "book a class":
            await BookingService(self.context, self._directory).create(ROOT, self._booking())
        else:
            wanted = UpdateWorkerRequest.model_validate({"team": self.team.id})
            await WorkerService(self.context).patch(ROOT, self.worker, wanted, None)

    async def _define(self, tx: Transaction) -> None:
        await add_to_team(tx, self.team.id)
        await add_definition(tx, a_definition("ospf"), "root", self.team.id)

    def _booking(self) -> CreateBookingRequest:
        start = (clock.now() + timedelta(days=2)).replace(minute=0, second=0, microsecond=0, tzinfo=None)
        return CreateBookingRequest(
            name="class", definition="bgp", team=self.team.name, seats=2, start=start, zone="UTC", duration_minutes=60
        )


def a_definition(name: str) -> CreateDefinitionRequest:
    needs = LabletRequirements(cpu_cores=1.0, memory_gb=1.0, license=False)
    return CreateDefinitionRequest(name=name, version="1", topology=TOPOLOGY, requirements=needs)


def a_context(store: Store) -> ControlPlaneContext:
    box = SecretBox([parse_key(generate_key(), "test")])
    return ControlPlaneContext(store, UnitOfWork(store), box, ("eu-west-1",))


async def prepare(store: Store) -> tuple[Team, str, str]:
    """A team without anything, and a lablet and a worker of nobody."""
    context, directory = a_context(store), TeamDirectory(store)
    await context.unit_of_work.run(ROOT.actor, lambda tx: seed_templates(tx, None))
    await context.unit_of_work.run(ROOT.actor, lambda tx: add_definition(tx, a_definition("bgp"), "root"))
    made = await TeamService(context, directory).create(ROOT, CreateTeamRequest(name="networks-1"))
    lablet = await LabletService(context, directory).create(ROOT, CreateLabletRequest(definition="bgp"))
    worker = await WorkerService(context).create(ROOT, CreateWorkerRequest(name="lab-1", template_name="micro"))
    lablet_id, worker_id = Lablet.model_validate_json(lablet).id, Worker.model_validate_json(worker).id
    return Team.model_validate_json(made), lablet_id, worker_id


async def left_in(store: Store, team: Team) -> int:
    """How much belongs to the team."""
    where = Where(any_of={"team": [team.id]})
    kinds = (LABLETS, DEFINITIONS, BOOKINGS, WORKERS)
    return sum([len((await store.find(kind, where)).items) for kind in kinds])


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_added_while_a_team_is_deleted_keeps_it(bed: Bed, way: str) -> None:
    """The deletion has found the team empty. Before it commits, another control plane adds something."""
    store = await bed.open(ALL_KINDS)
    interrupted = InterruptedStore(store)
    found = await prepare(store)
    slow, quick = Plane(a_context(interrupted), *found), Plane(a_context(store), *found)
    interrupted.first = lambda: quick.add(way)
    with pytest.raises(ProblemError, match="team networks-1 still has 1"):
        await slow.delete()
    assert await store.get(TEAMS, found[0].id) is not None
    assert await left_in(store, found[0]) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_added_to_a_team_that_is_deleted_meanwhile(bed: Bed, way: str) -> None:
    """Everything was checked. Before the commit, another control plane deletes the team."""
    store = await bed.open(ALL_KINDS)
    interrupted = InterruptedStore(store)
    found = await prepare(store)
    slow, quick = Plane(a_context(interrupted), *found), Plane(a_context(store), *found)
    interrupted.first = quick.delete
    with pytest.raises(ProblemError, match="there is no team"):
        await slow.add(way)
    assert await store.get(TEAMS, found[0].id) is None
    assert await left_in(store, found[0]) == 0
