"""A worker's timeline: what people asked, what controllers and policies decided, what EC2 and CML did, in one order.

The journal has a line for the step of a status and one for who did what; of one change they are one entry here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lcm.control_plane.records.kinds import AUDIT, HISTORY
from lcm.control_plane.store.cursors import journal_number
from lcm.control_plane.store.port import BadCursor
from lcm.model.audit import ActorKind, AuditEntry, HistoryEntry
from lcm.model.fleet.activity_summary import TROUBLES, WORDS, Deed, deed_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Recorded, Store
    from lcm.model.lablet.status import LabletStatus
    from lcm.model.worker.status import WorkerStatus

LINES: Final = 40
"""How many lines of the journal a page of the timeline is made from."""

_REPORTED = "status_reported"
_LICENCE = "license_reported"
_LABELS = ("provisioned", "drained")
_POLICIES = {
    Deed.AUTO_PAUSED: "auto-pause",
    Deed.DRAINED: "scale-down",
    Deed.DRAIN_FAILED: "scale-down",
    Deed.RESUMED: "scale-up",
    Deed.LAUNCHED: "scale-up",
}
_WORDS: Final[dict[str, str]] = {
    "created": "created it",
    "imported": "found its instance and took it over",
    "start": "asked for it to run",
    "stop": "asked for it to be stopped",
    "terminate": "asked for its end",
    "drain": "asked for it to be drained",
    "cancel_drain": "cancelled the drain",
    "retry": "asked for another try",
    "hold": "put it on hold",
    "release": "released it",
    "license_register": "asked for its licence to be registered",
    "license_deregister": "asked for its licence to be given back",
    "license_leaked": "lost its licence: it was not given back",
    "lablets_reserved": "put lablets on it",
    "lablet_released": "took a lablet off it",
    "labs_without_marker": "found labs that belong to no lablet",
    _REPORTED: "reported",
}
_STANDING_FOR_NONE = ("idle_timeout", "manual")


@dataclass(frozen=True, slots=True)
class Happening:
    """One entry. `before` and `after` are given where a status changed."""

    at: datetime
    kind: ActorKind
    who: str
    words: str
    reason: str = ""
    before: WorkerStatus | LabletStatus | None = None
    after: WorkerStatus | LabletStatus | None = None
    deed: Deed | None = None
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """A page of it, the newest first. `older` is where the next page begins, None at the end."""

    happenings: Sequence[Happening]
    older: str | None
    version: int  # moves with what is newest: an older answer never replaces a newer one


@dataclass(slots=True)
class _Group:
    """Lines of one change."""

    first: str
    audit: AuditEntry | None = None
    step: HistoryEntry | None = None
    label: bool = False  # what is known of it is only a label, which comes before the step

    @property
    def open(self) -> bool:
        """Whether the line that tells who and why is still to come."""
        return self.audit is None or self.label


async def read_timeline(store: Store, worker_id: str, before: str | None = None, limit: int = LINES) -> Timeline:
    """The entries before a place in the journal; without one the newest."""
    lines = await lines_about(store, HISTORY, worker_id, before, limit)
    return timeline_of(lines, full=len(lines) == limit)


async def lines_about(store: Store, steps: str, subject: str, before: str | None, limit: int) -> Sequence[Recorded]:
    """Steps of a record and who made them, the newest first. A place that means nothing is the newest, not an error."""
    try:
        return await store.journal(
            topics=[steps, AUDIT], subjects=[subject], before=before, newest_first=True, limit=limit
        )
    except BadCursor:
        return await store.journal(topics=[steps, AUDIT], subjects=[subject], newest_first=True, limit=limit)


def timeline_of(lines: Sequence[Recorded], *, full: bool) -> Timeline:
    """Entries of lines that come newest first. `full`: there may be older lines, so that the oldest entry may lack
    some of its own; it is left to the next page."""
    groups = _grouped(list(reversed(lines)))
    if full and len(groups) > 1:
        groups = groups[1:]
    version = journal_number(lines[0].cursor) if lines else 0
    return Timeline([_happening(each) for each in reversed(groups)], groups[0].first if full else None, version)


def _grouped(lines: Sequence[Recorded]) -> list[_Group]:
    """Lines, the oldest first, by the change that wrote them: labels of a step, the step, who made it and why."""
    groups: list[_Group] = []
    for line in lines:
        last = groups[-1] if groups else None
        if line.topic == HISTORY:
            step = HistoryEntry.model_validate_json(line.body)
            if last is not None and last.label and last.step is None and _of_one(last.audit, step):
                last.step = step
            else:
                groups.append(_Group(line.cursor, step=step))
            continue
        entry = AuditEntry.model_validate_json(line.body)
        if last is not None and last.step is not None and last.open and _of_one(entry, last.step):
            last.audit, last.label = entry, False
            continue
        groups.append(_Group(line.cursor, audit=entry, label=entry.action in _LABELS))
    return groups


def _of_one(entry: AuditEntry | None, step: HistoryEntry) -> bool:
    return entry is not None and (entry.at, entry.actor) == (step.at, step.actor)


def _happening(group: _Group) -> Happening:
    entry, step = group.audit, group.step
    if entry is None:
        assert step is not None
        actor = step.actor
        return Happening(
            step.at, actor.kind, actor.name, _WORDS[_REPORTED], step.reason, step.from_status, step.to_status
        )
    deed = deed_of(entry)
    policy = _POLICIES.get(deed) if deed is not None else None
    reason = "" if entry.reason in _STANDING_FOR_NONE else entry.reason
    return Happening(
        at=entry.at,
        kind=entry.actor.kind if policy is None else ActorKind.POLICY,
        who=policy or entry.actor.name,
        words=_words(entry, deed),
        reason=reason,
        before=None if step is None else step.from_status,
        after=None if step is None else step.to_status,
        deed=deed,
        bad=deed in TROUBLES or entry.details.get("status") == "failed",
    )


def _words(entry: AuditEntry, deed: Deed | None) -> str:
    if deed is not None and entry.action != "imported":
        return WORDS[deed]
    if entry.action == "patched":
        fields = [str(each).replace("_", " ") for each in entry.details.get("fields", ())]
        return f"changed {', '.join(fields)}" if fields else "changed it"
    if entry.action == "launch_intended":
        return f"begins launch attempt {entry.details.get('attempt', '')}".rstrip()
    if entry.action == _LICENCE:
        return f"licence in CML: {entry.details.get('status', 'unknown')}"
    return _WORDS.get(entry.action, entry.action.replace("_", " "))
