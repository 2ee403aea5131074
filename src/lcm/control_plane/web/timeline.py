"""The timeline of a worker or a lablet: requests of people, decisions of controllers and policies, and what happened.

A change writes up to two kinds of journal entries: the status step, and the audit entry with its actor and reason. The
timeline shows them as one entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lcm.control_plane.auth.roles import Scope
from lcm.control_plane.records.kinds import AUDIT, LABLET_HISTORY, WORKER_HISTORY
from lcm.control_plane.store.cursors import parse_journal_cursor
from lcm.control_plane.store.port import InvalidCursorError
from lcm.model.audit import ActorKind, AuditEntry, LabletHistoryEntry, WorkerHistoryEntry
from lcm.model.fleet.activity_summary import ACTION_LABELS, PROBLEM_ACTIONS, AutomatedAction, automated_action_of
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import JournalEntry, Store
    from lcm.model.worker.status import WorkerStatus


EVERYTHING: Final = Scope(everything=True)
JOURNAL_ENTRIES_PER_PAGE: Final = 40
"""How many journal entries one page of the timeline is built from."""

_STATUS_REPORTED = "status_reported"
_LICENSE_REPORTED = "license_reported"
_LABEL_ACTIONS = ("provisioned", "drained")
_POLICY_NAMES = {
    AutomatedAction.AUTO_PAUSED: "auto-pause",
    AutomatedAction.DRAINED: "scale-down",
    AutomatedAction.DRAIN_FAILED: "scale-down",
    AutomatedAction.RESUMED: "scale-up",
    AutomatedAction.LAUNCHED: "scale-up",
}
_WORKER_ACTION_TEXT: Final[dict[str, str]] = {
    "created": "created it",
    "imported": "imported its instance",
    "start": "requested a start",
    "stop": "requested a stop",
    "terminate": "requested termination",
    "drain": "requested a drain",
    "cancel_drain": "cancelled the drain",
    "retry": "requested a retry",
    "trust": "accepted its new certificate",
    "hold": "put it on hold",
    "release": "released it",
    "license_register": "requested license registration",
    "license_deregister": "requested license deregistration",
    "license_leaked": "leaked its license: it was not deregistered",
    "lablets_reserved": "assigned lablets to it",
    "lablet_released": "released a lablet from it",
    "labs_without_marker": "found labs that belong to no lablet",
    _STATUS_REPORTED: "reported",
}
_PLACEHOLDER_REASONS = ("idle_timeout", "manual")


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One entry. `before` and `after` are set if the status changed."""

    at: datetime
    kind: ActorKind
    actor: str
    text: str
    reason: str = ""
    before: WorkerStatus | LabletStatus | None = None
    after: WorkerStatus | LabletStatus | None = None
    automated_action: AutomatedAction | None = None
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """One page, newest entries first. `next_cursor` is where the next page starts; None at the end."""

    entries: Sequence[TimelineEntry]
    next_cursor: str | None
    version: int  # grows with the newest entry, so that an older response never replaces a newer one


@dataclass(slots=True)
class _ChangeGroup:
    """The journal entries of one change."""

    first: str
    audit: AuditEntry | None = None
    step: WorkerHistoryEntry | None = None
    label: bool = False  # only a label was read so far; it is written before the step

    @property
    def open(self) -> bool:
        """Whether the audit entry with the actor and the reason is still missing."""
        return self.audit is None or self.label


async def read_worker_timeline(
    store: Store, worker_id: str, before: str | None = None, limit: int = JOURNAL_ENTRIES_PER_PAGE
) -> Timeline:
    """The entries before a cursor; without one the newest."""
    lines = await read_journal_entries(store, (WORKER_HISTORY, AUDIT), worker_id, before, limit)
    return build_worker_timeline(lines, full=len(lines) == limit)


async def read_journal_entries(
    store: Store, topics: Sequence[str], subject: str, before: str | None, limit: int
) -> Sequence[JournalEntry]:
    """Entries of these topics about a record, newest first. An invalid cursor gives the newest, not an error."""
    try:
        return await store.read_journal(
            topics=topics, subjects=[subject], before=before, newest_first=True, limit=limit
        )
    except InvalidCursorError:
        return await store.read_journal(topics=topics, subjects=[subject], newest_first=True, limit=limit)


def build_worker_timeline(lines: Sequence[JournalEntry], *, full: bool) -> Timeline:
    """Build the timeline from journal entries, newest first.

    `full` means that there may be older journal entries. The oldest change may then be incomplete and is left to the
    next page.
    """
    groups = _group_by_change(list(reversed(lines)))
    if full and len(groups) > 1:
        groups = groups[1:]
    version = parse_journal_cursor(lines[0].cursor) if lines else 0
    return Timeline([_timeline_entry(each) for each in reversed(groups)], groups[0].first if full else None, version)


def _group_by_change(lines: Sequence[JournalEntry]) -> list[_ChangeGroup]:
    """Group journal entries, oldest first, by change: labels of a step, the step itself, its audit entry."""
    groups: list[_ChangeGroup] = []
    for line in lines:
        last = groups[-1] if groups else None
        if line.topic == WORKER_HISTORY:
            step = WorkerHistoryEntry.model_validate_json(line.body)
            if last is not None and last.label and last.step is None and _same_change(last.audit, step):
                last.step = step
            else:
                groups.append(_ChangeGroup(line.cursor, step=step))
            continue
        entry = AuditEntry.model_validate_json(line.body)
        if last is not None and last.step is not None and last.open and _same_change(entry, last.step):
            last.audit, last.label = entry, False
            continue
        groups.append(_ChangeGroup(line.cursor, audit=entry, label=entry.action in _LABEL_ACTIONS))
    return groups


def _same_change(entry: AuditEntry | None, step: WorkerHistoryEntry) -> bool:
    return entry is not None and (entry.at, entry.actor) == (step.at, step.actor)


def _timeline_entry(group: _ChangeGroup) -> TimelineEntry:
    entry, step = group.audit, group.step
    if entry is None:
        assert step is not None
        actor = step.actor
        return TimelineEntry(
            step.at,
            actor.kind,
            actor.name,
            _WORKER_ACTION_TEXT[_STATUS_REPORTED],
            step.reason,
            step.from_status,
            step.to_status,
        )
    automated_action = automated_action_of(entry)
    policy = _POLICY_NAMES.get(automated_action) if automated_action is not None else None
    reason = "" if entry.reason in _PLACEHOLDER_REASONS else entry.reason
    return TimelineEntry(
        at=entry.at,
        kind=entry.actor.kind if policy is None else ActorKind.POLICY,
        actor=policy or entry.actor.name,
        text=_action_text(entry, automated_action),
        reason=reason,
        before=None if step is None else step.from_status,
        after=None if step is None else step.to_status,
        automated_action=automated_action,
        bad=automated_action in PROBLEM_ACTIONS or entry.details.get("status") == "failed",
    )


def _action_text(entry: AuditEntry, automated_action: AutomatedAction | None) -> str:
    if automated_action is not None and entry.action != "imported":
        return ACTION_LABELS[automated_action]
    if entry.action == "patched":
        fields = [str(each).replace("_", " ") for each in entry.details.get("fields", ())]
        return f"changed {', '.join(fields)}" if fields else "changed it"
    if entry.action == "launch_intended":
        return f"started launch attempt {entry.details.get('attempt', '')}".rstrip()
    if entry.action == _LICENSE_REPORTED:
        return f"license in CML: {entry.details.get('status', 'unknown')}"
    return _WORKER_ACTION_TEXT.get(entry.action, entry.action.replace("_", " "))


_LABLET_ACTION_TEXT: Final[dict[str, str]] = {
    "created": "requested it",
    "scheduled": "assigned it to a worker",
    "released": "released it from its worker",
    "terminate": "requested its end",
    "extend": "moved its end",
    "reset": "requested a new lab",
    "made_anew": "made it anew",
    "seat_link_created": "created a seat link",
    "seat_link_revoked": "revoked a seat link",
    "seat_opened": "opened it",
    "status_reported": "reported",
}


async def read_lablet_timeline(
    store: Store,
    lablet_id: str,
    before: str | None = None,
    limit: int = JOURNAL_ENTRIES_PER_PAGE,
    *,
    scope: Scope = EVERYTHING,
) -> Timeline:
    """The entries before a cursor; without one the newest. People with roles in teams only see no audit.

    Nor do they see, as in streams, what happened while the lablet was another team's or another learner's.
    """
    topics = (LABLET_HISTORY, AUDIT) if scope.everything else (LABLET_HISTORY,)
    visible: list[JournalEntry] = []
    while True:
        lines = await read_journal_entries(store, topics, lablet_id, before, limit)
        visible += [line for line in lines if scope.sees(line.team, line.owner)]
        if len(lines) < limit or len(visible) >= limit:
            return build_lablet_timeline(visible[:limit], full=len(visible) >= limit)
        before = lines[-1].cursor


def build_lablet_timeline(lines: Sequence[JournalEntry], *, full: bool) -> Timeline:
    """Build the timeline from journal entries, newest first. A change writes its step, then its audit entry.

    `full` means that there may be older journal entries, among them the step of the oldest change. It is left to the
    next page.
    """
    entries: list[tuple[str, TimelineEntry]] = []  # oldest first, each with the cursor of its first journal entry
    step: tuple[str, LabletHistoryEntry] | None = None
    for line in reversed(lines):
        if line.topic == LABLET_HISTORY:
            if step is not None:
                entries.append((step[0], _entry_from_step(step[1])))
            step = (line.cursor, LabletHistoryEntry.model_validate_json(line.body))
            continue
        entry = AuditEntry.model_validate_json(line.body)
        if step is not None and (step[1].at, step[1].actor) != (entry.at, entry.actor):
            entries.append((step[0], _entry_from_step(step[1])))
            step = None
        entries.append(
            (line.cursor if step is None else step[0], _entry_from_audit(entry, None if step is None else step[1]))
        )
        step = None
    if step is not None:
        entries.append((step[0], _entry_from_step(step[1])))
    if full and len(entries) > 1:
        entries = entries[1:]
    version = parse_journal_cursor(lines[0].cursor) if lines else 0
    return Timeline([each for _, each in reversed(entries)], entries[0][0] if full else None, version)


def _entry_from_step(step: LabletHistoryEntry) -> TimelineEntry:
    """A step whose audit entry was deleted by the retention, or is on another page."""
    actor = step.actor
    return TimelineEntry(step.at, actor.kind, actor.name, "reported", step.reason, step.from_status, step.to_status)


def _entry_from_audit(entry: AuditEntry, step: LabletHistoryEntry | None) -> TimelineEntry:
    after = None if step is None else step.to_status
    return TimelineEntry(
        at=entry.at,
        kind=entry.actor.kind,
        actor=entry.actor.name,
        text=_LABLET_ACTION_TEXT.get(entry.action, entry.action.replace("_", " ")),
        reason=entry.reason,
        before=None if step is None else step.from_status,
        after=after,
        bad=after is LabletStatus.FAILED,
    )
