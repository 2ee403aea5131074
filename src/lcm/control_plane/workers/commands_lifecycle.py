"""Start, stop, terminate, drain, cancel a drain, retry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import Refusal
from lcm.control_plane.workers.lifecycle import changed, entering, pausing, resuming
from lcm.model.problems import ProblemCode
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.record import Worker

MANUAL = "manual"


def start(worker: Worker, now: datetime) -> Worker:
    """Want it running; a drain under way is cancelled."""
    _can_still_be_told(worker, "start")
    fields = resuming(worker, by_policy=False)
    if worker.status is WorkerStatus.DRAINING:
        fields |= entering(worker, WorkerStatus.RUNNING, now)
    return changed(worker, now, asks_anew=True, **fields)


def stop(worker: Worker, now: datetime, reason: str | None = None) -> Worker:
    """Want it stopped, without waiting for lablets; a drain under way is cut short."""
    _can_still_be_told(worker, "stop")
    fields = pausing(worker, now, reason or MANUAL, by_policy=False)
    if worker.status is WorkerStatus.DRAINING:
        fields |= entering(worker, WorkerStatus.STOPPING, now)
    return changed(worker, now, asks_anew=True, **fields)


def terminate(worker: Worker, now: datetime) -> Worker:
    """Want it gone for good."""
    if worker.status is WorkerStatus.TERMINATED:
        return worker
    return changed(worker, now, asks_anew=True, desired_status=DesiredStatus.TERMINATED)


def drain(worker: Worker, now: datetime, reason: str | None = None, *, by_policy: bool = False) -> Worker:
    """Take no new lablets, wait for those there, then stop."""
    _not_to_be_terminated(worker, "drain")
    if worker.status is WorkerStatus.DRAINING:
        return worker
    if worker.status is not WorkerStatus.RUNNING:
        raise Refusal(
            ProblemCode.NOT_POSSIBLE_NOW, f"only a RUNNING worker can be drained; this one is {worker.status}"
        )
    fields = pausing(worker, now, reason or "drain", by_policy=by_policy)
    fields |= entering(worker, WorkerStatus.DRAINING, now)
    return changed(worker, now, asks_anew=True, **fields)


def cancel_drain(worker: Worker, now: datetime) -> Worker:
    """Take lablets again."""
    _not_to_be_terminated(worker, "cancel-drain")
    if worker.status is not WorkerStatus.DRAINING:
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, f"there is no drain to cancel; the worker is {worker.status}")
    fields = resuming(worker, by_policy=False) | entering(worker, WorkerStatus.RUNNING, now)
    return changed(worker, now, asks_anew=True, **fields)


def retry(worker: Worker, now: datetime) -> Worker:
    """Try a failed worker again: with its instance if it has one, else with a new attempt to launch."""
    _not_to_be_terminated(worker, "retry")
    if worker.status is not WorkerStatus.FAILED:
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, f"only a FAILED worker can be retried; this one is {worker.status}")
    following = WorkerStatus.STARTING if worker.instance_id else WorkerStatus.PENDING
    fields = entering(worker, following, now) | {"replaced_at": (), "drifted_at": ()}
    if following is WorkerStatus.PENDING:
        fields["launch_intent"] = None  # a settled one: the next attempt has a token and parameters of its own
    return changed(worker, now, asks_anew=True, **fields)


def _not_to_be_terminated(worker: Worker, command: str) -> None:
    if worker.status is WorkerStatus.TERMINATED:
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, f"cannot {command}: the worker is TERMINATED; create a new one")
    if worker.desired_status is DesiredStatus.TERMINATED:
        detail = f"cannot {command}: the worker is to be terminated, and that is final; create a new one"
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, detail)


def _can_still_be_told(worker: Worker, command: str) -> None:
    _not_to_be_terminated(worker, command)
    if worker.status is WorkerStatus.FAILED:
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, f"cannot {command}: the worker has FAILED; retry or terminate it")
