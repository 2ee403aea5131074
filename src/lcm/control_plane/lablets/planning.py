"""Runs the planner of the scheduler on the records and describes its plan, for the plan of the fleet and previews."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import structlog
from pydantic import ValidationError

from lcm.control_plane.bookings.protection import read_snapshot
from lcm.control_plane.calendar.schedule_reads import read_schedules
from lcm.control_plane.fleet.state_reads import read_fleet_state, read_leaders
from lcm.control_plane.records.kinds import LABLETS, TEMPLATES, WORKERS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.model.base import Record
from lcm.model.calendar.walk_ins import NOTHING_BOOKED, BookedCapacitySnapshot
from lcm.model.fleet.plan import MAX_LISTED, LabletPlan, PlannedLablet, PlannedPlacement, PlannedScaleUp
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.scheduling.block import hold_block, verification_block
from lcm.model.lablet.scheduling.planner import Planner, SkippedRecord
from lcm.model.lablet.scheduling.scale_up import ScaleUpLimits, ScaleUpOutcome, scale_up_outcomes
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.store.port import Kind, Store, StoredDocument
    from lcm.model.calendar.schedule import Schedule
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.lablet.scheduling.block import PlacementBlock
    from lcm.model.lablet.scheduling.planner import SchedulingPlan, UnplaceableLablet, WaitingLablet

R = TypeVar("R", bound=Record)
log = structlog.get_logger(__name__)

_READS_PER_TURN = 50
"""Decoding more records at a time would stall the event loop."""


@dataclass(slots=True)
class SchedulingInputs:
    """What the scheduler plans with, as it is now. Records that cannot be read are in `skipped`."""

    settings: FleetSettings
    blocks: tuple[PlacementBlock, ...] = ()
    pending: list[Lablet] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    templates: list[WorkerTemplate] = field(default_factory=list)
    skipped: list[SkippedRecord] = field(default_factory=list)
    schedules: tuple[Schedule, ...] = ()
    booked: BookedCapacitySnapshot = NOTHING_BOOKED

    def outcomes(self, context: ControlPlaneContext, plan: SchedulingPlan) -> list[ScaleUpOutcome]:
        """What follows from the needs of a plan."""
        limits = ScaleUpLimits(context.regions[0], self.settings.scaling.max_workers_per_region)
        return scale_up_outcomes(plan.needs, self.workers, self.templates, limits)


async def read_scheduling_inputs(context: ControlPlaneContext, now: datetime, *extra: Lablet) -> SchedulingInputs:
    """Read them. Without any pending lablet the workers are not read: there is nothing to plan."""
    store = context.store
    inputs = SchedulingInputs(await context.settings())
    fleet = await read_fleet_state(store)
    inputs.schedules = await read_schedules(store, fleet)
    blocks = (hold_block(fleet, now), verification_block(await read_leaders(store)))
    inputs.blocks = tuple(block for block in blocks if block is not None)
    waiting = Where(any_of={"status": [LabletStatus.PENDING_SCHEDULING.value]})
    pending = await read_records(store, LABLETS, Lablet, "lablet", inputs.skipped, waiting)
    inputs.pending = [lablet for lablet in pending if not lablet.unknown_words] + list(extra)
    if inputs.pending:
        present = Where(none_of={"status": [WorkerStatus.TERMINATED.value]})
        inputs.workers = await read_records(store, WORKERS, Worker, "worker", inputs.skipped, present)
        templates = [read_or_skip(item, WorkerTemplate, "template") async for item in find_all(store, TEMPLATES)]
        inputs.templates = [each for each in templates if each is not None]
        licensed = context.scale_up_license is not None
        inputs.booked = await read_snapshot(store, inputs.settings.scaling, now, context.regions[0], licensed=licensed)
    return inputs


async def run_planner(context: ControlPlaneContext, inputs: SchedulingInputs, now: datetime) -> SchedulingPlan:
    """The scheduler's plan for all pending lablets. Requests are served while it is made."""
    planner = make_planner(context, inputs, now)
    for lablet in planner.due:
        planner.place_lablet(lablet)
        await asyncio.sleep(0)
    return planner.plan


def make_planner(context: ControlPlaneContext, inputs: SchedulingInputs, now: datetime) -> Planner:
    """The scheduler's planner over these inputs."""
    planner = Planner(
        inputs.pending,
        inputs.workers,
        inputs.templates,
        now=now,
        config=context.planning,
        schedules=inputs.schedules,
        booked=inputs.booked,
    )
    planner.plan.skipped.extend(inputs.skipped)
    return planner


async def read_records(
    store: Store, kind: Kind, model: type[R], word: str, skipped: list[SkippedRecord], where: Where
) -> list[R]:
    """The records that can be read. One that cannot is reported and stops no other."""
    found: list[R] = []
    number = 0
    async for item in find_all(store, kind, where):
        number += 1
        if number % _READS_PER_TURN == 0:
            await asyncio.sleep(0)
        found += decode_records([item], model, word, skipped)
    return found


def decode_records(items: Iterable[StoredDocument], model: type[R], word: str, skipped: list[SkippedRecord]) -> list[R]:
    """Those that can be read. One that cannot is in the log and in `skipped`."""
    found: list[R] = []
    for item in items:
        try:
            found.append(model.model_validate_json(item.body))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, problem["loc"]))
            reason = f"its record cannot be read: {place}: {problem['msg']}"[:300]
            log.error("record skipped", kind=word, id=item.id, reason=reason)
            skipped.append(SkippedRecord("worker" if word == "worker" else "lablet", item.id, item.id, reason))
    return found


def describe_scheduling(
    plan: SchedulingPlan, outcomes: Sequence[ScaleUpOutcome], names: Mapping[str, str], blocked: str
) -> LabletPlan:
    """The scheduler's plan as it is shown."""
    placements = [
        PlannedPlacement(
            lablet_id=each.lablet.id,
            lablet_name=each.lablet.name,
            worker_id=each.worker_id,
            worker_name=names.get(each.worker_id, each.worker_id),
        )
        for each in plan.placed[:MAX_LISTED]
    ]
    accepted = [outcome for outcome in outcomes if not outcome.refusal]
    refused = [
        PlannedLablet(
            lablet_id=each.lablet.id, lablet_name=each.lablet.name, reason=f"{each.reason}, but {outcome.refusal}"
        )
        for outcome in outcomes
        if outcome.refusal
        for each in outcome.need.lablets
    ]
    skipped = {each.id for each in plan.skipped}
    waiting = [*map(_lablet, (each for each in plan.waiting if each.lablet.id not in skipped)), *refused]
    ending = [_lablet(each) for each in (*plan.expired, *plan.unplaceable)]
    return LabletPlan(
        blocked=blocked,
        placements=tuple(placements),
        placements_total=len(plan.placed),
        scale_ups=tuple(_scale_up(outcome) for outcome in accepted[:MAX_LISTED]),
        scale_ups_total=len(accepted),
        waiting=tuple(waiting[:MAX_LISTED]),
        waiting_total=len(waiting),
        ending=tuple(ending[:MAX_LISTED]),
        ending_total=len(ending),
        skipped=tuple(
            PlannedLablet(lablet_id=each.id, lablet_name=each.name, reason=each.reason)
            for each in plan.skipped[:MAX_LISTED]
        ),
        skipped_total=len(plan.skipped),
    )


def _lablet(each: WaitingLablet | UnplaceableLablet) -> PlannedLablet:
    return PlannedLablet(lablet_id=each.lablet.id, lablet_name=each.lablet.name, reason=each.reason)


def _scale_up(outcome: ScaleUpOutcome) -> PlannedScaleUp:
    return PlannedScaleUp(
        worker_id=None if outcome.worker is None else outcome.worker.id,
        worker_name="" if outcome.worker is None else outcome.worker.name,
        template=outcome.need.template,
        aws_region=outcome.aws_region,
        cost_per_hour_usd=outcome.cost_per_hour_usd,
        lablets=len(outcome.need.lablets),
        reason=outcome.need.reason,
    )
