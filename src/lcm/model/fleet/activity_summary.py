"""Activity summary of a period: actions of automation and people, and the savings from stopped workers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lcm.model.audit import ActorKind, AuditEntry
from lcm.model.base import CaseInsensitiveEnum, LenientModel, UtcDatetime


class StatusEvent(CaseInsensitiveEnum):
    """The meaning of a status update, where the audit log records it."""

    FAILED = "failed"
    GONE = "gone"
    REPLACED = "replaced"
    RESTARTED = "restarted"
    DRIFT_ACCEPTED = "drift_accepted"
    STUCK = "stuck"


class AutomatedAction(CaseInsensitiveEnum):
    """Automated actions in the activity summary, in the order of their importance."""

    FAILED = "failed"
    STUCK = "stuck"
    GONE = "gone"
    BREAKER_OPENED = "breaker_opened"
    LICENSE_LEAKED = "license_leaked"
    INSTANCE_LEAKED = "leaked_instance"
    REPLACED = "replaced"
    RESTARTED = "restarted"
    DRIFT_ACCEPTED = "drift_accepted"
    AUTO_PAUSED = "auto_paused"
    DRAINED = "scale_down_initiated"
    DRAIN_FAILED = "scale_down_failed"
    RESUMED = "resumed"
    LAUNCHED = "launched"
    SCALE_UP_REJECTED = "scale_up_rejected"
    IMPORTED = "imported"
    LEAK_ENDED = "leaked_instance_terminated"
    BREAKER_CLOSED = "breaker_closed"


class ActivitySubject(LenientModel):
    """The subject of an action: a worker or lablet by id and name, or any other subject of the audit log."""

    id: str
    name: str = ""


class ActivityCount(LenientModel):
    """An action, how often it happened, and some of its subjects, the latest first."""

    what: str
    count: Annotated[int, Field(ge=1)]
    concerned: tuple[ActivitySubject, ...] = ()


class WorkerSaving(LenientModel):
    """A worker that was stopped for a part of the period, and what that saved."""

    worker_id: str
    name: str
    stopped_seconds: float
    saved_usd: float


class ActivitySummary(LenientModel):
    """What automation and people did in a period. Stops outside LCM count as people's."""

    since: UtcDatetime
    until: UtcDatetime
    complete: bool = Field(
        default=True,
        description="False if the period was shortened (a later `since`) because it contained too many entries.",
    )
    automation: tuple[ActivityCount, ...] = ()
    people: tuple[ActivityCount, ...] = ()
    saved_usd: float = 0.0
    saved_by_policy_usd: float = 0.0
    saved_by_people_usd: float = 0.0
    stopped_throughout: int = Field(default=0, description="Number of workers that were stopped for the whole period.")
    savers: tuple[WorkerSaving, ...] = Field(
        default=(), description="Workers that were stopped for a part of the period, the largest savings first."
    )


ACTION_LABELS = {
    AutomatedAction.FAILED: "failed",
    AutomatedAction.STUCK: "got stuck",
    AutomatedAction.GONE: "marked as terminated: its instance was gone",
    AutomatedAction.BREAKER_OPENED: "breaker opened",
    AutomatedAction.LICENSE_LEAKED: "license leaked",
    AutomatedAction.INSTANCE_LEAKED: "leaked instance found",
    AutomatedAction.REPLACED: "replaced after its instance was lost",
    AutomatedAction.RESTARTED: "restarted after an external stop",
    AutomatedAction.DRIFT_ACCEPTED: "left stopped after an external stop",
    AutomatedAction.AUTO_PAUSED: "paused because it was idle",
    AutomatedAction.DRAINED: "drained by scale-down",
    AutomatedAction.DRAIN_FAILED: "could not be drained",
    AutomatedAction.RESUMED: "resumed by scale-up",
    AutomatedAction.LAUNCHED: "created by scale-up",
    AutomatedAction.SCALE_UP_REJECTED: "scale-up rejected",
    AutomatedAction.IMPORTED: "discovered and imported",
    AutomatedAction.LEAK_ENDED: "leaked instance terminated",
    AutomatedAction.BREAKER_CLOSED: "breaker closed",
}
PROBLEM_ACTIONS = (
    AutomatedAction.FAILED,
    AutomatedAction.STUCK,
    AutomatedAction.GONE,
    AutomatedAction.BREAKER_OPENED,
    AutomatedAction.LICENSE_LEAKED,
    AutomatedAction.INSTANCE_LEAKED,
    AutomatedAction.DRAIN_FAILED,
    AutomatedAction.SCALE_UP_REJECTED,
)
"""Actions that need attention."""

_ACTION_BY_NAME = {deed.value: deed for deed in AutomatedAction}
_STATUS_REPORTED = "status_reported"
_SCALE_UP_ACCEPTED = "scale_up_accepted"


def automated_action_of(line: AuditEntry) -> AutomatedAction | None:
    """Return the automated action of an audit entry; None for actions of people and for entries of no interest."""
    if line.actor.kind is ActorKind.PERSON:
        return None
    if line.action == _STATUS_REPORTED:
        return _ACTION_BY_NAME.get(str(line.details.get("event")))
    if line.action == _SCALE_UP_ACCEPTED:
        return AutomatedAction.RESUMED if line.details.get("resumed") else AutomatedAction.LAUNCHED
    return _ACTION_BY_NAME.get(line.action)


_OTHER_LABELS = {
    "cancel_drain": "drain cancelled",
    "drain": "drain requested",
    "extend": "end of a lablet moved",
    "hold": "put on hold",
    "installation_named": "installation id created",
    "lablets_reserved": "capacity reserved for lablets",
    "lablets_removed": "old lablets removed",
    "labs_without_marker": "labs found that are not of a lablet",
    "launch_intended": "launch prepared",
    "leadership_announced": "became leader",
    "leadership_reset": "leadership reset",
    "leadership_swept": "finished its startup sweep",
    "maintenance_start": "started again on another host",
    "maintenance_stop": "stopped to move to another host",
    "license_deregister": "license deregistration requested",
    "license_register": "license registration requested",
    "patched": "edited",
    "release": "hold released",
    "reset": "reset requested",
    "retry": "retry requested",
    "scheduled": "placed",
    "seat_opened": "seat link opened",
    "secrets_withdrawn": "secrets of an ended worker deleted",
    "sign_ins_omitted": "more sign-ins, not listed one by one",
    "sign_ins_refused": "sign-ins refused",
    "start": "start requested",
    "stop": "stop requested",
    "terminate": "termination requested",
    "trust": "new certificate accepted",
}
"""Actions whose names are not plain words. The others are their own label."""


def action_label(what: str) -> str:
    """Return the label of an action, in plain words."""
    deed = _ACTION_BY_NAME.get(what)
    return _OTHER_LABELS.get(what, what.replace("_", " ")) if deed is None else ACTION_LABELS[deed]
