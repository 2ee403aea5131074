"""RUNNING: what is wanted, what EC2 shows, whether CML answers, its licence, and whether anybody uses it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import (
    NOT_DRAINING,
    NOT_STUCK,
    POLL_SECONDS,
    changed_instance_fields,
    cml_conditions,
    instance_ready,
    seconds_in_status,
    stuck,
)
from lcm.controllers.worker.decide.shared.instance import (
    begin_stop,
    begin_termination,
    follow_instance,
    instance_not_visible,
    unexpected_state,
)
from lcm.controllers.worker.decide.shared.license import license_step
from lcm.controllers.worker.decision import CheckIdle, WriteStatus, success, wait
from lcm.core.controller.resources import Outcome
from lcm.model.worker.conditions import ConditionStatus, ConditionType, find_condition
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker

CML_POLL_SECONDS = 10.0


def decide(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """Six steps: desired state, drift, figures, licence, activity; scale-down follows what the activity shows."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, seen, policy)
    state = seen.sight.state
    if state is InstanceState.PENDING and worker.desired_status is DesiredStatus.STOPPED:
        return wait("stop.pending", "it is to be stopped, which a pending instance cannot be yet", after=POLL_SECONDS)
    if state is not InstanceState.RUNNING:
        if state in (InstanceState.PENDING, InstanceState.STOPPING, InstanceState.STOPPED):
            return follow_instance(worker, seen)
        return unexpected_state(worker, seen, policy) or instance_not_visible(seen)
    if worker.desired_status is DesiredStatus.STOPPED:
        return begin_stop(f"it is to be stopped{_pause_reason(worker)}")
    return _steady(worker, seen, policy, now)


def _pause_reason(worker: Worker) -> str:
    return f" ({worker.pause_reason})" if worker.pause_reason else ""


def _steady(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    decided = _cml(worker, seen, policy, now)
    moved, offered = changed_instance_fields(worker, seen.sight), _cml_fields(worker, seen)
    if moved or offered:
        reason = "its addresses or kind changed" if moved else "what its CML offers is known"
        decided = decided.adding(WriteStatus(WorkerStatus.RUNNING, reason, ActionKind.RECORD, {**moved, **offered}))
    decided = decided.adding(conditions=(instance_ready(True, "Running"), NOT_DRAINING))
    if seen.cml.ready is not True:
        return decided
    licence = license_step(worker, seen)
    if licence is not None:
        decided = decided.adding(*licence.actions, conditions=licence.conditions)
        if licence.after is not None:
            decided = replace(decided, outcome=Outcome.REQUEUE, after=licence.after)
        if licence.actions:
            decided = replace(decided, rule=licence.rule, reason=licence.reason)
    if _idle_check_due(worker, policy, now):
        decided = decided.adding(CheckIdle())
    return decided


def _cml_fields(worker: Worker, seen: Observation) -> dict[str, Any]:
    """What placements depend on, where CML says something else than the record: its version, its kinds of nodes."""
    if seen.cml.ready is not True:
        return {}
    said = {"cml_version": seen.cml.version, "node_definitions": seen.cml.definitions}
    return {name: value for name, value in said.items() if value is not None and getattr(worker, name) != value}


def _cml(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    verdict = cml_conditions(seen)
    if seen.cml.ready:
        return success("running.steady", "it runs and CML answers", conditions=(*verdict, NOT_STUCK))
    if not verdict:
        return wait("running.not_asked", "CML has not been asked yet", after=CML_POLL_SECONDS)
    (said,) = verdict
    why = said.message
    waited = _not_ready_for(worker, now)
    if waited <= policy.cml_ready_timeout:
        return wait(
            "running.booting",
            f"the instance runs, CML does not answer yet: {why}",
            after=CML_POLL_SECONDS,
            conditions=(said,),
        )
    message = f"CML is not ready for {waited / 60:.0f} minutes: {why}"
    return wait("running.stuck", message, after=None, conditions=(said, stuck("CmlNotReady", message)))


def _not_ready_for(worker: Worker, now: datetime) -> float:
    """Seconds since CML was last known to answer, or since the worker runs."""
    known = find_condition(worker.conditions, ConditionType.CML_READY)
    if known is None or known.since <= worker.status_since:
        return seconds_in_status(worker, now)
    return 0.0 if known.status is ConditionStatus.TRUE else (now - known.since).total_seconds()


def _idle_check_due(worker: Worker, policy: Policy, now: datetime) -> bool:
    if not worker.idle_detection_enabled or policy.settings is None:
        return False
    interval = timedelta(seconds=policy.settings.idle.idle_detection_interval)
    return worker.last_idle_check_at is None or now - worker.last_idle_check_at >= interval
