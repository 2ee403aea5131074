"""Maintenance by policy: a worker that nobody uses is stopped and started again, which moves it to another host.

The worker controller decides; what must hold is checked here, in the commit that changes the desired status. Whoever
leads next goes on from the pause reason on the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError, check_version
from lcm.control_plane.records.kinds import WORKERS, find_all
from lcm.control_plane.store.port import Where
from lcm.control_plane.workers.lifecycle import pause_fields, resume_fields, updated_record
from lcm.control_plane.workers.scaling import check_min_workers, check_not_held
from lcm.model.fleet.settings import MaintenancePolicy
from lcm.model.problems import ProblemCode
from lcm.model.worker.maintenance import MAINTENANCE, MAX_RESTARTS, MOVING_STATUSES, is_moving, lablet_block
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.requests import MaintenanceRequest

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
    tx.attribute_to_policy(MAINTENANCE)
    if request.step == "start":
        return _start(tx, worker, request.reason)
    await _check_stop(tx, worker, settings)
    fields = pause_fields(worker, tx.now, MAINTENANCE, by_policy=True)
    fields["maintenance_restarts"] = (*worker.maintenance_restarts, tx.now)[-MAX_RESTARTS:]
    return tx.save_worker(
        updated_record(worker, tx.now, bump_generation=True, **fields), "maintenance_stop", request.reason
    )


def _start(tx: Transaction, worker: Worker, reason: str) -> Worker:
    if not worker.is_in_maintenance:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the worker is not stopped for maintenance")
    fields = resume_fields(worker, by_policy=True)
    return tx.save_worker(updated_record(worker, tx.now, bump_generation=True, **fields), "maintenance_start", reason)


async def _check_stop(tx: Transaction, worker: Worker, settings: FleetSettings) -> None:
    if settings.maintenance.maintenance_policy is not MaintenancePolicy.PLAN:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "MAINTENANCE_POLICY is report: nothing is restarted")
    if worker.status is not WorkerStatus.RUNNING or worker.desired_status is not DesiredStatus.RUNNING:
        detail = f"only a RUNNING worker that should run is restarted; this one is {worker.status}"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if len(worker.maintenance_restarts) >= MAX_RESTARTS:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "it was restarted as often as is allowed; see its condition")
    if (block := lablet_block(worker)) is not None:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"{block}; automation waits until they end")
    # The fleet state is read there first: if another worker leaves service after this count, our commit conflicts.
    await check_min_workers(tx, settings.scaling)
    moving = await _moving_worker(tx, worker)
    if moving is not None:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"{moving} is on its way to another host; one at a time moves")


async def _moving_worker(tx: Transaction, worker: Worker) -> str | None:
    """The name of another worker of the region that is on its way to another host."""
    for fields in (_STOPPING, _STARTING):
        where = Where(any_of={"aws_region": [worker.aws_region], "at_rest": [False], **fields})
        async for stored in find_all(tx.store, WORKERS, where):
            other = Worker.model_validate_json(stored.body)
            if other.id != worker.id and is_moving(other):
                return other.name
    return None
