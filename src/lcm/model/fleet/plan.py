"""The plan: what controllers will do next if nothing changes, and how current that is. Everything here is pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lcm.model.audit import ActionType, DecisionReport, PlannedAction
from lcm.model.base import CARRIED, CaseInsensitiveEnum, LenientModel, UtcDatetime
from lcm.model.booking.record import BookingStatus
from lcm.model.formatting import format_clock_time, humanize_ago, humanize_duration, join_names
from lcm.model.lablet.scheduling.block import WORKER_CONTROLLER
from lcm.model.system import BLIND_AFTER, LATE_AFTER, DiscoveryPlan, ReceivedControllerReport
from lcm.model.worker.next_step import next_step_of
from lcm.model.worker.record import Hold
from lcm.model.worker.status import DesiredStatus, LicenseOperation, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from lcm.model.fleet.state import LeadershipTerm
    from lcm.model.worker.record import Worker

MAX_LISTED = 100
"""How many entries each list of the plan has at most; their total number is always there."""


class DecisionState(CaseInsensitiveEnum):
    """How current the decision for a worker is."""

    CURRENT = "current"
    IN_PROGRESS = "in_progress"
    OUTDATED = "outdated"
    UNDECIDED = "undecided"


class PlannedWorker(LenientModel):
    """The planned actions for one worker, and why."""

    worker_id: str
    name: str
    status: Annotated[WorkerStatus, CARRIED]
    desired_status: Annotated[DesiredStatus, CARRIED]
    decision: DecisionReport | None = None
    state: Annotated[DecisionState, CARRIED] = Field(
        default=DecisionState.CURRENT,
        description="Whether the decision is for the record as it is now; otherwise `note` says why not.",
    )
    note: str = ""
    actions: tuple[PlannedAction, ...] = Field(
        default=(), description="What will be done if nothing changes; empty unless the decision is current."
    )
    on_hold: bool = Field(default=False, description="Whether the actions wait for the end of a hold.")
    at: UtcDatetime | None = Field(default=None, description="When the actions are taken; null if at once.")
    summary: str = Field(default="", description="What will happen, as a sentence.")


class PlannedPlacement(LenientModel):
    """A lablet that will be placed on a worker."""

    lablet_id: str
    lablet_name: str
    worker_id: str
    worker_name: str


class PlannedScaleUp(LenientModel):
    """A worker that will be resumed (`worker_id`) or launched for lablets."""

    worker_id: str | None = None
    worker_name: str = ""
    template: str
    aws_region: str
    cost_per_hour_usd: float = 0
    lablets: int = Field(default=1, description="How many lablets it is for.")
    reason: str = ""


class PlannedLablet(LenientModel):
    """A lablet that waits, fails, expires or cannot be planned, and why."""

    lablet_id: str
    lablet_name: str
    reason: str


class LabletPlan(LenientModel):
    """What the scheduler will do with the lablets that wait for a worker."""

    blocked: str = Field(default="", description="Why nothing is placed at present; empty if placement goes on.")
    placements: tuple[PlannedPlacement, ...] = ()
    placements_total: int = 0
    scale_ups: tuple[PlannedScaleUp, ...] = ()
    scale_ups_total: int = 0
    waiting: tuple[PlannedLablet, ...] = ()
    waiting_total: int = 0
    ending: tuple[PlannedLablet, ...] = Field(default=(), description="Lablets that will expire or fail.")
    ending_total: int = 0
    skipped: tuple[PlannedLablet, ...] = Field(
        default=(), description="Records that cannot be read or planned; they stop no other."
    )
    skipped_total: int = 0


class PlannedPause(LenientModel):
    """A worker that will be paused or drained if it is not used until then."""

    worker_id: str
    name: str
    at: UtcDatetime
    drain: bool = False


class PlannedScheduleChange(LenientModel):
    """A worker that its schedules will stop or start; a time that is over means at once."""

    worker_id: str
    name: str
    desired_status: Annotated[DesiredStatus, CARRIED]
    at: UtcDatetime
    reason: str = Field(default="", description="Which schedule, by which rule, and what it waits for.")
    waits: bool = Field(
        default=False,
        description="Whether it waits until the worker is not in use any more; `reason` says by what it is used.",
    )

    @property
    def summary(self) -> str:
        """What is done, and why, once it is due."""
        change = "started" if self.desired_status is DesiredStatus.RUNNING else "stopped"
        when = " as soon as it is not in use" if self.waits else ""
        return f"It will be {change}{when}: {self.reason}."


class PlannedBoundary(LenientModel):
    """When the windows of a schedule open or close next."""

    schedule_id: str
    name: str
    opens: bool
    at: UtcDatetime


class PlannedBookingBoundary(LenientModel):
    """When a class of a booking warms up, begins or ends."""

    booking_id: str
    name: str
    number: int = Field(description="The class, 1 for the first.")
    status: Annotated[BookingStatus, CARRIED] = Field(description="What the class becomes: WARMING, ACTIVE or ENDED.")
    at: UtcDatetime
    workers: int = Field(description="Number of workers that the class takes from its warm-up to its end.")


class PlannedBookingStep(LenientModel):
    """What a class that warms up or takes place takes next: workers that are booked for it, and launches."""

    booking_id: str
    name: str
    number: int = Field(description="The class, 1 for the first.")
    workers: dict[str, str] = Field(default_factory=dict, description="Name by id; those that are stopped are started.")
    launches: int = Field(default=0, description="How many workers are launched.")
    template: str
    aws_region: str

    @property
    def summary(self) -> str:
        """What is done, as sentences."""
        found = []
        if self.workers:
            found.append(f"{join_names(sorted(self.workers.values()))} will be booked for it and run until its end.")
        if self.launches:
            count = f"{self.launches} {self.template} {'worker' if self.launches == 1 else 'workers'}"
            found.append(f"{count} will be launched in {self.aws_region}.")
        return " ".join(found)


class PlannedLicenseOperation(LenientModel):
    """A license operation that a person requested and that is not done yet."""

    worker_id: str
    name: str
    operation: Annotated[LicenseOperation, CARRIED]
    requested_at: UtcDatetime
    requested_by: str


class FleetPlan(LenientModel):
    """What controllers will do next. The first page has all parts, the others only workers."""

    items: tuple[PlannedWorker, ...]
    next_cursor: str | None = None
    hold: Hold | None = Field(default=None, description="The hold on the fleet. Everything waits for its end.")
    evaluation: str = Field(default="", description="Why workers are not evaluated at present; empty if they are.")
    lablets: LabletPlan | None = None
    pauses: tuple[PlannedPause, ...] = ()
    pauses_total: int = 0
    discovery: DiscoveryPlan | None = None
    license_operations: tuple[PlannedLicenseOperation, ...] = ()
    license_operations_total: int = 0
    schedule_changes: tuple[PlannedScheduleChange, ...] = Field(
        default=(), description="What schedules will do next with each worker, the earliest first."
    )
    schedule_changes_total: int = 0
    schedule_boundaries: tuple[PlannedBoundary, ...] = Field(
        default=(), description="When the windows of each schedule open or close next, the earliest first."
    )
    booking_boundaries: tuple[PlannedBookingBoundary, ...] = Field(
        default=(), description="When the next class of each booking warms up, begins and ends, the earliest first."
    )
    booking_boundaries_total: int = 0
    booking_steps: tuple[PlannedBookingStep, ...] = Field(
        default=(), description="What classes that warm up or take place take next."
    )
    booking_steps_total: int = 0


# Freshness


class DecidedRecord(LenientModel):
    """What of a worker's record shows whether a decision is for it. It is read faster than the whole record."""

    aws_region: str
    instance_id: str | None = None
    hold: Hold | None = None
    version: int = 1
    generation: int = 1
    updated_at: UtcDatetime


@dataclass(frozen=True, slots=True)
class Evaluator:
    """The worker controller, as far as its reports show it. `silence` says why workers are not evaluated."""

    term: int | None = None
    silence: str = ""
    blind: Mapping[str, str] = field(default_factory=dict)


def find_evaluator(
    leaders: Iterable[LeadershipTerm], reports: Mapping[str, ReceivedControllerReport], now: datetime
) -> Evaluator:
    """Who evaluates workers now."""
    leader = next((each for each in leaders if each.controller == WORKER_CONTROLLER), None)
    report = reports.get(WORKER_CONTROLLER)
    term = None if leader is None else leader.term
    if report is None:
        since = "" if leader is None else f" since {format_clock_time(leader.announced_at, now)}"
        return Evaluator(term, f"no worker controller has reported{since}")
    if now - report.received_at > LATE_AFTER:
        return Evaluator(term, f"no worker controller has led since {format_clock_time(report.received_at, now)}")
    blind = {
        region.name: humanize_duration(timedelta(seconds=region.blind_seconds))
        for region in report.report.regions
        if region.blind_seconds >= BLIND_AFTER.total_seconds()
    }
    return Evaluator(term, "", blind)


def assess_decision(
    worker: Worker | DecidedRecord, decision: DecisionReport | None, evaluator: Evaluator, now: datetime
) -> tuple[DecisionState, str]:
    """How current the decision is, and in words what is missing; empty if nothing is."""
    if evaluator.silence:
        return DecisionState.UNDECIDED, f"not decided yet: {evaluator.silence}"
    if decision is None:
        return DecisionState.UNDECIDED, "not decided yet"
    ago = humanize_ago(decision.decided_at, now)
    if not _is_for_record(decision, worker):
        return DecisionState.OUTDATED, f"decided {ago}, before the last change"
    if decision.term is not None and decision.term != evaluator.term:
        return DecisionState.OUTDATED, f"decided {ago} by an earlier leader; the present one has not checked it yet"
    if worker.instance_id is not None and worker.aws_region in evaluator.blind:
        since = evaluator.blind[worker.aws_region]
        return DecisionState.OUTDATED, f"decided {ago}; EC2 has not been readable in {worker.aws_region} for {since}"
    if decision.version is not None and decision.next_actions is None and not decision.held_actions:
        return DecisionState.IN_PROGRESS, f"acted {ago}; what follows is decided at the next check"
    return DecisionState.CURRENT, ""


def _is_for_record(decision: DecisionReport, worker: Worker | DecidedRecord) -> bool:
    if decision.version is None:  # of a controller that does not report it
        return decision.decided_at >= worker.updated_at
    return (decision.version, decision.generation) == (worker.version, worker.generation)


# One worker


def plan_worker(
    worker: Worker, decision: DecisionReport | None, evaluator: Evaluator, fleet_hold: Hold | None, now: datetime
) -> PlannedWorker:
    """What will be done with a worker."""
    state, note = assess_decision(worker, decision, evaluator, now)
    actions: tuple[PlannedAction, ...] = ()
    on_hold = False
    if state is DecisionState.CURRENT and decision is not None:
        on_hold = bool(decision.held_actions)
        actions = decision.held_actions or decision.next_actions or ()
    held = on_hold or any(hold is not None and hold.active(now) for hold in (fleet_hold, worker.hold))
    return PlannedWorker(
        worker_id=worker.id,
        name=worker.name,
        status=worker.status,
        desired_status=worker.desired_status,
        decision=decision,
        state=state,
        note=note,
        actions=actions,
        on_hold=held and bool(actions),
        at=None if on_hold or decision is None or not actions else decision.next_look_at,
        summary=describe_plan(worker, actions),
    )


_CLAUSES = {
    ActionType.LAUNCH_INSTANCE: "an instance will be launched ({detail})",
    ActionType.START_INSTANCE: "{instance} will be started",
    ActionType.STOP_INSTANCE: "{instance} will be stopped",
    ActionType.TERMINATE_INSTANCE: "{instance} will be terminated",
    ActionType.REGISTER_LICENSE: "its license will be registered",
    ActionType.DEREGISTER_LICENSE: "its license will be deregistered",
    ActionType.DRAIN: "it will be drained",
    ActionType.CHANGE_HOST: "it will be {detail}, because it moves to another host",
    ActionType.FOLLOW_SCHEDULE: "it will be {detail} by schedule",
    ActionType.RECORD_STATUS: "it will become {detail}",
    ActionType.RECORD_LICENSE: "its license will be recorded as {detail}",
}
_RECORDS = (ActionType.RECORD_STATUS, ActionType.RECORD_LICENSE, ActionType.OTHER)


def describe_plan(worker: Worker, actions: Sequence[PlannedAction]) -> str:
    """What the actions do, as a sentence in the future tense; empty without actions."""
    if not actions:
        return ""
    external = [action for action in actions if action.type not in _RECORDS]
    clauses = [_clause(worker, action) for action in external or actions]
    step = next_step_of(worker)
    if not external and step.is_action and any(each.type is ActionType.RECORD_STATUS for each in actions):
        clauses.append(f"then {step.clause}")  # it begins with a record, such as TERMINATING
    text = "; ".join(dict.fromkeys(clauses))
    return f"{text[0].upper()}{text[1:]}."


def _clause(worker: Worker, action: PlannedAction) -> str:
    instance = f"instance {worker.instance_id}" if worker.instance_id else "its instance"
    clause = _CLAUSES.get(action.type)
    return action.text if clause is None else clause.format(instance=instance, detail=action.detail)
