"""Scaling and maintenance by policy: minimum, maximum and cooldown are checked in the commit that acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.bookings.protection import check_not_booked
from lcm.control_plane.calendar.schedule_reads import read_claims, read_schedules_in
from lcm.control_plane.errors import ProblemError, check_version
from lcm.control_plane.records.kinds import WORKERS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.control_plane.workers.lifecycle import (
    drain,
    pause_fields,
    resume_fields,
    updated_record,
    worker_from_template,
)
from lcm.model.calendar.precedence import Authority, outranking_claim
from lcm.model.calendar.schedule import closed_reason, closed_template_reason
from lcm.model.fleet.settings import MaintenancePolicy
from lcm.model.formatting import count_with_verb, format_instant
from lcm.model.lablet.placement import check_adopted
from lcm.model.lablet.scheduling.capacity import is_resumable
from lcm.model.lablet.scheduling.scale_up import max_workers_refusal
from lcm.model.problems import ProblemCode
from lcm.model.worker.conditions import ConditionType, is_condition_true
from lcm.model.worker.maintenance import MAINTENANCE, MAX_RESTARTS, MOVING_STATUSES, is_moving, lablet_block
from lcm.model.worker.record import Worker
from lcm.model.worker.status import LAUNCHING_STATUSES, DesiredStatus, WorkerOrigin, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.calendar.schedule import Schedule
    from lcm.model.fleet.settings import FleetSettings, ScalingSettings
    from lcm.model.worker.requests import MaintenanceRequest, ScaleUpRequest
    from lcm.model.worker.template import WorkerTemplate

SCALE_DOWN, SCALE_UP = "scale-down", "scale-up"
_INCOMING_STATUSES = (*LAUNCHING_STATUSES, WorkerStatus.STOPPED)


async def count_running_workers(store: Store) -> int:
    """The number of workers in the whole fleet that are RUNNING and desired RUNNING."""
    running = {"status": [WorkerStatus.RUNNING.value], "desired_status": [DesiredStatus.RUNNING.value]}
    return sum(count for _, count, _ in await store.count_by(WORKERS, ["status"], Where(any_of=running)))


async def check_min_workers(tx: Transaction, scaling: ScalingSettings) -> int:
    """The number of running workers; rejected if one fewer would be below MIN_WORKERS.

    The fleet state is read first: if another worker leaves service after this count, our commit conflicts.
    """
    await tx.fleet()
    running = await count_running_workers(tx.store)
    if running <= scaling.min_workers:
        detail = f"{running} workers are running and MIN_WORKERS is {scaling.min_workers}"
        raise ProblemError(ProblemCode.MIN_WORKERS, detail, current={"running": running})
    return running


async def check_not_held(tx: Transaction, worker: Worker | None = None) -> None:
    """Rejected while the fleet or the worker is on hold."""
    fleet_hold = (await tx.fleet()).hold
    for hold, what in ((fleet_hold, "the fleet"), (worker.hold if worker else None, "the worker")):
        if hold is not None and hold.active(tx.earliest_now):
            raise ProblemError(ProblemCode.HELD, f"{what} is on hold by {hold.by}: {hold.reason}")


async def check_not_outranked(tx: Transaction, worker: Worker) -> None:
    """Rejected while somebody with more authority than a policy decides what the worker is to be."""
    claim = outranking_claim(Authority.POLICY, worker, tx.earliest_now, await read_claims(tx, worker))
    if claim is not None:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, claim.reason)


async def scale_down(tx: Transaction, worker_id: str, settings: FleetSettings, reason: str) -> Worker:
    """Drain a worker on behalf of scale-down: it is running, above the minimum, and the cooldown has passed."""
    worker = await tx.worker(worker_id)
    if worker.status is not WorkerStatus.RUNNING:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"only a RUNNING worker can be drained; this one is {worker.status}"
        )
    if worker.allocation.lablets:
        detail = (
            f"{count_with_verb(worker.allocation.lablets, 'lablet')} assigned to it; automation waits until they end"
        )
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail, current={"lablets": worker.allocation.lablets})
    await check_not_held(tx, worker)
    await check_not_outranked(tx, worker)
    await check_min_workers(tx, settings.scaling)
    fleet = await tx.fleet()
    cooldown = timedelta(seconds=settings.scaling.scale_down_cooldown_seconds)
    if fleet.last_scale_down_at is not None and tx.earliest_now - fleet.last_scale_down_at < cooldown:
        until = fleet.last_scale_down_at + cooldown
        last, then = format_instant(fleet.last_scale_down_at), format_instant(until)
        detail = f"the last scale-down was at {last}; the next may be at {then}"
        raise ProblemError(ProblemCode.COOLDOWN, detail, current={"until": until.isoformat()})
    drained = drain(worker, tx.now, reason, by_policy=True)
    tx.save_fleet(fleet.model_copy(update={"last_scale_down_at": tx.now}))
    tx.attribute_to_policy(SCALE_DOWN)
    return tx.save_worker(drained, "scale_down_initiated", reason)


@dataclass(frozen=True, slots=True)
class ScaleUpPlan:
    """A request for one more worker, and the properties of a new one."""

    request: ScaleUpRequest
    template: WorkerTemplate
    region: str
    worker_id: str
    licensed: bool = False


async def scale_up(tx: Transaction, plan: ScaleUpPlan, settings: FleetSettings) -> Worker:
    """Provide one more worker: one that is already starting for this request, a paused one resumed, or a new one."""
    request, template, region = plan.request, plan.template, plan.region
    await check_not_held(tx)
    schedules = await read_schedules_in(tx)
    existing = await _existing_worker(tx, request, template, region, schedules)
    if existing is not None:
        return existing
    await tx.take_calendar()  # bookings count the workers that exist
    tx.attribute_to_policy(SCALE_UP)
    resumed = None
    if request.resume:
        resumed = await _find_paused_by_policy(tx, template, region, request.worker_id, schedules)
    if resumed is not None:
        await check_not_booked(
            tx, settings.scaling, region=region, template=template.name, until=request.until, resumed=resumed
        )
        fields = {**resume_fields(resumed, by_policy=True), "requested_for": request.requested_for}
        updated = updated_record(resumed, tx.now, bump_generation=True, **fields)
        return tx.save_worker(updated, "scale_up_accepted", request.reason, resumed=True)
    closed = closed_template_reason(template.name, schedules, tx.earliest_now)
    if closed is not None:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"a new worker of {template.name} would take no lablets: {closed}"
        )
    await _check_max_workers(tx, region, settings)
    await check_not_booked(
        tx, settings.scaling, region=region, template=template.name, until=request.until, licensed=plan.licensed
    )
    return tx.save_worker(new_worker(plan, tx.now), "scale_up_accepted", request.reason, resumed=False)


async def _existing_worker(
    tx: Transaction, request: ScaleUpRequest, template: WorkerTemplate, region: str, schedules: Sequence[Schedule]
) -> Worker | None:
    if request.requested_for is not None:
        stored = await tx.store.get_unique(WORKERS, "requested_for", request.requested_for)
        return None if stored is None else Worker.model_validate_json(stored.body)
    running = DesiredStatus.RUNNING.value
    async for worker in _find_workers(tx.store, template, region, _INCOMING_STATUSES, running):
        if is_condition_true(worker.conditions, ConditionType.STUCK) or worker.is_booked(tx.earliest_now):
            continue
        if worker.team:
            continue  # who asks without a need has no team
        if closed_reason(worker, schedules, tx.earliest_now) is None:
            return worker
    return None


async def _find_paused_by_policy(
    tx: Transaction, template: WorkerTemplate, region: str, preferred: str | None, schedules: Sequence[Schedule]
) -> Worker | None:
    """The preferred worker if it can be resumed; otherwise the first that can. Not one outside its windows.

    One that is dedicated to a team is resumed only if it was chosen: for whose lablet another would be is not known.
    """
    found: Worker | None = None
    stopped = DesiredStatus.STOPPED.value
    async for worker in _find_workers(tx.store, template, region, (WorkerStatus.STOPPED,), stopped):
        if worker.team and worker.id != preferred:
            continue
        if is_resumable(worker, tx.earliest_now) and closed_reason(worker, schedules, tx.earliest_now) is None:
            if preferred in (None, worker.id):
                return await tx.worker(worker.id)
            found = found or worker
    return None if found is None else await tx.worker(found.id)


async def _find_workers(
    store: Store, template: WorkerTemplate, region: str, statuses: tuple[WorkerStatus, ...], desired: str
) -> AsyncIterator[Worker]:
    where = Where(
        any_of={
            "aws_region": [region],
            "template_name": [template.name],
            "status": [status.value for status in statuses],
            "desired_status": [desired],
        }
    )
    async for stored in find_all(store, WORKERS, where):
        worker = read_or_skip(stored, Worker, "worker")
        if worker is not None and check_adopted(worker) is None:
            yield worker


async def _check_max_workers(tx: Transaction, region: str, settings: FleetSettings) -> None:
    where = Where(any_of={"aws_region": [region]}, none_of={"status": [WorkerStatus.TERMINATED.value]})
    counts = await tx.store.count_by(WORKERS, ["aws_region"], where)
    present = sum(count for _, count, _ in counts)
    refusal = max_workers_refusal(region, present, settings.scaling.max_workers_per_region)
    if refusal is not None:
        raise ProblemError(ProblemCode.MAX_WORKERS, refusal, current={"workers": present})


def new_worker(plan: ScaleUpPlan, now: datetime) -> Worker:
    """The record of a worker that scale-up launches."""
    return worker_from_template(
        plan.template,
        now,
        id=plan.worker_id,
        name=f"{plan.template.name}-{plan.worker_id.rpartition('-')[2]}",
        aws_region=plan.region,
        origin=WorkerOrigin.SCALE_UP,
        requested_for=plan.request.requested_for,
        has_license_token=plan.licensed,
        has_cml_credentials=False,
    )


# Maintenance: a worker that nobody uses is stopped and started again, which moves it to another host. The worker
# controller decides. Whoever leads next goes on from the pause reason on the record.

_STOPPING = {"desired_status": [DesiredStatus.STOPPED.value]}
_STARTING = {
    "desired_status": [DesiredStatus.RUNNING.value],
    "status": [status.value for status in MOVING_STATUSES],
}


async def change_host(tx: Transaction, worker_id: str, request: MaintenanceRequest, settings: FleetSettings) -> Worker:
    """Carry out one of the two steps. A step that is not possible any more is rejected and changes nothing."""
    worker = await tx.worker(worker_id)
    check_version("worker", worker.version, request.version)
    await check_not_held(tx, worker)
    desired = DesiredStatus.RUNNING if request.step == "start" else DesiredStatus.STOPPED
    claim = outranking_claim(Authority.MAINTENANCE, worker, tx.earliest_now, await read_claims(tx, worker))
    if claim is not None and claim.desired is not desired:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, claim.reason)
    tx.attribute_to_policy(MAINTENANCE)
    if request.step == "start":
        return _start_again(tx, worker, request.reason)
    await _check_maintenance_stop(tx, worker, settings)
    fields = pause_fields(worker, tx.now, MAINTENANCE, by_policy=True)
    fields["maintenance_restarts"] = (*worker.maintenance_restarts, tx.now)[-MAX_RESTARTS:]
    return tx.save_worker(
        updated_record(worker, tx.now, bump_generation=True, **fields), "maintenance_stop", request.reason
    )


def _start_again(tx: Transaction, worker: Worker, reason: str) -> Worker:
    if not worker.is_in_maintenance:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the worker is not stopped for maintenance")
    fields = resume_fields(worker, by_policy=True)
    return tx.save_worker(updated_record(worker, tx.now, bump_generation=True, **fields), "maintenance_start", reason)


async def _check_maintenance_stop(tx: Transaction, worker: Worker, settings: FleetSettings) -> None:
    if settings.maintenance.maintenance_policy is not MaintenancePolicy.PLAN:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "MAINTENANCE_POLICY is report: nothing is restarted")
    if worker.status is not WorkerStatus.RUNNING or worker.desired_status is not DesiredStatus.RUNNING:
        detail = f"only a RUNNING worker that should run is restarted; this one is {worker.status}"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if len(worker.maintenance_restarts) >= MAX_RESTARTS:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, "it has been restarted as often as allowed; see its conditions"
        )
    if (block := lablet_block(worker)) is not None:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"{block}; automation waits until they end")
    # The fleet state is read there first: if another worker leaves service after this count, our commit conflicts.
    await check_min_workers(tx, settings.scaling)
    moving = await _moving_worker(tx, worker)
    if moving is not None:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"{moving} is moving to another host; workers move one at a time"
        )


async def _moving_worker(tx: Transaction, worker: Worker) -> str | None:
    """The name of another worker of the region that is on its way to another host."""
    for fields in (_STOPPING, _STARTING):
        where = Where(any_of={"aws_region": [worker.aws_region], "at_rest": [False], **fields})
        async for stored in find_all(tx.store, WORKERS, where):
            other = Worker.model_validate_json(stored.body)
            if other.id != worker.id and is_moving(other):
                return other.name
    return None
