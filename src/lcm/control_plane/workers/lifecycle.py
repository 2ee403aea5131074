"""The few ways in which a record changes, used by every command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.model.worker.status import DesiredStatus, WorkerStatus
from lcm.model.worker.transitions import check_transition

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.record import Worker

# Statuses in which an address that people could dial would belong to somebody else by now.
_WITHOUT_PUBLIC_ADDRESS = (WorkerStatus.STOPPED, WorkerStatus.PENDING, WorkerStatus.TERMINATED)

# Whoever asks for something else begins anew: how often it was stopped from outside before does not count any more.
_FORGIVEN: dict[str, Any] = {"drifted": False, "drifted_at": ()}


def changed(worker: Worker, now: datetime, *, asks_anew: bool = False, **fields: Any) -> Worker:
    """The worker with these fields. If any differs the version moves; `asks_anew` moves the generation with it."""
    if all(getattr(worker, name) == value for name, value in fields.items()):
        return worker
    moved = {"version": worker.version + 1, "generation": worker.generation + asks_anew, "updated_at": now}
    return worker.model_copy(update={**fields, **moved})


def entering(worker: Worker, status: WorkerStatus, now: datetime) -> dict[str, Any]:
    """The fields that change with a status; illegal transitions raise, the same status changes nothing."""
    check_transition(worker.status, status)
    if status is worker.status:
        return {}
    fields: dict[str, Any] = {"status": status, "status_since": now}
    if worker.status is WorkerStatus.STOPPED:
        fields["stopped_seconds"] = worker.stopped_seconds + (now - worker.status_since).total_seconds()
    if status is WorkerStatus.STOPPED:
        fields["stopped_by_policy"] = worker.paused_by_policy  # kept when it is resumed, so that savings can be told
    if status in _WITHOUT_PUBLIC_ADDRESS:
        fields["public_ip"] = None
    if status in (WorkerStatus.STARTING, WorkerStatus.RUNNING):
        fields["drifted"] = False
    if status is WorkerStatus.RUNNING:
        fields["last_resumed_at"] = now
    return fields


def pausing(worker: Worker, now: datetime, reason: str, *, by_policy: bool) -> dict[str, Any]:
    """The fields that change when a worker that was wanted running is wanted stopped."""
    if worker.desired_status is not DesiredStatus.RUNNING:
        return {"desired_status": DesiredStatus.STOPPED}
    counter = "auto_pause_count" if by_policy else "manual_pause_count"
    return {
        **_FORGIVEN,
        "desired_status": DesiredStatus.STOPPED,
        "last_paused_at": now,
        "pause_reason": reason,
        "paused_by_policy": by_policy,
        counter: getattr(worker, counter) + 1,
    }


def resuming(worker: Worker, *, by_policy: bool) -> dict[str, Any]:
    """The fields that change when a worker that was wanted stopped is wanted running."""
    if worker.desired_status is not DesiredStatus.STOPPED:
        return {"desired_status": DesiredStatus.RUNNING}
    counter = "auto_resume_count" if by_policy else "manual_resume_count"
    return {
        **_FORGIVEN,
        "desired_status": DesiredStatus.RUNNING,
        "pause_reason": None,
        "paused_by_policy": False,
        counter: getattr(worker, counter) + 1,
    }
