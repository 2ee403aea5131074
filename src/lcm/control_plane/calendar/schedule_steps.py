"""Stops and starts of workers by their schedules. The worker controller decides; the commit checks that it still holds.

A step that is not what the schedules want any more, because one was changed, a person has started the worker or a
lablet was placed on it, is rejected and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.control_plane.calendar.schedule_reads import read_schedules_in
from lcm.control_plane.errors import ProblemError, check_version
from lcm.control_plane.workers.lifecycle import pause_fields, resume_fields, updated_record
from lcm.control_plane.workers.scaling import check_not_held
from lcm.model.calendar.schedule import due_change
from lcm.model.problems import ProblemCode
from lcm.model.worker.maintenance import lablet_block
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import ScheduleStepRequest

SCHEDULE: Final = "schedule"
STOPPABLE: Final = (WorkerStatus.RUNNING, WorkerStatus.STOPPED, WorkerStatus.PENDING)
STARTABLE: Final = (WorkerStatus.RUNNING, WorkerStatus.STOPPING, WorkerStatus.STOPPED, WorkerStatus.PENDING)


async def apply_schedule_step(tx: Transaction, worker_id: str, request: ScheduleStepRequest) -> Worker:
    """Stop a worker outside its windows, or start one whose window has opened."""
    worker = await tx.worker(worker_id)
    check_version("worker", worker.version, request.version)
    await check_not_held(tx, worker)
    desired = DesiredStatus.RUNNING if request.step == "start" else DesiredStatus.STOPPED
    claim = due_change(worker, await read_schedules_in(tx), tx.earliest_now)
    if claim is None or claim.desired is not desired:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"its schedules no longer {request.step} it")
    allowed = STARTABLE if desired is DesiredStatus.RUNNING else STOPPABLE
    if worker.status not in allowed:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"a {worker.status} worker is left as it is")
    tx.attribute_to_policy(SCHEDULE)
    if desired is DesiredStatus.RUNNING:
        fields, action = resume_fields(worker, by_policy=True), "schedule_start"
    else:
        if (block := lablet_block(worker)) is not None:
            raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"{block}; automation waits until they end")
        fields, action = pause_fields(worker, tx.now, claim.pause_reason, by_policy=True), "schedule_stop"
    after = updated_record(worker, tx.now, bump_generation=True, **fields)
    until = {} if claim.until is None else {"until": claim.until.isoformat()}
    return tx.save_worker(after, action, claim.reason, **until)
