"""What follows from the schedules of a worker: it is stopped outside their windows, and started when one opens.

Past the end of a window a worker that is used is left alone, however long that takes: it gets no new lablets, and is
stopped once no lablet is assigned to it and no node runs on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.maintenance import merge_wait, node_block
from lcm.controllers.worker.decision import CheckIdle, FollowSchedule, WriteStatus, wait
from lcm.model.calendar.schedule import due_change
from lcm.model.worker.maintenance import lablet_block
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.calendar.precedence import Claim
    from lcm.model.worker.record import Worker

_STARTABLE = (WorkerStatus.RUNNING, WorkerStatus.STOPPING, WorkerStatus.STOPPED, WorkerStatus.PENDING)
_NOT_RUNNING = (WorkerStatus.STOPPED, WorkerStatus.PENDING)


def with_schedule(worker: Worker, observed: Observation, policy: Policy, now: datetime, decided: Decision) -> Decision:
    """The decision about a worker, with the stop or start that its schedules want, if nothing comes first."""
    claim = due_change(worker, policy.schedules, now) if policy.schedules else None
    if claim is None or _records_first(worker, decided):
        return decided
    if claim.desired is DesiredStatus.RUNNING:
        return _started(worker, claim, decided)
    if worker.status in _NOT_RUNNING:
        # It has not run yet. A launch whose outcome is not known is found out first.
        return decided if worker.launch_intent is not None else _following(claim, decided)
    if worker.status is not WorkerStatus.RUNNING:
        return decided  # one that is starting is stopped when it runs
    block = lablet_block(worker) or node_block(worker, observed, "stop it")
    if block is not None:
        return merge_wait(decided, wait("schedule.waits", f"{claim.reason}; it is not stopped yet: {block}"))
    if any(not isinstance(action, WriteStatus | CheckIdle) for action in decided.actions):
        return decided  # what is being done already, such as a license operation, comes first
    return _following(claim, decided).with_added(conditions=decided.conditions)


def _started(worker: Worker, claim: Claim, decided: Decision) -> Decision:
    return _following(claim, decided) if worker.status in _STARTABLE else decided


def _records_first(worker: Worker, decided: Decision) -> bool:
    """Whether the pass records that the worker is in another status: the next one then follows the schedules."""
    return any(
        isinstance(action, WriteStatus) and action.kind is not ActionKind.INTENT and action.status is not worker.status
        for action in decided.actions
    )


def _following(claim: Claim, decided: Decision) -> Decision:
    """Instead of what the former desired status leads to; what was only observed is recorded all the same."""
    observed = tuple(
        action for action in decided.actions if isinstance(action, WriteStatus) and action.kind is ActionKind.RECORD
    )
    rule = "schedule.start" if claim.desired is DesiredStatus.RUNNING else "schedule.stop"
    following = wait(rule, claim.reason, *observed, FollowSchedule(claim.desired, claim.reason), after=0.0)
    return replace(following, inputs=decided.inputs, drift=decided.drift)
