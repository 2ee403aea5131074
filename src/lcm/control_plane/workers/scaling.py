"""Growing and shrinking by policy: floors, ceilings and cooldowns, checked in the commit that acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.store.port import Where
from lcm.control_plane.workers.lifecycle import drain, pause_fields, resume_fields, updated_worker
from lcm.model.formatting import count_with_verb
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerOrigin, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.fleet.settings import FleetSettings, ScalingSettings
    from lcm.model.worker.requests import ScaleUpRequest
    from lcm.model.worker.template import WorkerTemplate

IDLE_TIMEOUT = "idle_timeout"
AUTO_PAUSE, SCALE_DOWN, SCALE_UP = "auto-pause", "scale-down", "scale-up"
_INCOMING_STATUSES = (WorkerStatus.PENDING, WorkerStatus.PROVISIONING, WorkerStatus.STARTING, WorkerStatus.STOPPED)


async def count_running_workers(store: Store) -> int:
    """Workers of the whole fleet that run and are wanted so."""
    running = {"status": [WorkerStatus.RUNNING.value], "desired_status": [DesiredStatus.RUNNING.value]}
    return sum(count for _, count, _ in await store.count_by(WORKERS, ["status"], Where(any_of=running)))


async def check_min_workers(change: Transaction, scaling: ScalingSettings) -> int:
    """How many run now; refused if one less would be below the floor.

    The fleet's state is read first: a departure that is committed after this count makes our commit conflict.
    """
    await change.fleet()
    running = await count_running_workers(change.store)
    if running <= scaling.min_workers:
        detail = f"{running} workers are running and MIN_WORKERS is {scaling.min_workers}"
        raise ProblemError(ProblemCode.MIN_WORKERS, detail, current={"running": running})
    return running


async def check_not_held(change: Transaction, worker: Worker | None = None) -> None:
    """Refused while the fleet or the worker is on hold."""
    fleet_hold = (await change.fleet()).hold
    for hold, what in ((fleet_hold, "the fleet"), (worker.hold if worker else None, "the worker")):
        if hold is not None and hold.active(change.now):
            raise ProblemError(ProblemCode.HELD, f"{what} is on hold by {hold.by}: {hold.reason}")


async def pause_idle_worker(change: Transaction, worker: Worker, settings: FleetSettings) -> Worker:
    """Auto-pause: the worker is wanted stopped because nobody uses it."""
    await check_not_held(change, worker)
    await check_min_workers(change, settings.scaling)
    fields = pause_fields(worker, change.now, IDLE_TIMEOUT, by_policy=True)
    change.by_policy(AUTO_PAUSE)
    return change.save(updated_worker(worker, change.now, bump_generation=True, **fields), "auto_paused", IDLE_TIMEOUT)


async def scale_down(change: Transaction, worker_id: str, settings: FleetSettings, reason: str) -> Worker:
    """Drain a worker on scale-down's behalf: running, above the floor, and not too soon after the last one."""
    worker = await change.worker(worker_id)
    if worker.status is not WorkerStatus.RUNNING:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"only a RUNNING worker can be drained; this one is {worker.status}"
        )
    if worker.allocation.lablets:
        detail = (
            f"{count_with_verb(worker.allocation.lablets, 'lablet')} assigned to it; automation waits until none is"
        )
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail, current={"lablets": worker.allocation.lablets})
    await check_not_held(change, worker)
    await check_min_workers(change, settings.scaling)
    fleet = await change.fleet()
    cooldown = timedelta(seconds=settings.scaling.scale_down_cooldown_seconds)
    if fleet.last_scale_down_at is not None and change.now - fleet.last_scale_down_at < cooldown:
        until = fleet.last_scale_down_at + cooldown
        detail = (
            f"the last scale-down was at {fleet.last_scale_down_at:%H:%M:%S}; the next may be at {until:%H:%M:%S} UTC"
        )
        raise ProblemError(ProblemCode.COOLDOWN, detail, current={"until": until.isoformat()})
    drained = drain(worker, change.now, reason, by_policy=True)
    change.save_fleet(fleet.model_copy(update={"last_scale_down_at": change.now}))
    change.by_policy(SCALE_DOWN)
    return change.save(drained, "scale_down_initiated", reason)


@dataclass(frozen=True, slots=True)
class ScaleUpPlan:
    """A need for one more worker, and what a new one would be."""

    request: ScaleUpRequest
    template: WorkerTemplate
    region: str
    worker_id: str
    licensed: bool = False


async def scale_up(change: Transaction, growth: ScaleUpPlan, settings: FleetSettings) -> Worker:
    """One more worker for a need: the one already on its way for it, a paused one resumed, or a new one."""
    request, template, region = growth.request, growth.template, growth.region
    await check_not_held(change)
    answered = await _existing_worker(change, request, template, region)
    if answered is not None:
        return answered
    change.by_policy(SCALE_UP)
    resumed = await _find_paused_by_policy(change, template, region)
    if resumed is not None:
        fields = {**resume_fields(resumed, by_policy=True), "requested_for": request.requested_for}
        again = updated_worker(resumed, change.now, bump_generation=True, **fields)
        return change.save(again, "scale_up_accepted", request.reason, resumed=True)
    await _check_max_workers(change, region, settings)
    return change.save(_new_worker(growth, change.now), "scale_up_accepted", request.reason, resumed=False)


async def _existing_worker(
    change: Transaction, request: ScaleUpRequest, template: WorkerTemplate, region: str
) -> Worker | None:
    if request.requested_for is not None:
        stored = await change.store.get_unique(WORKERS, "requested_for", request.requested_for)
        return None if stored is None else Worker.model_validate_json(stored.body)
    wanted = DesiredStatus.RUNNING.value
    async for worker in _find_workers(change.store, template, region, _INCOMING_STATUSES, wanted):
        return worker
    return None


async def _find_paused_by_policy(change: Transaction, template: WorkerTemplate, region: str) -> Worker | None:
    stopped = DesiredStatus.STOPPED.value
    async for found in _find_workers(change.store, template, region, (WorkerStatus.STOPPED,), stopped):
        held = found.hold is not None and found.hold.active(change.now)
        if found.paused_by_policy and not held:
            return await change.worker(found.id)
    return None


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
    after: str | None = None
    while True:
        page = await store.find(WORKERS, where, after=after)
        for item in page.items:
            yield Worker.model_validate_json(item.body)
        if page.next_cursor is None:
            return
        after = page.next_cursor


async def _check_max_workers(change: Transaction, region: str, settings: FleetSettings) -> None:
    where = Where(any_of={"aws_region": [region]}, none_of={"status": [WorkerStatus.TERMINATED.value]})
    counted = await change.store.count_by(WORKERS, ["aws_region"], where)
    present = sum(count for _, count, _ in counted)
    if present >= settings.scaling.max_workers_per_region:
        detail = (
            f"{region} has {present} workers and MAX_WORKERS_PER_REGION is {settings.scaling.max_workers_per_region}"
        )
        raise ProblemError(ProblemCode.MAX_WORKERS, detail, current={"workers": present})


def _new_worker(growth: ScaleUpPlan, now: datetime) -> Worker:
    template = growth.template
    return Worker(
        id=growth.worker_id,
        name=f"{template.name}-{growth.worker_id.rpartition('-')[2]}",
        template_name=template.name,
        aws_region=growth.region,
        status_since=now,
        instance_type=template.instance_type,
        origin=WorkerOrigin.SCALE_UP,
        requested_for=growth.request.requested_for,
        has_license_token=growth.licensed,
        capacity=template.capacity,
        cost_per_hour_usd=template.cost_per_hour_usd,
        created_at=now,
        updated_at=now,
    )
