"""What happened while nobody looked: what automation did, what people did, and what stopped workers saved."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lcm.model.audit import ActorKind, AuditEntry
from lcm.model.base import CaseInsensitiveEnum, LenientModel, UtcDatetime


class StatusEvent(CaseInsensitiveEnum):
    """What a controller's report of a status amounts to, where that is worth a word of its own in the audit."""

    FAILED = "failed"
    GONE = "gone"
    REPLACED = "replaced"
    RESTARTED = "restarted"
    DRIFT_ACCEPTED = "drift_accepted"
    STUCK = "stuck"


class AutomatedAction(CaseInsensitiveEnum):
    """What automation does that people want to hear of, in the order in which they do."""

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
    """What something was done to: a worker or a lablet by its id and name, or whatever else the audit names."""

    id: str
    name: str = ""


class ActivityCount(LenientModel):
    """Something that was done, how often, and to whom: some of them, the last first."""

    what: str
    count: Annotated[int, Field(ge=1)]
    concerned: tuple[ActivitySubject, ...] = ()


class WorkerSaving(LenientModel):
    """A worker that was stopped for a part of the time, and what that saved."""

    worker_id: str
    name: str
    stopped_seconds: float
    saved_usd: float


class ActivitySummary(LenientModel):
    """A span of time as automation and people filled it. Stops from outside count as people's."""

    since: UtcDatetime
    until: UtcDatetime
    complete: bool = Field(default=True, description="False: so much happened that `since` was moved to a later time.")
    automation: tuple[ActivityCount, ...] = ()
    people: tuple[ActivityCount, ...] = ()
    saved_usd: float = 0.0
    saved_by_policy_usd: float = 0.0
    saved_by_people_usd: float = 0.0
    stopped_throughout: int = Field(default=0, description="Workers that were stopped all the time.")
    savers: tuple[WorkerSaving, ...] = Field(
        default=(), description="Those that were stopped for a part; the most first."
    )


ACTION_LABELS = {
    AutomatedAction.FAILED: "failed",
    AutomatedAction.STUCK: "got stuck",
    AutomatedAction.GONE: "recorded as terminated: its instance was gone",
    AutomatedAction.BREAKER_OPENED: "breaker opened",
    AutomatedAction.LICENSE_LEAKED: "licence leaked",
    AutomatedAction.INSTANCE_LEAKED: "leaked instance found",
    AutomatedAction.REPLACED: "replaced after its instance was lost",
    AutomatedAction.RESTARTED: "started again after a stop from outside",
    AutomatedAction.DRIFT_ACCEPTED: "left stopped after a stop from outside",
    AutomatedAction.AUTO_PAUSED: "paused because nobody used it",
    AutomatedAction.DRAINED: "drained by scale-down",
    AutomatedAction.DRAIN_FAILED: "could not be drained",
    AutomatedAction.RESUMED: "resumed by scale-up",
    AutomatedAction.LAUNCHED: "created by scale-up",
    AutomatedAction.SCALE_UP_REJECTED: "scale-up refused",
    AutomatedAction.IMPORTED: "found and imported",
    AutomatedAction.LEAK_ENDED: "leaked instance ended",
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
"""What somebody should look at in the morning."""

_ACTION_BY_NAME = {deed.value: deed for deed in AutomatedAction}
_STATUS_REPORTED = "status_reported"
_SCALE_UP_ACCEPTED = "scale_up_accepted"


def automated_action_of(line: AuditEntry) -> AutomatedAction | None:
    """What automation did by this line of the audit; None for people's lines and for what nobody needs to hear of."""
    if line.actor.kind is ActorKind.PERSON:
        return None
    if line.action == _STATUS_REPORTED:
        return _ACTION_BY_NAME.get(str(line.details.get("event")))
    if line.action == _SCALE_UP_ACCEPTED:
        return AutomatedAction.RESUMED if line.details.get("resumed") else AutomatedAction.LAUNCHED
    return _ACTION_BY_NAME.get(line.action)


def action_label(what: str) -> str:
    """What was done, as people say it; an action of people is its own word."""
    deed = _ACTION_BY_NAME.get(what)
    return what.replace("_", " ") if deed is None else ACTION_LABELS[deed]
