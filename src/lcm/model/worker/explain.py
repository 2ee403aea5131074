"""Explains in sentences why a worker has its status, what blocks it, and what happens next. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from lcm.model.audit import ActorKind, DecisionReport, WorkerHistoryEntry
from lcm.model.base import CARRIED, LenientModel
from lcm.model.calendar.precedence import booking_claim, override_claim
from lcm.model.calendar.schedule_text import schedule_sentences, scheduled_step, stopping_schedule
from lcm.model.fleet.settings import IdleAction, MaintenancePolicy
from lcm.model.formatting import (
    as_clause,
    count_with_verb,
    format_clock_time,
    humanize_ago,
    humanize_duration,
    humanize_until,
)
from lcm.model.worker.conditions import (
    NOT_VISIBLE,
    Condition,
    ConditionStatus,
    ConditionType,
    find_condition,
    is_condition_true,
)
from lcm.model.worker.cost import current_cost
from lcm.model.worker.idle import idle_action_due, idle_policy_action, idle_since
from lcm.model.worker.maintenance import lablet_block, restart_need
from lcm.model.worker.next_step import next_step_of
from lcm.model.worker.record import Hold
from lcm.model.worker.status import STATUSES, DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lcm.model.calendar.schedule import Schedule
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.fleet.state import FleetState
    from lcm.model.worker.record import Worker

_MINUTE = timedelta(minutes=1)
_MAX_ACTIONS = 3
_IDLE_VERBS = {IdleAction.DRAIN: "drained", IdleAction.PAUSE: "paused", None: None}
_GENERIC_REASONS = ("manual", "drain")  # default reasons, which explain nothing
_IDLE_REASON = "idle_timeout"
_EXTERNAL_STOP_REASON = "stopped from outside"
_NOT_READY_WORDS = {
    "AccountRefused": "CML has refused LCM's account",
    "CertificateChanged": "its certificate has not been trusted",
}


class Explanation(LenientModel):
    """Why a worker has its status, and what happens next."""

    worker_id: str
    summary: str
    next: str
    status: Annotated[WorkerStatus, CARRIED]
    desired_status: Annotated[DesiredStatus, CARRIED]
    ready: bool
    conditions: tuple[Condition, ...] = ()
    hold: Hold | None = None
    last_transition: WorkerHistoryEntry | None = None
    decision: DecisionReport | None = None


@dataclass(frozen=True, slots=True)
class ExplainInput:
    """The inputs of an explanation."""

    worker: Worker
    decision: DecisionReport | None
    fleet: FleetState
    settings: FleetSettings
    last: WorkerHistoryEntry | None
    now: datetime
    schedules: tuple[Schedule, ...] = ()
    stale: str = ""  # why the decision is not for the record as it is now; empty if it is


def explain(inputs: ExplainInput) -> Explanation:
    """Explain a worker. The inputs contain no secrets, and launch parameters are not used."""
    worker = inputs.worker
    following = next_step_sentence(inputs)
    sentences = [_status_sentence(inputs), *_detail_sentences(inputs), following]
    return Explanation(
        worker_id=worker.id,
        summary=" ".join(sentences),
        next=following,
        status=worker.status,
        desired_status=worker.desired_status,
        ready=worker.ready,
        conditions=worker.conditions,
        hold=worker.hold,
        last_transition=inputs.last,
        decision=inputs.decision,
    )


def next_step_sentence(inputs: ExplainInput) -> str:
    """Return what happens next and roughly when, or what a person has to do first."""
    worker, step = inputs.worker, next_step_of(inputs.worker)
    scheduled = scheduled_step(worker, inputs.schedules, inputs.now) if step.is_settled or worker.ready else None
    if scheduled is not None and not _hold_sentences(inputs):
        return scheduled
    if step.is_settled:
        return _sentence(step.clause)
    stuck = find_condition(worker.conditions, ConditionType.STUCK)
    if worker.drifted and stuck is not None and stuck.status is ConditionStatus.TRUE:
        commands = f"lcm workers stop {worker.name}, then lcm workers start {worker.name}"
        return f"It is not restarted automatically for now{_next_check(inputs)}; to restart it: {commands}."
    held = _hold_sentences(inputs)
    if held and step.is_action:
        return f"No changes are made while the hold is active; after that, {step.clause}."
    if worker.ready:
        return "It keeps running and is not paused while the hold is active." if held else _idle_sentence(inputs)
    return _sentence(f"{step.clause}{_next_check(inputs)}")


# The status


def _status_sentence(inputs: ExplainInput) -> str:
    worker, now = inputs.worker, inputs.now
    leads_to = STATUSES[worker.status].leads_to
    if worker.status is WorkerStatus.FAILED:
        return f"{worker.name} FAILED {humanize_ago(worker.status_since, now)}{_last_transition_reason(inputs, ': ')}."
    if worker.status is WorkerStatus.TERMINATED:
        return f"{worker.name} was TERMINATED {humanize_ago(worker.status_since, now)}{_termination_reason(inputs)}."
    lasting = f"{worker.name} has been {worker.status} for {humanize_duration(now - worker.status_since)}"
    if worker.status is WorkerStatus.RUNNING and worker.desired_status is DesiredStatus.RUNNING:
        return f"{lasting}{_ready_clause(inputs)}."
    if (
        worker.desired_status is DesiredStatus.STOPPED
        and worker.last_paused_at is not None
        and not _changed_by_person(inputs)
    ):
        joint = ": " if leads_to is DesiredStatus.STOPPED else ", but "
        return f"{lasting}{joint}{_stop_reason(inputs)}."
    if leads_to is worker.desired_status:  # which then need not be mentioned
        return f"{lasting}{_last_transition_reason(inputs)}."
    return f"{lasting}{_last_transition_reason(inputs)}; its desired status is {worker.desired_status}."


def _changed_by_person(inputs: ExplainInput) -> bool:
    """Whether a person caused the current status: their name and reason then explain most."""
    last = inputs.last
    return (
        last is not None
        and last.to_status is inputs.worker.status
        and last.actor.kind is ActorKind.PERSON
        and STATUSES[inputs.worker.status].leads_to is DesiredStatus.STOPPED
    )


def _last_transition_reason(inputs: ExplainInput, joint: str = "") -> str:
    """Return who made the last transition and why, if it led to the current status."""
    last = inputs.last
    if last is None or last.to_status is not inputs.worker.status:
        return ""
    if joint:
        by = f" (by {last.actor.name})" if last.actor.kind is not ActorKind.CONTROLLER else ""
        return f"{joint}{as_clause(last.reason)}{by}"
    return f" ({last.actor.name}: {as_clause(last.reason)})"


def _termination_reason(inputs: ExplainInput) -> str:
    worker = inputs.worker
    if worker.terminated_by is None and worker.terminated_reason is None:
        return _last_transition_reason(inputs)
    by = f" by {worker.terminated_by}" if worker.terminated_by else ""
    return f"{by}: {as_clause(worker.terminated_reason)}" if worker.terminated_reason else by


def _stop_reason(inputs: ExplainInput) -> str:
    """Return who requested the stop, when and why."""
    worker, now = inputs.worker, inputs.now
    assert worker.last_paused_at is not None
    when, reason = humanize_ago(worker.last_paused_at, now), worker.pause_reason or ""
    if worker.is_in_maintenance:
        return f"it was stopped {when} to be started again on another host (maintenance)"
    if (schedule := stopping_schedule(worker, inputs.schedules)) is not None:
        return f"{schedule} stopped it {when}"
    if worker.paused_by_policy and reason == _IDLE_REASON:
        return f"auto-pause requested a stop {when} because it was idle"
    if reason == _EXTERNAL_STOP_REASON:
        return f"it was stopped outside LCM {when}, and the stop was accepted"
    request = "a policy requested a stop" if worker.paused_by_policy else "a stop was requested"
    because = f" ({as_clause(reason)})" if reason and reason not in _GENERIC_REASONS else ""
    return f"{request} {when}{because}"


def _ready_clause(inputs: ExplainInput) -> str:
    if inputs.worker.ready:
        return " and is ready"
    conditions, now = inputs.worker.conditions, inputs.now
    no_kvm = find_condition(conditions, ConditionType.NO_KVM) if inputs.worker.lacks_kvm else None
    if no_kvm is not None and is_condition_true(conditions, ConditionType.CML_READY):
        return f" but is not ready: its CML has reported no KVM for {humanize_duration(now - no_kvm.since)}"
    for kind, words in (
        (ConditionType.INSTANCE_READY, "its instance has been impaired"),
        (ConditionType.CML_READY, "CML has not responded"),
    ):
        condition = find_condition(conditions, kind)
        not_visible = condition is not None and condition.reason == NOT_VISIBLE  # has a sentence of its own
        if condition is not None and condition.status is not ConditionStatus.TRUE and not not_visible:
            detail = as_clause(condition.message or condition.reason)
            suffix = f" ({detail})" if detail else ""
            cause = _NOT_READY_WORDS.get(condition.reason, words)
            return f" but is not ready: {cause} for {humanize_duration(now - condition.since)}{suffix}"
    return " but is not ready: CML has not been checked yet"


# Details


def _detail_sentences(inputs: ExplainInput) -> Iterator[str]:
    worker = inputs.worker
    if worker.status is WorkerStatus.TERMINATED:
        return
    yield from _hold_sentences(inputs)
    yield from _override_sentences(inputs)
    yield from schedule_sentences(worker, inputs.schedules, inputs.now)
    yield from _instance_sentences(inputs)
    yield from _health_sentences(inputs)
    breaker = inputs.fleet.breakers.get(worker.aws_region)
    if breaker is not None and breaker.open:
        by_scan = "it closes when another scan confirms the result, or with lcm breaker reset"
        closes = "it must be reset by a person: lcm breaker reset" if breaker.only_a_person_closes else by_scan
        yield (
            f"The breaker of {breaker.region} has been open for {humanize_duration(inputs.now - breaker.since)}"
            f" ({as_clause(breaker.reason)}), so no worker there is marked as lost; {closes}."
        )
    stuck = find_condition(worker.conditions, ConditionType.STUCK)
    if stuck is not None and stuck.status is ConditionStatus.TRUE:
        detail = as_clause(stuck.message or stuck.reason)
        suffix = f": {detail}." if detail else "."
        yield f"It has been stuck for {humanize_duration(inputs.now - stuck.since)}{suffix}"
    else:
        yield from _wait_sentences(inputs)
    if worker.allocation.lablets:
        yield f"{count_with_verb(worker.allocation.lablets, 'lablet')} assigned to it."
    yield from _license_sentences(inputs)
    yield from _decision_sentences(inputs)


def _instance_sentences(inputs: ExplainInput) -> Iterator[str]:
    worker = inputs.worker
    instance = find_condition(worker.conditions, ConditionType.INSTANCE_READY)
    if instance is not None and instance.reason == NOT_VISIBLE:
        since, detail = humanize_duration(inputs.now - instance.since), as_clause(instance.message)
        yield f"Its instance has not been visible for {since}: {detail}; until then nothing is done."
    if worker.status is WorkerStatus.FAILED and is_condition_true(worker.conditions, ConditionType.INSTANCE_READY):
        hourly = current_cost(worker)
        cost = "costs money, at an unknown price" if hourly is None else f"costs ${hourly:.4g} an hour"
        yield f"Its instance {worker.instance_id} is running and {cost}."


def _health_sentences(inputs: ExplainInput) -> Iterator[str]:
    """Return what EC2 reports about the health of the instance, and what follows from that."""
    worker, now, settings = inputs.worker, inputs.now, inputs.settings.maintenance
    impaired = find_condition(worker.conditions, ConditionType.IMPAIRED)
    if impaired is not None and impaired.status is ConditionStatus.TRUE:
        lasting = humanize_duration(now - impaired.since)
        yield f"EC2 has reported its instance as impaired for {lasting}: {as_clause(impaired.message)}."
    if worker.maintenance is not None:
        yield f"{worker.maintenance.text}; no lablet is placed on it that would still run then."
    need = restart_need(worker, settings, now)
    if need is None or need.is_exhausted:
        if worker.maintenance is not None and worker.desired_status is DesiredStatus.STOPPED:
            yield "The next start moves it to another host, which ends that."
        return
    if settings.maintenance_policy is not MaintenancePolicy.PLAN:
        yield (
            "LCM only reports this (MAINTENANCE_POLICY=report). To move it to another host:"
            f" lcm workers stop {worker.name}, then lcm workers start {worker.name}."
        )
        return
    earliest = f"from {format_clock_time(need.due, now)} on, " if need.due > now else ""
    block = lablet_block(worker)
    waits = f"; at present, {block}" if block else ""
    yield f"It will be stopped and started again on another host {earliest}as soon as it is not in use{waits}."


def _wait_sentences(inputs: ExplainInput) -> Iterator[str]:
    wait = find_condition(inputs.worker.conditions, ConditionType.WAITING)
    if wait is not None and wait.status is ConditionStatus.TRUE:
        yield f"It has been waiting for {humanize_duration(inputs.now - wait.since)}: {as_clause(wait.message)}."


def _hold_sentences(inputs: ExplainInput) -> list[str]:
    now, sentences = inputs.now, []
    for hold, what, remedy in (
        (inputs.worker.hold, "It", f": lcm workers release {inputs.worker.name}"),
        (inputs.fleet.hold, "The whole fleet", ""),
    ):
        if hold is not None and hold.active(now):
            until = f"until {format_clock_time(hold.until, now)}" if hold.until else "until it is released"
            sentences.append(
                f"{what} was put on hold by {hold.by} at {format_clock_time(hold.since, now)}"
                f" ({as_clause(hold.reason)}), {until}{remedy}."
            )
    return sentences


def _override_sentences(inputs: ExplainInput) -> Iterator[str]:
    claim = booking_claim(inputs.worker, inputs.now) or override_claim(inputs.worker, inputs.now)
    if claim is not None:
        yield f"Policies do not change it: {claim.reason}."


def _license_sentences(inputs: ExplainInput) -> Iterator[str]:
    worker = inputs.worker
    pending = worker.pending_license_operation
    if pending is not None:
        what = "registration" if pending.operation == "register" else "deregistration"
        requested = humanize_ago(pending.requested_at, inputs.now)
        yield f"License {what} was requested by {pending.requested_by} {requested}."
    elif worker.license_status is LicenseStatus.FAILED:
        yield "CML rejected its license token; registration is not retried until the token is replaced."


def _decision_sentences(inputs: ExplainInput) -> Iterator[str]:
    """Return the controller's decision. For a settled worker only a missing decision is worth a sentence."""
    worker, decision, now = inputs.worker, inputs.decision, inputs.now
    if decision is None:
        yield "No controller has evaluated it yet."
        return
    if worker.at_rest:
        return
    if inputs.stale:
        yield _sentence(as_clause(inputs.stale))
        return
    actions = "; ".join(as_clause(action) for action in decision.actions[:_MAX_ACTIONS])
    planned = f" (planned actions: {actions})" if actions else ""
    # A decision is reported when it changes: it may be hours old, though it is repeated with every check.
    age = humanize_duration(now - decision.decided_at)
    yield f"Controller status (for {age}): {as_clause(decision.reason)}{planned}."


# The next step


def _next_check(inputs: ExplainInput) -> str:
    decision = inputs.decision
    if decision is None or decision.next_look_at is None or decision.next_look_at <= inputs.now:
        return ""
    return f"; next check {humanize_until(decision.next_look_at, inputs.now)}"


def _idle_sentence(inputs: ExplainInput) -> str:
    """Return when a ready worker is paused or drained, which depends on its use."""
    worker, now, idle = inputs.worker, inputs.now, inputs.settings.idle
    claim = booking_claim(worker, now) or override_claim(worker, now)
    if claim is not None:
        until = "" if claim.until is None else f" until {format_clock_time(claim.until, now)}"
        return f"It keeps running, and policies do not pause it{until}."
    quiet = now - idle_since(worker)
    if worker.allocation.lablets:
        return "It keeps running and is not paused while a lablet is assigned to it."
    unused = f"Idle for {humanize_duration(quiet)}" if quiet >= _MINUTE else "Used less than a minute ago"
    verb = _IDLE_VERBS[idle_policy_action(inputs.settings)]
    if not worker.idle_detection_enabled:
        return f"{unused}; it keeps running because idle detection is disabled for it."
    if verb is None:
        return f"{unused}; it keeps running because auto-pause is disabled."
    missing = find_condition(worker.conditions, ConditionType.TELEMETRY_MISSING)
    if missing is not None and missing.status is ConditionStatus.TRUE:
        return f"It keeps running and is not {verb}: {as_clause(missing.message or missing.reason)}."
    due = idle_action_due(worker, idle)
    if due > now:
        when = f"{format_clock_time(due, now)}, {humanize_until(due, now)}"
        return f"{unused}; it will be {verb} at about {when}, unless it is used."
    if worker.last_idle_check_at is None:
        return f"{unused}; it will be {verb} after the first successful idle check (none yet: no telemetry)."
    floor = inputs.settings.scaling.min_workers
    exceptions = f", has lablets, or at most {floor} workers are running" if floor else " or has lablets"
    checked = humanize_ago(worker.last_idle_check_at, now)
    return f"{unused}; it will be {verb} at the next idle check (last: {checked}), unless it is used{exceptions}."


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."
