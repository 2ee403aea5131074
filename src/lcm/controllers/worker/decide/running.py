"""RUNNING: checks the desired status, EC2, CML, the license and the activity of the worker."""

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
    TELEMETRY_PRESENT,
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
from lcm.controllers.worker.decide.shared.kvm import NO_KVM, kvm_conditions, missing_kvm
from lcm.controllers.worker.decide.shared.license import license_step
from lcm.controllers.worker.decide.shared.license_release import releases_on_stop
from lcm.controllers.worker.decide.shared.maintenance import with_restart
from lcm.controllers.worker.decision import CheckIdle, ConditionUpdate, WriteStatus, success, wait
from lcm.controllers.worker.observe.observation import NO_EVENTS
from lcm.core.controller.resources import Outcome
from lcm.model.formatting import count_minutes
from lcm.model.worker.conditions import ConditionStatus, ConditionType, find_condition
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

CML_POLL_SECONDS = 10.0
_RUNNING = (instance_ready(True, "Running"), NOT_DRAINING)


def decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    """Desired status, drift, CML, license and activity, in this order; scale-down follows from the activity."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, observed, policy)
    state = observed.instance.state
    if state is InstanceState.PENDING and worker.desired_status is DesiredStatus.STOPPED:
        return wait(
            "stop.pending",
            "the desired status is STOPPED, but a pending instance cannot be stopped yet",
            after=POLL_SECONDS,
        )
    if state is not InstanceState.RUNNING:
        if state in (InstanceState.PENDING, InstanceState.STOPPING, InstanceState.STOPPED):
            return follow_instance(worker, observed, now)
        return unexpected_state(worker, observed, policy) or instance_not_visible(observed)
    if worker.desired_status is DesiredStatus.STOPPED:
        reason = f"the desired status is STOPPED{_pause_reason(worker)}"
        return begin_stop(reason, release_first=releases_on_stop(worker, policy))
    return with_restart(worker, observed, policy, now, _decide_running(worker, observed, policy, now))


def _pause_reason(worker: Worker) -> str:
    return f" ({worker.pause_reason})" if worker.pause_reason else ""


def _decide_running(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    decided = _cml(worker, observed, policy, now)
    changes, cml_fields = changed_instance_fields(worker, observed.instance), _cml_fields(worker, observed)
    if changes or cml_fields:
        reason = (
            "the instance's addresses or type changed" if changes else "CML reported its version, nodes or certificate"
        )
        decided = decided.with_added(
            WriteStatus(WorkerStatus.RUNNING, reason, ActionKind.RECORD, {**changes, **cml_fields})
        )
    decided = decided.with_added(conditions=_RUNNING)
    if observed.cml.ready is not True:
        return decided
    license_decision = license_step(worker, observed)
    if license_decision is not None:
        decided = decided.with_added(*license_decision.actions, conditions=license_decision.conditions)
        if license_decision.after is not None:
            decided = replace(decided, outcome=Outcome.REQUEUE, after=license_decision.after)
        if license_decision.actions:
            decided = replace(decided, rule=license_decision.rule, reason=license_decision.reason)
    decided = decided.with_added(conditions=_telemetry_conditions(worker, observed, policy, now))
    if _idle_check_due(worker, policy, now):
        decided = decided.with_added(CheckIdle())
    return decided


def _cml_fields(worker: Worker, observed: Observation) -> dict[str, Any]:
    """What CML reported and the record does not have yet. A pinned certificate is never replaced here."""
    cml, fields = observed.cml, dict[str, Any]()
    if cml.presented is not None or cml.ready is True:
        fields["cml_certificate_presented"] = cml.presented
    if cml.ready is True:
        reported = {"cml_version": cml.version, "node_definitions": cml.definitions}
        if worker.cml_certificate is None:
            reported["cml_certificate"] = cml.certificate
        fields |= {name: value for name, value in reported.items() if value is not None}
    return {name: value for name, value in fields.items() if getattr(worker, name) != value}


def _cml(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    conditions = cml_conditions(worker, observed)
    if observed.cml.ready:
        conditions += kvm_conditions(observed)
        if (missing := missing_kvm(worker, observed)) is not None:
            return wait("running.no_kvm", missing, after=None, conditions=(*conditions, stuck(NO_KVM, missing)))
        return success("running.steady", "the worker runs and CML responds", conditions=(*conditions, NOT_STUCK))
    if not conditions:
        return wait("running.not_queried", "CML has not been queried yet", after=CML_POLL_SECONDS)
    (condition,) = conditions
    why = condition.message
    waited = _not_ready_for(worker, now)
    if waited <= policy.cml_ready_timeout:
        state = "it is not known whether CML is ready" if observed.cml.ready is None else "CML is not ready yet"
        return wait(
            "running.booting",
            f"the instance runs, but {state}: {why}",
            after=CML_POLL_SECONDS,
            conditions=(condition,),
        )
    message = f"CML has not been ready for {count_minutes(waited)}: {why}"
    return wait("running.stuck", message, after=None, conditions=(condition, stuck("CmlNotReady", message)))


def _not_ready_for(worker: Worker, now: datetime) -> float:
    """Seconds since CML was last ready, or since the worker became RUNNING."""
    ready = find_condition(worker.conditions, ConditionType.CML_READY)
    if ready is None or ready.since <= worker.status_since:
        return seconds_in_status(worker, now)
    return 0.0 if ready.status is ConditionStatus.TRUE else (now - ready.since).total_seconds()


def _telemetry_conditions(
    worker: Worker, observed: Observation, policy: Policy, now: datetime
) -> tuple[ConditionUpdate, ...]:
    """Report that idle detection does not work. A successful check removes the condition."""
    if not worker.idle_detection_enabled:
        return (TELEMETRY_PRESENT,)
    if not observed.cml.activity_error:
        return ()
    ready = find_condition(worker.conditions, ConditionType.CML_READY)
    since = max(
        worker.status_since,
        worker.last_idle_check_at or worker.status_since,
        ready.since if ready is not None else worker.status_since,
    )
    missing = (now - since).total_seconds()
    if missing <= policy.telemetry_missing_after:
        return ()
    reason = "NoEvents" if observed.cml.activity_error == NO_EVENTS else "ReadFailed"
    message = (
        f"no activity could be read for {missing / 3600:.0f} hours, so it is not paused when idle:"
        f" {observed.cml.activity_error}"
    )
    return (
        ConditionUpdate(ConditionType.TELEMETRY_MISSING, ConditionStatus.TRUE, reason, message),
        ConditionUpdate(ConditionType.IDLE, ConditionStatus.UNKNOWN, "NoTelemetry", message),
    )


def _idle_check_due(worker: Worker, policy: Policy, now: datetime) -> bool:
    if not worker.idle_detection_enabled or policy.settings is None:
        return False
    interval = timedelta(seconds=policy.settings.idle.idle_detection_interval)
    return worker.last_idle_check_at is None or now - worker.last_idle_check_at >= interval
