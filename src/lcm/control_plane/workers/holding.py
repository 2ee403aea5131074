"""Hold a worker, and release it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import Refusal
from lcm.control_plane.workers.lifecycle import changed
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Hold
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import HoldRequest


def make_hold(request: HoldRequest, by: str, now: datetime) -> Hold:
    """The hold that is asked for; one that would have ended already is refused."""
    if request.until is not None and request.until <= now:
        raise Refusal(ProblemCode.INVALID, f"until: {request.until.isoformat()} is not in the future")
    return Hold(reason=request.reason, by=by, since=now, until=request.until)


def hold(worker: Worker, request: HoldRequest, by: str, now: datetime) -> Worker:
    """Stop all changes of this worker."""
    if worker.status is WorkerStatus.TERMINATED:
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, "the worker is TERMINATED: there is nothing left to hold")
    wanted = make_hold(request, by, now)
    present = worker.hold
    if present is not None and (present.reason, present.until) == (wanted.reason, wanted.until):
        return worker  # asked again: who held it first and since when stays
    return changed(worker, now, asks_anew=True, hold=wanted)


def release(worker: Worker, now: datetime) -> Worker:
    """Let changes go on."""
    return changed(worker, now, asks_anew=True, hold=None)
