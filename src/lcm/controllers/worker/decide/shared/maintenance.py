"""What follows from what EC2 reports about the health of an instance: conditions, and moving it to another host.

With MAINTENANCE_POLICY=plan a worker that nobody uses is stopped and started again. The pause reason on the record says
so, and whoever leads then goes on from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import stuck
from lcm.controllers.worker.decision import (
    ChangeHost,
    CheckIdle,
    ConditionUpdate,
    MaintenanceStep,
    WriteStatus,
    wait,
)
from lcm.core.controller.resources import Outcome
from lcm.model.calendar.precedence import booking_claim, override_claim
from lcm.model.fleet.settings import MaintenancePolicy
from lcm.model.formatting import count_of
from lcm.model.worker.conditions import ConditionStatus, ConditionType
from lcm.model.worker.maintenance import lablet_block, restart_need
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import HealthObservation, Observation
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.record import Worker

_NOT_ANNOUNCED = ConditionUpdate(ConditionType.MAINTENANCE, None)
_NOT_IMPAIRED = ConditionUpdate(ConditionType.IMPAIRED, None)
_RECORDED = "EC2 reports another health of the instance"


def note_health(worker: Worker, observed: Observation, decided: Decision) -> Decision:
    """The decision with what EC2 reports about the instance; a pass that changes the status leaves it to the next."""
    health = observed.health
    writes = [action for action in decided.actions if isinstance(action, WriteStatus)]
    if health is None or worker.instance_id is None or any(write.status is not worker.status for write in writes):
        return decided
    decided = decided.with_added(conditions=_conditions(observed, health))
    fields = _changed_fields(worker, observed, health)
    if not fields:
        return decided
    if not writes:
        write = WriteStatus(worker.status, _RECORDED, ActionKind.RECORD, fields)
        return replace(decided, actions=(write, *decided.actions))
    last = replace(writes[-1], fields={**writes[-1].fields, **fields})
    return replace(decided, actions=tuple(last if each is writes[-1] else each for each in decided.actions))


def _conditions(observed: Observation, health: HealthObservation) -> tuple[ConditionUpdate, ...]:
    announced, state = health.maintenance, observed.instance.state
    maintenance = _NOT_ANNOUNCED
    if announced is not None:
        reason = "".join(part.capitalize() for part in announced.code.split("-"))
        maintenance = ConditionUpdate(
            ConditionType.MAINTENANCE, ConditionStatus.TRUE, reason, announced.text, exact=True
        )
    if state is None:
        return (maintenance,)
    if not health.impairment or state is not InstanceState.RUNNING:  # a stopped instance has no status checks
        return (maintenance, _NOT_IMPAIRED)
    impaired = ConditionUpdate(
        ConditionType.IMPAIRED, ConditionStatus.TRUE, "StatusCheckFailed", health.impairment, exact=True
    )
    return (maintenance, impaired)


def _changed_fields(worker: Worker, observed: Observation, health: HealthObservation) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if health.maintenance != worker.maintenance:
        fields["maintenance"] = health.maintenance
    runs = worker.status is WorkerStatus.RUNNING and observed.instance.state is InstanceState.RUNNING
    if worker.maintenance_restarts and runs and health.is_healthy:
        fields["health_verified"] = True
    return fields


def is_to_start_again(worker: Worker, now: datetime) -> bool:
    """Whether the worker is stopped only to move to another host, and nobody wants it to stay stopped."""
    claim = booking_claim(worker, now) or override_claim(worker, now)
    return worker.is_in_maintenance and (claim is None or claim.desired is DesiredStatus.RUNNING)


def start_again() -> Decision:
    """The worker was stopped only to move to another host, and is stopped now."""
    reason = "the worker was stopped for maintenance and is started again, on another host"
    return wait("maintenance.start", reason, ChangeHost(MaintenanceStep.START, reason), after=0.0)


def with_restart(worker: Worker, observed: Observation, policy: Policy, now: datetime, decided: Decision) -> Decision:
    """The decision about a running worker, with its move to another host if one is due and nothing is in the way."""
    step = _restart_step(worker, observed, policy, now)
    if step is None:
        return decided
    if not step.actions:
        return merge_wait(decided, step)
    if any(not isinstance(action, WriteStatus | CheckIdle) for action in decided.actions):
        return decided  # what is being done already, such as a license operation, comes first
    restarting = replace(decided, rule=step.rule, reason=step.reason, outcome=step.outcome, after=step.after)
    return restarting.with_added(*step.actions, conditions=step.conditions)


def merge_wait(decided: Decision, step: Decision) -> Decision:
    """Both wait: the one that checks earlier says when, and a worker that is otherwise well says what it waits for."""
    if decided.rule == "running.steady":
        decided = replace(decided, rule=step.rule, reason=step.reason)
    if step.after is not None and (decided.after is None or step.after < decided.after):
        decided = replace(decided, outcome=Outcome.REQUEUE, after=step.after)
    return decided.with_added(conditions=step.conditions)


def _restart_step(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision | None:
    settings = policy.settings
    if settings is None or settings.maintenance.maintenance_policy is not MaintenancePolicy.PLAN:
        return None
    need = restart_need(worker, settings.maintenance, now)
    if need is None:
        return None
    left = (need.due - now).total_seconds()
    if left > 0:
        return wait("maintenance.not_due", f"{need.reason}; it is restarted if that lasts", after=left)
    if need.is_exhausted:
        remedy = f"lcm workers stop {worker.name}, then lcm workers start {worker.name}"
        message = (
            f"{need.reason}, after {count_of(need.restarts, 'restart')} on other hosts; to try once more: {remedy}"
        )
        return wait("maintenance.given_up", message, conditions=(stuck(need.stuck_reason, message),))
    claim = booking_claim(worker, now) or override_claim(
        worker, now
    )  # a hold keeps the action itself, so that the plan shows it
    block = _block(worker, observed, settings) if claim is None else claim.reason
    if block is not None:
        return wait("maintenance.waits", f"{need.reason}; it is moved to another host later: {block}")
    reason = f"{need.reason}; it is not in use, so it is stopped and started again on another host"
    return wait("maintenance.stop", reason, ChangeHost(MaintenanceStep.STOP, reason), after=0.0)


def _block(worker: Worker, observed: Observation, settings: FleetSettings) -> str | None:
    """What keeps the worker from being restarted now."""
    health = observed.health
    if health is None or not (health.maintenance is not None or health.impairment):
        return "the health that EC2 reports must be read again first"
    lablets = lablet_block(worker)
    if lablets is not None:
        return lablets
    running = node_block(worker, observed, "restart it")
    if running is not None:
        return running
    if observed.in_service <= settings.scaling.min_workers:
        return f"{observed.in_service} workers run and MIN_WORKERS is {settings.scaling.min_workers}"
    return f"{observed.moving} moves first" if observed.moving else None


def node_block(worker: Worker, observed: Observation, doing: str) -> str | None:
    """Why a worker must not be stopped now: nodes run on it, or nobody knows (of an impaired one: the last count)."""
    nodes = observed.cml.running_nodes
    if nodes is None and observed.health is not None and observed.health.impairment:
        nodes = observed.cml.last_running_nodes
    if nodes is None:
        return f"CML does not report whether nodes run on it; to {doing} anyway: lcm workers stop {worker.name}"
    return f"{count_of(nodes, 'node')} {'runs' if nodes == 1 else 'run'} on it" if nodes else None
