"""The few ways in which a record changes, used by every command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.control_plane.errors import ProblemError
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Hold
from lcm.model.worker.status import DesiredStatus, WorkerStatus, check_transition

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import HoldRequest


# Statuses in which an address that people could dial would belong to somebody else by now.
_NO_PUBLIC_IP_STATUSES = (WorkerStatus.STOPPED, WorkerStatus.PENDING, WorkerStatus.TERMINATED)

# Whoever asks for something else begins anew: how often it was stopped from outside before does not count any more.
_DRIFT_RESET: dict[str, Any] = {"drifted": False, "drifted_at": ()}


def updated_worker(worker: Worker, now: datetime, *, bump_generation: bool = False, **fields: Any) -> Worker:
    """The worker with these fields. If any differs the version moves; `bump_generation` moves the generation with it."""
    if all(getattr(worker, name) == value for name, value in fields.items()):
        return worker
    moved = {"version": worker.version + 1, "generation": worker.generation + bump_generation, "updated_at": now}
    return worker.model_copy(update={**fields, **moved})


def on_enter(worker: Worker, status: WorkerStatus, now: datetime) -> dict[str, Any]:
    """The fields that change with a status; illegal transitions raise, the same status changes nothing."""
    check_transition(worker.status, status)
    if status is worker.status:
        return {}
    fields: dict[str, Any] = {"status": status, "status_since": now}
    if worker.status is WorkerStatus.STOPPED:
        fields["stopped_seconds"] = worker.stopped_seconds + (now - worker.status_since).total_seconds()
    if status is WorkerStatus.STOPPED:
        fields["stopped_by_policy"] = worker.paused_by_policy  # kept when it is resumed, so that savings can be told
    if status in _NO_PUBLIC_IP_STATUSES:
        fields["public_ip"] = None
    if status in (WorkerStatus.STARTING, WorkerStatus.RUNNING):
        fields["drifted"] = False
    if status is WorkerStatus.RUNNING:
        fields["last_resumed_at"] = now
    return fields


def pause_fields(worker: Worker, now: datetime, reason: str, *, by_policy: bool) -> dict[str, Any]:
    """The fields that change when a worker that was wanted running is wanted stopped."""
    if worker.desired_status is not DesiredStatus.RUNNING:
        return {"desired_status": DesiredStatus.STOPPED}
    counter = "auto_pause_count" if by_policy else "manual_pause_count"
    return {
        **_DRIFT_RESET,
        "desired_status": DesiredStatus.STOPPED,
        "last_paused_at": now,
        "pause_reason": reason,
        "paused_by_policy": by_policy,
        counter: getattr(worker, counter) + 1,
    }


def resume_fields(worker: Worker, *, by_policy: bool) -> dict[str, Any]:
    """The fields that change when a worker that was wanted stopped is wanted running."""
    if worker.desired_status is not DesiredStatus.STOPPED:
        return {"desired_status": DesiredStatus.RUNNING}
    counter = "auto_resume_count" if by_policy else "manual_resume_count"
    return {
        **_DRIFT_RESET,
        "desired_status": DesiredStatus.RUNNING,
        "pause_reason": None,
        "paused_by_policy": False,
        counter: getattr(worker, counter) + 1,
    }


MANUAL_PAUSE_REASON = "manual"


def start(worker: Worker, now: datetime) -> Worker:
    """Want it running; a drain under way is cancelled."""
    _check_commandable(worker, "start")
    fields = resume_fields(worker, by_policy=False)
    if worker.status is WorkerStatus.DRAINING:
        fields |= on_enter(worker, WorkerStatus.RUNNING, now)
    return updated_worker(worker, now, bump_generation=True, **fields)


def stop(worker: Worker, now: datetime, reason: str | None = None) -> Worker:
    """Want it stopped, without waiting for lablets; a drain under way is cut short."""
    _check_commandable(worker, "stop")
    fields = pause_fields(worker, now, reason or MANUAL_PAUSE_REASON, by_policy=False)
    if worker.status is WorkerStatus.DRAINING:
        fields |= on_enter(worker, WorkerStatus.STOPPING, now)
    return updated_worker(worker, now, bump_generation=True, **fields)


def terminate(worker: Worker, now: datetime) -> Worker:
    """Want it gone for good."""
    if worker.status is WorkerStatus.TERMINATED:
        return worker
    return updated_worker(worker, now, bump_generation=True, desired_status=DesiredStatus.TERMINATED)


def drain(worker: Worker, now: datetime, reason: str | None = None, *, by_policy: bool = False) -> Worker:
    """Take no new lablets, wait for those there, then stop."""
    _check_not_terminating(worker, "drain")
    if worker.status is WorkerStatus.DRAINING:
        return worker
    if worker.status is not WorkerStatus.RUNNING:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"only a RUNNING worker can be drained; this one is {worker.status}"
        )
    fields = pause_fields(worker, now, reason or "drain", by_policy=by_policy)
    fields |= on_enter(worker, WorkerStatus.DRAINING, now)
    return updated_worker(worker, now, bump_generation=True, **fields)


def cancel_drain(worker: Worker, now: datetime) -> Worker:
    """Take lablets again."""
    _check_not_terminating(worker, "cancel-drain")
    if worker.status is not WorkerStatus.DRAINING:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"there is no drain to cancel; the worker is {worker.status}")
    fields = resume_fields(worker, by_policy=False) | on_enter(worker, WorkerStatus.RUNNING, now)
    return updated_worker(worker, now, bump_generation=True, **fields)


def retry(worker: Worker, now: datetime) -> Worker:
    """Try a failed worker again: with its instance if it has one, else with a new attempt to launch."""
    _check_not_terminating(worker, "retry")
    if worker.status is not WorkerStatus.FAILED:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"only a FAILED worker can be retried; this one is {worker.status}"
        )
    following = WorkerStatus.STARTING if worker.instance_id else WorkerStatus.PENDING
    fields = on_enter(worker, following, now) | {"replaced_at": (), "drifted_at": ()}
    if following is WorkerStatus.PENDING:
        fields["launch_intent"] = None  # a settled one: the next attempt has a token and parameters of its own
    return updated_worker(worker, now, bump_generation=True, **fields)


def _check_not_terminating(worker: Worker, command: str) -> None:
    if worker.status is WorkerStatus.TERMINATED:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"cannot {command}: the worker is TERMINATED; create a new one"
        )
    if worker.desired_status is DesiredStatus.TERMINATED:
        detail = f"cannot {command}: the worker is to be terminated, and that is final; create a new one"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


def _check_commandable(worker: Worker, command: str) -> None:
    _check_not_terminating(worker, command)
    if worker.status is WorkerStatus.FAILED:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"cannot {command}: the worker has FAILED; retry or terminate it"
        )


def make_hold(request: HoldRequest, by: str, now: datetime) -> Hold:
    """The hold that is asked for; one that would have ended already is refused."""
    if request.until is not None and request.until <= now:
        raise ProblemError(ProblemCode.INVALID, f"until: {request.until.isoformat()} is not in the future")
    return Hold(reason=request.reason, by=by, since=now, until=request.until)


def hold(worker: Worker, request: HoldRequest, by: str, now: datetime) -> Worker:
    """Stop all changes of this worker."""
    if worker.status is WorkerStatus.TERMINATED:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the worker is TERMINATED: there is nothing left to hold")
    wanted = make_hold(request, by, now)
    present = worker.hold
    if present is not None and (present.reason, present.until) == (wanted.reason, wanted.until):
        return worker  # asked again: who held it first and since when stays
    return updated_worker(worker, now, bump_generation=True, hold=wanted)


def release(worker: Worker, now: datetime) -> Worker:
    """Let changes go on."""
    return updated_worker(worker, now, bump_generation=True, hold=None)
