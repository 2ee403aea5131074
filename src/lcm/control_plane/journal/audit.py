"""Reading the audit: who did what, why and when, narrowed down.

The journal is indexed by topic and subject. Every other condition is looked at line by line, so one request looks at a
bounded number of lines and says where the next goes on: a page may be short, or empty, and not be the last.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lcm.control_plane.journal.search import SLACK, first_after, last_before
from lcm.control_plane.records.kinds import AUDIT
from lcm.control_plane.store.values import fold

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Recorded, Store

MOST_LOOKED_AT = 5000
_PAGE = 500


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What is asked for; all of it must fit, and of each list one. Names are compared without regard to case."""

    subjects: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    actor_kinds: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    q: str = ""

    @property
    def by_index(self) -> bool:
        """Whether the journal's indexes serve all of it."""
        return not (self.actors or self.actor_kinds or self.actions or self.since or self.until or self.q)


@dataclass(frozen=True, slots=True)
class AuditLines:
    """Lines in order, and where to go on; None: there is no more."""

    lines: Sequence[Recorded]
    next_cursor: str | None


async def read_audit(
    store: Store, wanted: AuditFilter, *, newest_first: bool = True, cursor: str | None = None, limit: int = 100
) -> AuditLines:
    """Lines of the audit that fit, from a cursor on."""
    if cursor is None:
        cursor = await _begin(store, wanted, newest_first=newest_first)
    found: list[Recorded] = []
    looked = 0
    while looked < MOST_LOOKED_AT:
        size = limit if wanted.by_index else _PAGE
        place = {"before": cursor} if newest_first else {"after": cursor}
        page = await store.journal(
            topics=[AUDIT], subjects=wanted.subjects, newest_first=newest_first, limit=size, **place
        )
        for line in page:
            if _is_past(line, wanted, newest_first=newest_first):
                return AuditLines(found, None)
            cursor, looked = line.cursor, looked + 1
            if _fits(line, wanted):
                found.append(line)
            if len(found) == limit:
                return AuditLines(found, cursor)
        if len(page) < size:
            return AuditLines(found, None)
    return AuditLines(found, cursor)


async def _begin(store: Store, wanted: AuditFilter, *, newest_first: bool) -> str | None:
    """Where the lines of the span begin, if it does not begin at the end of the journal anyway."""
    if newest_first and wanted.until is not None:
        return await first_after(store, AUDIT, wanted.until + SLACK)
    if not newest_first and wanted.since is not None:
        return await last_before(store, AUDIT, wanted.since - SLACK)
    return None


def _is_past(line: Recorded, wanted: AuditFilter, *, newest_first: bool) -> bool:
    """Whether no line from here on can be in the span."""
    if newest_first:
        return wanted.since is not None and line.at < wanted.since - SLACK
    return wanted.until is not None and line.at > wanted.until + SLACK


def _fits(line: Recorded, wanted: AuditFilter) -> bool:
    if wanted.by_index:
        return True
    if wanted.since is not None and line.at < wanted.since:
        return False
    if wanted.until is not None and line.at >= wanted.until:
        return False
    entry: dict[str, Any] = json.loads(line.body)
    actor = entry["actor"]
    return (
        _one_of(actor["name"], wanted.actors)
        and _one_of(actor["kind"], wanted.actor_kinds)
        and _one_of(entry["action"], wanted.actions)
        and (not wanted.q or fold(wanted.q) in _text(entry))
    )


def _one_of(text: str, wanted: Sequence[str]) -> bool:
    return not wanted or fold(text) in [fold(one) for one in wanted]


def _text(entry: dict[str, Any]) -> str:
    """All that people can read of a line."""
    details = [f"{name}={value}" for name, value in entry.get("details", {}).items()]
    return fold("\n".join([entry["actor"]["name"], entry["action"], entry["subject"], entry["reason"], *details]))
