"""Alerts: what somebody should be notified of. Pure functions derive them from records before and after a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lcm.model.base import CARRIED, CaseInsensitiveEnum, Record, UtcDatetime
from lcm.model.booking.failed_seats import retry_at
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.conditions import ConditionStatus, ConditionType, find_condition
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from lcm.model.booking.record import Booking
    from lcm.model.fleet.state import Breaker
    from lcm.model.lablet.record import Lablet
    from lcm.model.system import LeakedInstanceReport
    from lcm.model.worker.record import Worker

_MAX_TEXT = 1000


class AlertType(CaseInsensitiveEnum):
    """What an alert is about."""

    WORKER_FAILED = "worker_failed"
    WORKER_STUCK = "worker_stuck"
    WORKER_IMPAIRED = "worker_impaired"
    WORKER_MAINTENANCE = "worker_maintenance"
    LABLET_FAILED = "lablet_failed"
    BOOKING_AT_RISK = "booking_at_risk"
    BREAKER_OPEN = "breaker_open"
    INSTANCE_LEAKED = "instance_leaked"
    LICENSE_LEAKED = "license_leaked"
    NO_LEADER = "no_leader"
    MIRROR_DEGRADED = "mirror_degraded"
    STORE_DEGRADED = "store_degraded"
    TEST = "test"


class Severity(CaseInsensitiveEnum):
    """How urgent an alert is."""

    WARNING = "warning"
    CRITICAL = "critical"


class AlertState(CaseInsensitiveEnum):
    """Whether an alert begins or ends."""

    RAISED = "raised"
    RESOLVED = "resolved"


class SubjectKind(CaseInsensitiveEnum):
    """What kind of thing an alert is about."""

    WORKER = "worker"
    LABLET = "lablet"
    BOOKING = "booking"
    REGION = "region"
    INSTANCE = "instance"
    CONTROLLER = "controller"
    CONTROL_PLANE = "control_plane"


@dataclass(frozen=True, slots=True)
class AlertRule:
    """Severity and title of a type of alert, and where the documentation says what to do.

    An alert that does not resolve reports a loss that is final: nothing undoes it.
    """

    severity: Severity
    title: str
    runbook: str  # a paragraph of docs/operations.md
    resolves: bool = True


ALERT_RULES: Mapping[AlertType, AlertRule] = {
    AlertType.WORKER_FAILED: AlertRule(Severity.CRITICAL, "Worker failed", "a-worker-has-failed"),
    AlertType.WORKER_STUCK: AlertRule(Severity.WARNING, "Worker stuck", "a-worker-is-stuck"),
    AlertType.WORKER_IMPAIRED: AlertRule(Severity.WARNING, "Worker impaired", "an-instance-is-impaired"),
    AlertType.WORKER_MAINTENANCE: AlertRule(Severity.WARNING, "Maintenance announced", "maintenance-is-announced"),
    AlertType.LABLET_FAILED: AlertRule(Severity.WARNING, "Lablet failed", "a-lablet-has-failed", resolves=False),
    AlertType.BOOKING_AT_RISK: AlertRule(Severity.CRITICAL, "Booking at risk", "a-booking-is-at-risk"),
    AlertType.BREAKER_OPEN: AlertRule(Severity.CRITICAL, "Breaker open", "the-breaker-is-open"),
    AlertType.INSTANCE_LEAKED: AlertRule(Severity.WARNING, "Instance leaked", "instances-are-leaked"),
    AlertType.LICENSE_LEAKED: AlertRule(Severity.WARNING, "License leaked", "licenses-are-leaked", resolves=False),
    AlertType.NO_LEADER: AlertRule(Severity.CRITICAL, "No controller leads", "no-controller-leads"),
    AlertType.MIRROR_DEGRADED: AlertRule(Severity.WARNING, "Control plane degraded", "the-control-plane-is-degraded"),
    AlertType.STORE_DEGRADED: AlertRule(Severity.CRITICAL, "Store not writable", "a-process-is-not-ready"),
    AlertType.TEST: AlertRule(Severity.WARNING, "Test", "notifications", resolves=False),
}


class AlertSubject(Record):
    """What an alert is about. Name, team, template, region and tags are there to select alerts by."""

    kind: Annotated[SubjectKind, CARRIED]
    id: str
    name: str = ""
    team: str = Field(default="", description="The id of the team whose it is; empty for none.")
    template_name: str | None = None
    aws_region: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)


class Alert(Record):
    """An alert that began or ended, written in the same commit as the change that caused it."""

    id: str = Field(description="Unique; a repeated delivery has the same id.")
    type: Annotated[AlertType, CARRIED]
    state: Annotated[AlertState, CARRIED]
    severity: Annotated[Severity, CARRIED]
    at: UtcDatetime
    subject: AlertSubject
    summary: str = Field(description="One sentence.")
    detail: str = Field(default="", description="The reason, as the record has it.")
    counterpart: AlertSubject | None = Field(
        default=None,
        description="Set if only the subject was edited: as it was before (raised), or is now (resolved)."
        " A subscription that selects both gets neither.",
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong now with a subject."""

    subject: AlertSubject
    detail: str = ""
    due: datetime | None = None  # when it takes effect, if that is known
    event: str = ""  # what takes effect then: EC2's word for it


@dataclass(frozen=True, slots=True)
class AlertChange:
    """An alert that is raised or resolved by a change of a record."""

    type: AlertType
    state: AlertState
    finding: Finding
    counterpart: AlertSubject | None = None

    @property
    def summary(self) -> str:
        """The change in one sentence."""
        subject, rule = self.finding.subject, ALERT_RULES[self.type]
        name = subject.name or subject.id
        ended = " (resolved)" if self.state is AlertState.RESOLVED else ""
        return f"{rule.title}: {name}{ended}"

    def to_alert(self, alert_id: str, at: UtcDatetime) -> Alert:
        """The alert that is recorded."""
        return Alert(
            id=alert_id,
            type=self.type,
            state=self.state,
            severity=ALERT_RULES[self.type].severity,
            at=at,
            subject=self.finding.subject,
            summary=self.summary,
            detail=self.finding.detail[:_MAX_TEXT],
            counterpart=self.counterpart,
        )


def worker_changes(before: Worker | None, after: Worker, reason: str) -> Iterator[AlertChange]:
    """The alerts that a change of a worker raises or resolves; `reason` is the reason of the change."""
    yield from _changes(_worker_findings(before, ""), _worker_findings(after, reason), reason)


def lablet_changes(before: Lablet | None, after: Lablet, reason: str) -> Iterator[AlertChange]:
    """The alert that a lablet has failed for good: not a seat that is made anew, which its class reports as missing."""
    failed = LabletStatus.FAILED
    if after.status is failed and (before is None or before.status is not failed) and retry_at(after) is None:
        subject = AlertSubject(kind=SubjectKind.LABLET, id=after.id, name=after.name, team=after.team)
        yield AlertChange(AlertType.LABLET_FAILED, AlertState.RAISED, Finding(subject, reason))


def booking_changes(before: Booking | None, after: Booking) -> Iterator[AlertChange]:
    """The alert that something is missing for a class, raised or resolved."""

    def findings(booking: Booking | None) -> dict[tuple[AlertType, str], Finding]:
        risks = [] if booking is None else [each for each in booking.occurrences if each.at_risk is not None]
        if booking is None or not risks:
            return {}
        subject = AlertSubject(
            kind=SubjectKind.BOOKING,
            id=booking.id,
            name=booking.name,
            team=booking.team,
            template_name=booking.template,
            aws_region=booking.aws_region,
        )
        detail = "; ".join(f"class {each.number}: {each.at_risk.missing}" for each in risks if each.at_risk)
        return {(AlertType.BOOKING_AT_RISK, booking.id): Finding(subject, detail)}

    yield from _changes(findings(before), findings(after), "nothing is missing any more, or the class is over")


def breaker_changes(before: Mapping[str, Breaker], after: Mapping[str, Breaker]) -> Iterator[AlertChange]:
    """The alerts that a change of the breakers raises or resolves."""

    def findings(breakers: Mapping[str, Breaker]) -> dict[tuple[AlertType, str], Finding]:
        return {
            (AlertType.BREAKER_OPEN, region): Finding(
                AlertSubject(kind=SubjectKind.REGION, id=region, name=region, aws_region=region), breaker.reason
            )
            for region, breaker in sorted(breakers.items())
            if breaker.open
        }

    yield from _changes(findings(before), findings(after), "the breaker is closed")


def leak_changes(
    before: Iterable[LeakedInstanceReport], after: Iterable[LeakedInstanceReport]
) -> Iterator[AlertChange]:
    """The alerts that a new list of leaked instances raises or resolves."""

    def findings(leaks: Iterable[LeakedInstanceReport]) -> dict[tuple[AlertType, str], Finding]:
        return {
            (AlertType.INSTANCE_LEAKED, leak.instance_id): Finding(
                AlertSubject(
                    kind=SubjectKind.INSTANCE, id=leak.instance_id, name=leak.instance_id, aws_region=leak.region
                ),
                leak.reason,
            )
            for leak in leaks
        }

    yield from _changes(
        findings(before),
        findings(after),
        "the instance is gone, belongs to a worker, or LCM no longer manages its region",
    )


def worker_subject(worker: Worker) -> AlertSubject:
    """A worker as the subject of an alert."""
    return AlertSubject(
        kind=SubjectKind.WORKER,
        id=worker.id,
        name=worker.name,
        team=worker.team,
        template_name=worker.template_name,
        aws_region=worker.aws_region,
        tags=worker.tags,
    )


_ALERTS_BY_CONDITION: Mapping[AlertType, ConditionType] = {
    AlertType.WORKER_STUCK: ConditionType.STUCK,
    AlertType.WORKER_IMPAIRED: ConditionType.IMPAIRED,
    AlertType.WORKER_MAINTENANCE: ConditionType.MAINTENANCE,
}


def _worker_findings(worker: Worker | None, reason: str) -> dict[tuple[AlertType, str], Finding]:
    if worker is None or worker.status is WorkerStatus.TERMINATED:
        return {}
    if worker.status is WorkerStatus.FAILED:
        return {(AlertType.WORKER_FAILED, worker.id): Finding(worker_subject(worker), reason)}
    findings = {}
    for alert_type, kind in _ALERTS_BY_CONDITION.items():
        found = find_condition(worker.conditions, kind)
        if found is not None and found.status is ConditionStatus.TRUE:
            announced = worker.maintenance if kind is ConditionType.MAINTENANCE else None
            due, event = (None, "") if announced is None else (announced.not_before, announced.code)
            findings[alert_type, worker.id] = Finding(worker_subject(worker), found.message or found.reason, due, event)
    return findings


def _changes(
    before: Mapping[tuple[AlertType, str], Finding], after: Mapping[tuple[AlertType, str], Finding], reason: str
) -> Iterator[AlertChange]:
    """Resolved ones first: a worker that was stuck and has failed is no longer stuck.

    What was brought forward, or comes before what was announced first, is raised once more: whoever planned for the
    first date must hear of it. Where a subject is edited meanwhile, whoever selects it no more must not wait for an end
    of which they never hear.
    """
    for (alert_type, _), finding in ((key, each) for key, each in before.items() if key not in after):
        subject = finding.subject
        yield AlertChange(alert_type, AlertState.RESOLVED, Finding(subject, reason))
    for (alert_type, _), finding in ((key, each) for key, each in after.items() if key not in before):
        yield AlertChange(alert_type, AlertState.RAISED, finding)
    for key, finding in after.items():
        earlier = before[key].due if key in before else None
        if earlier is not None and finding.due is not None and finding.due < earlier:
            moved = f"brought forward from {earlier:%Y-%m-%d %H:%M} UTC: " if finding.event == before[key].event else ""
            text = f"{moved}{finding.detail}"
            yield AlertChange(key[0], AlertState.RAISED, Finding(finding.subject, text, finding.due, finding.event))
        old = before[key].subject if key in before else finding.subject
        if old != finding.subject:
            gone = Finding(old, "it goes on, but its name, team, template or tags were changed")
            yield AlertChange(key[0], AlertState.RESOLVED, gone, finding.subject)
            yield AlertChange(key[0], AlertState.RAISED, finding, old)
