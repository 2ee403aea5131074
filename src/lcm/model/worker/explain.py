"""Why a worker is as it is, what stands in the way, and what happens next, in words. Pure, from what is known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.model.audit import ActorKind, WorkerHistoryEntry
from lcm.model.base import LenientModel
from lcm.model.decision import DecisionReport
from lcm.model.fleet.settings import IdleAction
from lcm.model.formatting import (
    as_clause,
    count_with_verb,
    format_clock_time,
    humanize_ago,
    humanize_duration,
    humanize_until,
)
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType, find_condition
from lcm.model.worker.next_step import next_step_of
from lcm.model.worker.record import Hold
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.fleet.state import FleetState
    from lcm.model.worker.record import Worker

_MINUTE = timedelta(minutes=1)
_MAX_ACTIONS = 3
_GENERIC_REASONS = ("manual", "drain")  # reasons that stand for none
_IDLE_REASON = "idle_timeout"
_EXTERNAL_STOP_REASON = "stopped from outside"
_STOPPING_STATUSES = (WorkerStatus.DRAINING, WorkerStatus.STOPPING, WorkerStatus.STOPPED)


class Explanation(LenientModel):
    """Why a worker is as it is, and what happens next."""

    worker_id: str
    summary: str
    next: str
    status: WorkerStatus
    desired_status: DesiredStatus
    ready: bool
    conditions: tuple[Condition, ...] = ()
    hold: Hold | None = None
    last_transition: WorkerHistoryEntry | None = None
    decision: DecisionReport | None = None


@dataclass(frozen=True, slots=True)
class ExplainInput:
    """All that an explanation is made from."""

    worker: Worker
    decision: DecisionReport | None
    fleet: FleetState
    settings: FleetSettings
    last: WorkerHistoryEntry | None
    now: datetime


def explain(known: ExplainInput) -> Explanation:
    """The whole explanation. No secret is among what it is made from, nor anything of a launch's parameters."""
    worker = known.worker
    following = next_step_sentence(known)
    told = [_status_sentence(known), *_detail_sentences(known), following]
    return Explanation(
        worker_id=worker.id,
        summary=" ".join(told),
        next=following,
        status=worker.status,
        desired_status=worker.desired_status,
        ready=worker.ready,
        conditions=worker.conditions,
        hold=worker.hold,
        last_transition=known.last,
        decision=known.decision,
    )


def next_step_sentence(known: ExplainInput) -> str:
    """What happens next, and roughly when; or what has to be lifted first."""
    worker, course = known.worker, next_step_of(known.worker)
    if course.rests:
        return _sentence(course.clause)
    stuck = find_condition(worker.conditions, ConditionType.STUCK)
    if worker.drifted and stuck is not None and stuck.status is ConditionStatus.TRUE:
        settle = f"lcm workers stop {worker.name}, then lcm workers start {worker.name}"
        return f"It is not started again by itself for now{_next_check(known)}; a person settles it: {settle}."
    held = _hold_sentences(known)
    if held and course.acts:
        return f"Nothing is changed while the hold lasts; after it, {course.clause}."
    if worker.ready:
        return "It goes on running and is not paused while the hold lasts." if held else _idle_sentence(known)
    return f"Next, {course.clause}{_next_check(known)}."


# What it is


def _status_sentence(known: ExplainInput) -> str:
    worker, now = known.worker, known.now
    if worker.status is WorkerStatus.FAILED:
        return f"{worker.name} FAILED {humanize_ago(worker.status_since, now)}{_last_transition_reason(known, ': ') or ''}."
    if worker.status is WorkerStatus.TERMINATED:
        return f"{worker.name} was TERMINATED {humanize_ago(worker.status_since, now)}{_termination_reason(known)}."
    lasting = f"{worker.name} has been {worker.status} for {humanize_duration(now - worker.status_since)}"
    if worker.status is WorkerStatus.RUNNING and worker.desired_status is DesiredStatus.RUNNING:
        return f"{lasting}{_ready_clause(known)}."
    if (
        worker.desired_status is DesiredStatus.STOPPED
        and worker.last_paused_at is not None
        and not _changed_by_person(known)
    ):
        joint = ": " if worker.status in _STOPPING_STATUSES else ", but "
        return f"{lasting}{joint}{_stop_reason(worker, now)}."
    if _is_heading_to_desired_status(worker):
        return f"{lasting}{_last_transition_reason(known)}."
    return f"{lasting}{_last_transition_reason(known)} and is wanted {worker.desired_status}."


def _is_heading_to_desired_status(worker: Worker) -> bool:
    """Whether what is wanted goes without saying."""
    wanted = {
        DesiredStatus.RUNNING: (WorkerStatus.PENDING, WorkerStatus.PROVISIONING, WorkerStatus.STARTING),
        DesiredStatus.STOPPED: _STOPPING_STATUSES,
        DesiredStatus.TERMINATED: (WorkerStatus.TERMINATING,),
    }
    return worker.status in wanted[worker.desired_status]


def _changed_by_person(known: ExplainInput) -> bool:
    """Whether a person's own step led to where it is now: then their name and words say most."""
    last = known.last
    return (
        last is not None
        and last.to_status is known.worker.status
        and last.actor.kind is ActorKind.PERSON
        and known.worker.status in _STOPPING_STATUSES
    )


def _last_transition_reason(known: ExplainInput, joint: str = "") -> str:
    """Who made the last step and why, if that step led to where it is now."""
    last = known.last
    if last is None or last.to_status is not known.worker.status:
        return ""
    told = f"{last.actor.name}: {as_clause(last.reason)}"
    if joint:
        by = f" (by {last.actor.name})" if last.actor.kind is not ActorKind.CONTROLLER else ""
        return f"{joint}{as_clause(last.reason)}{by}"
    return f" ({told})"


def _termination_reason(known: ExplainInput) -> str:
    worker = known.worker
    if worker.terminated_by is None and worker.terminated_reason is None:
        return _last_transition_reason(known)
    by = f" by {worker.terminated_by}" if worker.terminated_by else ""
    return f"{by}: {as_clause(worker.terminated_reason)}" if worker.terminated_reason else by


def _stop_reason(worker: Worker, now: datetime) -> str:
    """Who wanted it stopped, when and why."""
    assert worker.last_paused_at is not None
    when, reason = humanize_ago(worker.last_paused_at, now), worker.pause_reason or ""
    if worker.paused_by_policy and reason == _IDLE_REASON:
        return f"{when} auto-pause wanted it stopped because nobody was using it"
    if reason == _EXTERNAL_STOP_REASON:
        return f"{when} it was stopped from outside, and that was accepted"
    who = "a policy" if worker.paused_by_policy else "somebody"
    because = f" ({as_clause(reason)})" if reason and reason not in _GENERIC_REASONS else ""
    return f"{when} {who} wanted it stopped{because}"


def _ready_clause(known: ExplainInput) -> str:
    if known.worker.ready:
        return " and is ready"
    conditions, now = known.worker.conditions, known.now
    for kind, words in (
        (ConditionType.INSTANCE_READY, "its instance has not been well"),
        (ConditionType.CML_READY, "CML has not answered"),
    ):
        found = find_condition(conditions, kind)
        if found is not None and found.status is not ConditionStatus.TRUE:
            told = as_clause(found.message or found.reason)
            return f" but is not ready: {words} for {humanize_duration(now - found.since)}" + (
                f" ({told})" if told else ""
            )
    return " but is not ready: nothing is known of CML yet"


# What else is to be said


def _detail_sentences(known: ExplainInput) -> Iterator[str]:
    worker = known.worker
    if worker.status is WorkerStatus.TERMINATED:
        return
    yield from _hold_sentences(known)
    breaker = known.fleet.breakers.get(worker.aws_region)
    if breaker is not None and breaker.open:
        by_scan = "a further scan that agrees closes it, and so does lcm breaker reset"
        closes = "only a person closes it: lcm breaker reset" if breaker.only_a_person_closes else by_scan
        yield (
            f"The breaker of {breaker.region} has been open for {humanize_duration(known.now - breaker.since)}"
            f" ({as_clause(breaker.reason)}), so no worker there is marked as lost; {closes}."
        )
    stuck = find_condition(worker.conditions, ConditionType.STUCK)
    if stuck is not None and stuck.status is ConditionStatus.TRUE:
        told = as_clause(stuck.message or stuck.reason)
        yield f"It has been stuck for {humanize_duration(known.now - stuck.since)}" + (f": {told}." if told else ".")
    if worker.allocation.lablets:
        yield f"{count_with_verb(worker.allocation.lablets, 'lablet')} assigned to it."
    yield from _license_sentences(known)
    yield from _decision_sentences(known)


def _hold_sentences(known: ExplainInput) -> list[str]:
    now, told = known.now, []
    for hold, what, remedy in (
        (known.worker.hold, "It is", f": lcm workers release {known.worker.name}"),
        (known.fleet.hold, "The whole fleet is", ""),
    ):
        if hold is not None and hold.active(now):
            until = f"until {format_clock_time(hold.until, now)}" if hold.until else "until somebody releases it"
            told.append(
                f"{what} on hold by {hold.by} since {format_clock_time(hold.since, now)}"
                f" ({as_clause(hold.reason)}), {until}{remedy}."
            )
    return told


def _license_sentences(known: ExplainInput) -> Iterator[str]:
    worker = known.worker
    pending = worker.pending_license_operation
    if pending is not None:
        what = "registered" if pending.operation == "register" else "given back"
        yield f"Its licence is to be {what}, as {pending.requested_by} asked {humanize_ago(pending.requested_at, known.now)}."
    elif worker.license_status is LicenseStatus.FAILED:
        yield "CML refused its licence token; nothing is tried again until it gets another one."


def _decision_sentences(known: ExplainInput) -> Iterator[str]:
    """What the controller made of it. Where nothing is to be done a decision is not news, only its absence is."""
    worker, decision, now = known.worker, known.decision, known.now
    if decision is None:
        yield "No controller has looked at it yet."
        return
    if worker.at_rest:
        return
    doing = "; ".join(as_clause(action) for action in decision.actions[:_MAX_ACTIONS])
    to_do = f" (to do: {doing})" if doing else ""
    # A decision is told when it changes: it may stand for hours, though it is made anew with every look.
    yield f"For {humanize_duration(now - decision.decided_at)} the controller has said: {as_clause(decision.reason)}{to_do}."


# What happens next


def _next_check(known: ExplainInput) -> str:
    decision = known.decision
    if decision is None or decision.next_look_at is None or decision.next_look_at <= known.now:
        return ""
    return f"; the controller looks again {humanize_until(decision.next_look_at, known.now)}"


def _idle_sentence(known: ExplainInput) -> str:
    """What becomes of a worker that is ready, which depends on whether somebody uses it."""
    worker, now, idle = known.worker, known.now, known.settings.idle
    since = worker.last_activity_at or worker.last_resumed_at or worker.created_at
    quiet = now - since
    if worker.allocation.lablets:
        return "It goes on running and is not paused as long as a lablet is assigned to it."
    unused = (
        f"Nobody has used it for {humanize_duration(quiet)}"
        if quiet >= _MINUTE
        else "It was used less than a minute ago"
    )
    verb = _idle_verb(known)
    if not worker.idle_detection_enabled:
        return f"{unused}; it goes on running, as idle detection is switched off for it."
    if verb is None:
        return f"{unused}; it goes on running, as auto-pause is switched off."
    due = since + timedelta(minutes=idle.worker_idle_timeout_minutes)
    if worker.last_resumed_at is not None:
        due = max(due, worker.last_resumed_at + timedelta(minutes=idle.worker_auto_pause_snooze_minutes))
    if due > now:
        return f"{unused}; it is {verb} at about {format_clock_time(due, now)}, {humanize_until(due, now)}, unless somebody uses it."
    if worker.last_idle_check_at is None:
        return f"{unused}; it is {verb} once an idle check succeeds, but none has so far, for want of telemetry."
    floor = known.settings.scaling.min_workers
    spared = f", lablets are on it, or no more than {floor} workers run" if floor else " or lablets are on it"
    checked = humanize_ago(worker.last_idle_check_at, now)
    return f"{unused}; it is {verb} at the next idle check (the last was {checked}), unless it is used{spared}."


def _idle_verb(known: ExplainInput) -> str | None:
    idle, scaling = known.settings.idle, known.settings.scaling
    drained = scaling.scale_down_enabled and (
        idle.idle_action is IdleAction.DRAIN or not idle.worker_auto_pause_enabled
    )
    if drained:
        return "drained"
    return "paused" if idle.worker_auto_pause_enabled else None


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."
