"""What happened while nobody looked: what automation did, what people did, and what stopped workers saved."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lcm.model.audit import ActorKind, AuditEntry
from lcm.model.base import Answer, Choice, Moment


class Event(Choice):
    """What a controller's report of a status amounts to, where that is worth a word of its own in the audit."""

    FAILED = "failed"
    GONE = "gone"
    REPLACED = "replaced"
    RESTARTED = "restarted"
    DRIFT_ACCEPTED = "drift_accepted"
    STUCK = "stuck"


class Deed(Choice):
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


class Concerned(Answer):
    """What something was done to: a worker or a lablet by its id and name, or whatever else the audit names."""

    id: str
    name: str = ""


class Done(Answer):
    """Something that was done, how often, and to whom: some of them, the last first."""

    what: str
    count: Annotated[int, Field(ge=1)]
    concerned: tuple[Concerned, ...] = ()


class Saver(Answer):
    """A worker that was stopped for a part of the time, and what that saved."""

    worker_id: str
    name: str
    stopped_seconds: float
    saved_usd: float


class Overnight(Answer):
    """A span of time as automation and people filled it. Stops from outside count as people's."""

    since: Moment
    until: Moment
    complete: bool = Field(default=True, description="False: so much happened that `since` was moved to a later time.")
    automation: tuple[Done, ...] = ()
    people: tuple[Done, ...] = ()
    saved_usd: float = 0.0
    saved_by_policy_usd: float = 0.0
    saved_by_people_usd: float = 0.0
    stopped_throughout: int = Field(default=0, description="Workers that were stopped all the time.")
    savers: tuple[Saver, ...] = Field(default=(), description="Those that were stopped for a part; the most first.")


WORDS = {
    Deed.FAILED: "failed",
    Deed.STUCK: "got stuck",
    Deed.GONE: "recorded as terminated: its instance was gone",
    Deed.BREAKER_OPENED: "breaker opened",
    Deed.LICENSE_LEAKED: "licence leaked",
    Deed.INSTANCE_LEAKED: "leaked instance found",
    Deed.REPLACED: "replaced after its instance was lost",
    Deed.RESTARTED: "started again after a stop from outside",
    Deed.DRIFT_ACCEPTED: "left stopped after a stop from outside",
    Deed.AUTO_PAUSED: "paused because nobody used it",
    Deed.DRAINED: "drained by scale-down",
    Deed.DRAIN_FAILED: "could not be drained",
    Deed.RESUMED: "resumed by scale-up",
    Deed.LAUNCHED: "created by scale-up",
    Deed.SCALE_UP_REJECTED: "scale-up refused",
    Deed.IMPORTED: "found and imported",
    Deed.LEAK_ENDED: "leaked instance ended",
    Deed.BREAKER_CLOSED: "breaker closed",
}
TROUBLES = (
    Deed.FAILED,
    Deed.STUCK,
    Deed.GONE,
    Deed.BREAKER_OPENED,
    Deed.LICENSE_LEAKED,
    Deed.INSTANCE_LEAKED,
    Deed.DRAIN_FAILED,
    Deed.SCALE_UP_REJECTED,
)
"""What somebody should look at in the morning."""

_BY_ACTION = {deed.value: deed for deed in Deed}
_REPORTED = "status_reported"
_SCALED_UP = "scale_up_accepted"


def deed_of(line: AuditEntry) -> Deed | None:
    """What automation did by this line of the audit; None for people's lines and for what nobody needs to hear of."""
    if line.actor.kind is ActorKind.PERSON:
        return None
    if line.action == _REPORTED:
        return _BY_ACTION.get(str(line.details.get("event")))
    if line.action == _SCALED_UP:
        return Deed.RESUMED if line.details.get("resumed") else Deed.LAUNCHED
    return _BY_ACTION.get(line.action)


def in_words(what: str) -> str:
    """What was done, as people say it; an action of people is its own word."""
    deed = _BY_ACTION.get(what)
    return what.replace("_", " ") if deed is None else WORDS[deed]
