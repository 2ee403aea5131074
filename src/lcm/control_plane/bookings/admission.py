"""Whether a booking fits beside all others: what is stored is read, and the model's rules decide.

A preview and a create run the same function. A create runs it in its transaction, which has taken the calendar first:
of two bookings that are admitted at once, the second is computed anew with the first in place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.auth.roles import ForbiddenError
from lcm.control_plane.bookings.measurements import read_lab_time, read_launch_time
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.definitions import resolve_definition
from lcm.control_plane.records.kinds import BOOKINGS, LABLETS, TEAMS, TEMPLATES, WORKERS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.control_plane.teams.choice import choose_team
from lcm.control_plane.teams.visibility import manages
from lcm.model.booking.capacity import clipped, live_worker
from lcm.model.booking.record import OPEN_STATUSES
from lcm.model.booking.unreadable import read_known
from lcm.model.calendar.admission import FREE_TIMES_WITHIN, BookedCapacity, BookingLimits, LiveWorker, admit
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.scheduling.planner import capacity_need_key
from lcm.model.lablet.status import ASSIGNED_LABLET_STATUSES, LabletStatus
from lcm.model.problems import ProblemCode
from lcm.model.team import Team
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.teams import TeamList
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.store.port import Kind, Store, StoredDocument
    from lcm.model.booking.record import Booking, BookingOccurrence
    from lcm.model.calendar.admission import Admission, OccurrencePlanner
    from lcm.model.lablet.record import LabletDefinitionSummary

_ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The definition, the templates, and how long their launches and labs take."""

    definition: LabletDefinitionSummary
    templates: tuple[WorkerTemplate, ...]
    launch_times: dict[str, timedelta]
    lab_time: timedelta


@dataclass(frozen=True, slots=True)
class Calendar:
    """What is booked and what exists, as admission counts it.

    `depends_on` are documents that take no turn with the calendar: the workers that could serve a booking, whose
    lablets change, and the `team` that it is for.
    """

    booked: list[BookedCapacity]
    live: list[LiveWorker]
    limits: BookingLimits
    depends_on: list[tuple[Kind, StoredDocument]]
    team: Team | None = None

    def check_length(self, length: timedelta, field: str) -> None:
        """Raise for a class that lasts longer than its seats may, which are lablets of the team."""
        most = None if self.team is None else self.team.limits.max_lifetime_minutes
        if self.team is not None and most is not None and length > timedelta(minutes=most):
            detail = f"{field}: lablets of team {self.team.name} may last {most:g} minutes at most"
            raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


async def read_templates(store: Store) -> tuple[WorkerTemplate, ...]:
    """All templates."""
    found = [read_or_skip(stored, WorkerTemplate, "template") async for stored in find_all(store, TEMPLATES)]
    return tuple(each for each in found if each is not None)


async def read_surroundings(store: Store, definition: LabletDefinitionSummary) -> Surroundings:
    """The definition, the templates, and how long their launches take."""
    templates = await read_templates(store)
    launch_times = {each.name: await read_launch_time(store, each.name) for each in templates if each.enabled}
    return Surroundings(definition, templates, launch_times, await read_lab_time(store, definition.id))


class CalendarReader:
    """What is booked between two times and what exists, for several classes. All is read once, when it is needed."""

    def __init__(self, context: ControlPlaneContext, first: datetime, last: datetime, now: datetime) -> None:
        self._context = context
        self._first, self._last, self._now = first, last, now
        self._bookings: list[Booking] | None = None
        self._templates: tuple[WorkerTemplate, ...] | None = None
        self._live: dict[str | None, tuple[list[LiveWorker], list[StoredDocument]]] = {}

    async def calendar_for(self, requested: Sequence[BookedCapacity], *, without: tuple[str, int] | None) -> Calendar:
        """What is booked, `without` one occurrence, and all workers that exist."""
        store, settings = self._context.store, await self._context.settings()
        pool = settings.scaling.license_pool_size
        if self._bookings is None:
            self._bookings = await read_open_bookings(store, self._first, self._last)
        booked = list(_booked(self._bookings, self._first, self._last, without))
        live, usable = await self._read_live(None if pool else requested[0].region)
        depends_on = [(WORKERS, stored) for stored in usable]
        seats: dict[str, int] = {}
        team = None
        stored_team = await store.get(TEAMS, requested[0].team) if requested[0].team else None
        if stored_team is not None:
            depends_on.append((TEAMS, stored_team))
            team = Team.model_validate_json(stored_team.body)
            limit = team.limits.max_seats
            seats = {} if limit is None else {stored_team.id: limit}
        limits = BookingLimits(settings.scaling.max_workers_per_region, pool or None, seats)
        return Calendar(booked, live, limits, depends_on, team)

    async def _read_live(self, region: str | None) -> tuple[list[LiveWorker], list[StoredDocument]]:
        if region not in self._live:
            if self._templates is None:
                self._templates = await read_templates(self._context.store)
            live, usable = await read_live(self._context.store, region, self._templates, self._now)
            self._live[region] = (list(live.values()), usable)
        return self._live[region]


async def read_calendar(
    context: ControlPlaneContext,
    requested: Sequence[BookedCapacity],
    now: datetime,
    *,
    without: tuple[str, int] | None,
) -> Calendar:
    """What is booked around the times that are asked for, `without` one occurrence, and all workers that exist."""
    first = min(each.start for each in requested)
    last = max(each.end for each in requested) + FREE_TIMES_WITHIN + _ONE_DAY
    return await CalendarReader(context, first, last, now).calendar_for(requested, without=without)


async def choose_definition(
    store: Store, caller: Caller, teams: TeamList, reference: str, team_name: str | None
) -> tuple[LabletDefinitionSummary, str]:
    """The definition, and the id of the team that it is booked for.

    Without a name it is the only team of an instructor; for operators that of the definition, if it has one.
    """
    if team_name is None:
        team = choose_team(teams, caller, None)
        team_id = None if team is None else team.id
    else:
        team_id = await _named_team(store, caller, team_name)
    definition = await resolve_definition(store, reference, caller.scope, team_id)
    return definition, definition.team if team_id is None else team_id


async def _named_team(store: Store, caller: Caller, name: str) -> str:
    """The id of a team for which the caller may book. It is read anew: it may have been made a moment ago."""
    stored = await store.get_unique(TEAMS, "name", name)
    if stored is None or not (caller.scope.everything or stored.id in caller.scope.all_teams):
        raise ProblemError(ProblemCode.INVALID, f"team: there is no team {name}; lcm teams list shows yours")
    if not manages(caller, stored.id):
        raise ForbiddenError(f"This needs the role instructor in the team {name}.")
    return stored.id


async def read_booked(store: Store, first: datetime, last: datetime) -> list[BookedCapacity]:
    """What open bookings take between these times."""
    return list(_booked(await read_open_bookings(store, first, last), first, last, None))


def _booked(
    bookings: Sequence[Booking], first: datetime, last: datetime, without: tuple[str, int] | None
) -> Iterator[BookedCapacity]:
    for booking in bookings:
        for occurrence in booking.open_occurrences:
            if (booking.id, occurrence.number) != without and _overlaps(occurrence, first, last):
                yield booking.capacity(occurrence)


async def read_open_bookings(store: Store, first: datetime, last: datetime) -> list[Booking]:
    """The bookings that may have a class between these times; of one that cannot be read, what is known."""
    where = Where(
        any_of={"status": [status.value for status in OPEN_STATUSES]},
        at_least={"ends_at": first.isoformat()},
        below={"starts_at": last.isoformat()},
    )
    return [read_known(stored.body, stored.id) async for stored in find_all(store, BOOKINGS, where)]


def _overlaps(occurrence: BookingOccurrence, first: datetime, last: datetime) -> bool:
    return occurrence.warm_up_at < last and occurrence.ends_at > first


async def read_live(
    store: Store, region: str | None, templates: Sequence[WorkerTemplate], now: datetime
) -> tuple[dict[str, LiveWorker], list[StoredDocument]]:
    """All workers of a region, or of all, by id as admission counts them; and those that can serve a booking."""
    any_of = {} if region is None else {"aws_region": [region]}
    where = Where(any_of=any_of, none_of={"status": [WorkerStatus.TERMINATED.value]})
    stored_workers = [stored async for stored in find_all(store, WORKERS, where)]
    found = {stored.id: read_or_skip(stored, Worker, "worker") for stored in stored_workers}
    workers = [worker for worker in found.values() if worker is not None]
    walk_ins = await read_walk_ins(store, [worker.id for worker in workers if worker.allocation.lablets])
    walk_ins |= await _read_awaited(store, workers)
    by_name = {template.name: template for template in templates}
    live = {worker.id: live_worker(worker, walk_ins.get(worker.id, ()), by_name, now) for worker in workers}
    usable = [stored for stored in stored_workers if stored.id in live and live[stored.id].free_from is not None]
    for stored in stored_workers:
        if found[stored.id] is None:  # it exists, and serves no class
            live[stored.id] = LiveWorker(region or stored_region(stored), "", None)
    return live, usable


def stored_region(stored: StoredDocument) -> str:
    """The region of a worker whose record cannot be read."""
    try:
        record = json.loads(stored.body)
    except ValueError:
        return ""
    return str(record.get("aws_region", "")) if isinstance(record, dict) else ""


async def read_walk_ins(store: Store, worker_ids: Sequence[str]) -> dict[str, list[Lablet]]:
    """The lablets on these workers that belong to no booking."""
    found: dict[str, list[Lablet]] = {}
    for start in range(0, len(worker_ids), 100):
        where = Where(
            any_of={
                "worker_id": worker_ids[start : start + 100],
                "status": [status.value for status in sorted(ASSIGNED_LABLET_STATUSES)],
            }
        )
        async for stored in find_all(store, LABLETS, where):
            lablet = read_or_skip(stored, Lablet, "lablet")
            if lablet is not None and lablet.worker_id is not None and lablet.booking_id is None:
                found.setdefault(lablet.worker_id, []).append(lablet)
    return found


async def _read_awaited(store: Store, workers: Sequence[Worker]) -> dict[str, list[Lablet]]:
    """Walk-ins that wait for a worker which was launched or resumed for them: it is not free either."""
    empty = [worker for worker in workers if worker.requested_for is not None and not worker.allocation.lablets]
    if not empty:
        return {}
    ids, by_need = {worker.id for worker in empty}, {worker.requested_for: worker.id for worker in empty}
    found: dict[str, list[Lablet]] = {}
    async for stored in find_all(store, LABLETS, Where(any_of={"status": [LabletStatus.PENDING_SCHEDULING.value]})):
        lablet = read_or_skip(stored, Lablet, "lablet")
        if lablet is None or lablet.booking_id is not None or not lablet.wanted:
            continue
        planned = None if lablet.placement is None else lablet.placement.scale_up_worker_id
        worker_id = planned if planned in ids else by_need.get(capacity_need_key(lablet))
        if worker_id is not None:
            found.setdefault(worker_id, []).append(lablet)
    return found


def without_license(context: ControlPlaneContext, calendar: Calendar, requested: BookedCapacity) -> int:
    """How many workers of a class will have no license, because new ones get none."""
    if not requested.licensed or context.scale_up_license is not None:
        return 0
    there = [each for each in calendar.live if (each.region, each.template) == (requested.region, requested.template)]
    usable = [each for each in there if each.free_from is not None and each.team in ("", requested.team)]
    return max(0, requested.workers - sum(each.registered or each.registers for each in usable))


def decide_admission(
    requested: Sequence[BookedCapacity],
    calendar: Calendar,
    now: datetime,
    preferred: Sequence[datetime] = (),
    plan_from: OccurrencePlanner | None = None,
) -> Admission:
    """Whether it fits. What is over does not count; the free times are those of the whole length."""
    answer = admit([clipped(each, now) for each in requested], calendar.booked, calendar.live, calendar.limits)
    if answer.confirmed:
        return answer
    whole = admit(requested, calendar.booked, calendar.live, calendar.limits, preferred=preferred, plan_from=plan_from)
    return replace(answer, free_times=whole.free_times)
