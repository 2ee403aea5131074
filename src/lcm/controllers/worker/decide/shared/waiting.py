"""Workers that wait for something outside LCM: capacity, credentials, a license. Each wait has a bound.

The condition Waiting is on the record with the time at which the wait began, so that the bound outlives a leader. A
worker that has waited for CAPACITY_WAIT_LIMIT is Stuck, and goes on trying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.worker.decide.shared.conditions import NOT_STUCK, stuck
from lcm.controllers.worker.decision import ConditionUpdate, WriteStatus
from lcm.controllers.worker.observe.observation import Visibility
from lcm.model.formatting import count_minutes
from lcm.model.worker.conditions import CAPACITY_LACKING, STILL_WAITING, ConditionStatus, ConditionType, find_condition
from lcm.model.worker.status import STATUSES

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.conditions import Condition
    from lcm.model.worker.record import Worker

MAX_PAUSE_SECONDS = 600.0
"""The longest pause between two calls that find no capacity."""
_INSTANT_SECONDS = 0.001
"""What is left of a pause by rounding: moments have microseconds."""
NOT_OBSERVED = "NotObserved"
NOT_WAITING = ConditionUpdate(ConditionType.WAITING, None)


def waiting_for(reason: str, message: str) -> ConditionUpdate:
    """The condition of a worker that goes on as soon as something outside LCM allows it."""
    return ConditionUpdate(ConditionType.WAITING, ConditionStatus.TRUE, reason, message)


def current_wait(worker: Worker) -> Condition | None:
    """The wait that is on the record."""
    found = find_condition(worker.conditions, ConditionType.WAITING)
    return found if found is not None and found.status is ConditionStatus.TRUE else None


def pause_without_capacity(worker: Worker, observed: Observation, now: datetime, *, shortest: float = 0.0) -> float:
    """Seconds until capacity is worth another try.

    The pause after a call is as long as the worker had waited until then, up to minutes. It does not grow while it
    lasts: a plan says when it ends.
    """
    wait = current_wait(worker)
    if wait is None or wait.reason != CAPACITY_LACKING or observed.no_capacity_at is None:
        return 0.0
    since_call = observed.boottime - observed.no_capacity_at
    waited_before = (now - wait.since).total_seconds() - since_call
    left = min(MAX_PAUSE_SECONDS, max(shortest, waited_before)) - since_call
    return left if left > _INSTANT_SECONDS else 0.0


def note_blindness(worker: Worker, observed: Observation, decision: Decision) -> Decision:
    """A worker that is on its way waits while its instance cannot be read, and no longer when it is seen again."""
    if any(each.type is ConditionType.WAITING for each in decision.conditions):
        return decision
    wait = current_wait(worker)
    if observed.instance.visibility is Visibility.SEEN:
        over = wait is not None and wait.reason == NOT_OBSERVED
        return decision.with_added(conditions=(NOT_WAITING,)) if over else decision
    info = STATUSES[worker.status]
    on_its_way = info.in_progress or info.leads_to is not worker.desired_status
    if observed.instance.visibility is Visibility.NOT_OBSERVED and observed.instance.error and on_its_way and not wait:
        return decision.with_added(conditions=(waiting_for(NOT_OBSERVED, decision.reason),))
    return decision


def bound_wait(worker: Worker, decision: Decision, policy: Policy, now: datetime) -> Decision:
    """The decision with what follows from its wait: Stuck past the limit, and nothing of it once the worker goes on."""
    update = next((each for each in decision.conditions if each.type is ConditionType.WAITING), None)
    moves = any(isinstance(each, WriteStatus) and each.status is not worker.status for each in decision.actions)
    if update is None and moves:
        update = NOT_WAITING
        decision = decision.with_added(conditions=(NOT_WAITING,))
    wait = current_wait(worker)
    waited = 0.0 if wait is None else (now - wait.since).total_seconds()
    if wait is not None and (update is None or update.status is not None) and waited > policy.capacity_wait_limit:
        cause = wait.message if update is None else update.message
        message = f"waiting for more than {count_minutes(policy.capacity_wait_limit)}: {cause}"
        return decision.with_added(conditions=(stuck(STILL_WAITING, message),))
    if update is None:
        return decision
    before = find_condition(worker.conditions, ConditionType.STUCK)
    over = before is not None and before.reason == STILL_WAITING
    sets_stuck = any(each.type is ConditionType.STUCK for each in decision.conditions)
    return decision.with_added(conditions=(NOT_STUCK,)) if over and not sets_stuck else decision
