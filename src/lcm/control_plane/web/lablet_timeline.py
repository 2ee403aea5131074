"""A lablet's timeline: what people asked, where the scheduler put it, what the lablet controller found and did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.control_plane.records.kinds import LABLET_HISTORY
from lcm.control_plane.store.cursors import journal_number
from lcm.control_plane.web.timeline import LINES, Happening, Timeline, lines_about
from lcm.model.audit import AuditEntry, LabletHistoryEntry
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.store.port import Recorded, Store

_WORDS: Final[dict[str, str]] = {
    "created": "asked for it",
    "scheduled": "found a worker for it",
    "released": "took it off its worker",
    "terminate": "asked for its end",
    "status_reported": "reported",
}


async def read_lablet_timeline(store: Store, lablet_id: str, before: str | None = None, limit: int = LINES) -> Timeline:
    """The entries before a place in the journal; without one the newest."""
    lines = await lines_about(store, LABLET_HISTORY, lablet_id, before, limit)
    return lablet_timeline_of(lines, full=len(lines) == limit)


def lablet_timeline_of(lines: Sequence[Recorded], *, full: bool) -> Timeline:
    """Entries of lines that come newest first. A change writes its step and, right after it, who made it and why.

    `full`: there may be older lines, among them the step of the oldest entry; it is left to the next page.
    """
    entries: list[tuple[str, Happening]] = []  # the oldest first, each with the place of its first line
    step: tuple[str, LabletHistoryEntry] | None = None
    for line in reversed(lines):
        if line.topic == LABLET_HISTORY:
            if step is not None:
                entries.append((step[0], _of_step(step[1])))
            step = (line.cursor, LabletHistoryEntry.model_validate_json(line.body))
            continue
        entry = AuditEntry.model_validate_json(line.body)
        if step is not None and (step[1].at, step[1].actor) != (entry.at, entry.actor):
            entries.append((step[0], _of_step(step[1])))
            step = None
        entries.append((line.cursor if step is None else step[0], _of_entry(entry, None if step is None else step[1])))
        step = None
    if step is not None:
        entries.append((step[0], _of_step(step[1])))
    if full and len(entries) > 1:
        entries = entries[1:]
    version = journal_number(lines[0].cursor) if lines else 0
    return Timeline([each for _, each in reversed(entries)], entries[0][0] if full else None, version)


def _of_step(step: LabletHistoryEntry) -> Happening:
    """A step whose other line is forgotten, or on another page."""
    actor = step.actor
    return Happening(step.at, actor.kind, actor.name, "reported", step.reason, step.from_status, step.to_status)


def _of_entry(entry: AuditEntry, step: LabletHistoryEntry | None) -> Happening:
    after = None if step is None else step.to_status
    return Happening(
        at=entry.at,
        kind=entry.actor.kind,
        who=entry.actor.name,
        words=_WORDS.get(entry.action, entry.action.replace("_", " ")),
        reason=entry.reason,
        before=None if step is None else step.from_status,
        after=after,
        bad=after is LabletStatus.FAILED,
    )
