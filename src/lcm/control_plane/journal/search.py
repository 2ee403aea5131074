"""Where a moment stands in the journal, found by halving: lines are in the order of commits, not indexed by time.

Clocks of several control planes differ a little, and a change is dated when it begins and not when it is committed, so
lines are only nearly in the order of their times. Whoever needs them exactly looks a little further: `CLOCK_SKEW`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.control_plane.records.kinds import AUDIT
from lcm.control_plane.store.cursors import journal_cursor, parse_journal_cursor
from lcm.control_plane.store.values import fold

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import JournalEntry, Store


CLOCK_SKEW = timedelta(minutes=2)
_BISECT_UNTIL = 64
_SAMPLE_SIZE = 3  # at each step, of which the one in the middle counts: a single wrong clock leads nobody astray


async def cursor_before(store: Store, topic: str, moment: datetime) -> str | None:
    """A cursor up to which all lines of the topic are older than the moment; None: there is none."""
    around = await _bisect(store, topic, moment)
    return None if around is None else journal_cursor(around[0])


async def cursor_after(store: Store, topic: str, moment: datetime) -> str | None:
    """A cursor from which on all lines of the topic are younger than the moment; None: there is none."""
    around = await _bisect(store, topic, moment)
    return None if around is None else journal_cursor(around[1])


async def _bisect(store: Store, topic: str, moment: datetime) -> tuple[int, int] | None:
    """Numbers: up to the first all is older, from the second on all is younger or was not there yet."""
    oldest = await store.journal(topics=[topic], limit=1)
    newest = await store.journal(topics=[topic], newest_first=True, limit=1)
    if not oldest or not newest:
        return None
    low, high = parse_journal_cursor(oldest[0].cursor) - 1, parse_journal_cursor(newest[0].cursor) + 1
    while high - low > _BISECT_UNTIL:
        middle = (low + high) // 2
        lines = await store.journal(
            topics=[topic], after=journal_cursor(middle), before=journal_cursor(high), limit=_SAMPLE_SIZE
        )
        if not lines or _median_time(lines) >= moment:
            high = middle + 1
        else:
            low = middle
    # Where the one in the middle was younger, those before it may not have been.
    beyond = await store.journal(topics=[topic], after=journal_cursor(high - 1), limit=_SAMPLE_SIZE)
    return low, parse_journal_cursor(beyond[-1].cursor) + 1 if beyond else high


def _median_time(lines: Sequence[JournalEntry]) -> datetime:
    return sorted(line.at for line in lines)[len(lines) // 2]


MAX_ENTRIES_SCANNED = 5000
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
    def indexed_only(self) -> bool:
        """Whether the journal's indexes serve all of it."""
        return not (self.actors or self.actor_kinds or self.actions or self.since or self.until or self.q)


@dataclass(frozen=True, slots=True)
class AuditSearchResult:
    """Lines in order, and where to go on; None: there is no more."""

    lines: Sequence[JournalEntry]
    next_cursor: str | None


async def search_audit(
    store: Store, wanted: AuditFilter, *, newest_first: bool = True, cursor: str | None = None, limit: int = 100
) -> AuditSearchResult:
    """Lines of the audit that fit, from a cursor on."""
    if cursor is None:
        cursor = await _start_cursor(store, wanted, newest_first=newest_first)
    found: list[JournalEntry] = []
    looked = 0
    while looked < MAX_ENTRIES_SCANNED:
        size = limit if wanted.indexed_only else _PAGE
        place = {"before": cursor} if newest_first else {"after": cursor}
        page = await store.journal(
            topics=[AUDIT], subjects=wanted.subjects, newest_first=newest_first, limit=size, **place
        )
        for line in page:
            if _is_past_range(line, wanted, newest_first=newest_first):
                return AuditSearchResult(found, None)
            cursor, looked = line.cursor, looked + 1
            if _matches(line, wanted):
                found.append(line)
            if len(found) == limit:
                return AuditSearchResult(found, cursor)
        if len(page) < size:
            return AuditSearchResult(found, None)
    return AuditSearchResult(found, cursor)


async def _start_cursor(store: Store, wanted: AuditFilter, *, newest_first: bool) -> str | None:
    """Where the lines of the span begin, if it does not begin at the end of the journal anyway."""
    if newest_first and wanted.until is not None:
        return await cursor_after(store, AUDIT, wanted.until + CLOCK_SKEW)
    if not newest_first and wanted.since is not None:
        return await cursor_before(store, AUDIT, wanted.since - CLOCK_SKEW)
    return None


def _is_past_range(line: JournalEntry, wanted: AuditFilter, *, newest_first: bool) -> bool:
    """Whether no line from here on can be in the span."""
    if newest_first:
        return wanted.since is not None and line.at < wanted.since - CLOCK_SKEW
    return wanted.until is not None and line.at > wanted.until + CLOCK_SKEW


def _matches(line: JournalEntry, wanted: AuditFilter) -> bool:
    if wanted.indexed_only:
        return True
    if wanted.since is not None and line.at < wanted.since:
        return False
    if wanted.until is not None and line.at >= wanted.until:
        return False
    entry: dict[str, Any] = json.loads(line.body)
    actor = entry["actor"]
    return (
        _matches_any(actor["name"], wanted.actors)
        and _matches_any(actor["kind"], wanted.actor_kinds)
        and _matches_any(entry["action"], wanted.actions)
        and (not wanted.q or fold(wanted.q) in _searchable_text(entry))
    )


def _matches_any(text: str, wanted: Sequence[str]) -> bool:
    return not wanted or fold(text) in [fold(one) for one in wanted]


def _searchable_text(entry: dict[str, Any]) -> str:
    """All that people can read of a line."""
    details = [f"{name}={value}" for name, value in entry.get("details", {}).items()]
    return fold("\n".join([entry["actor"]["name"], entry["action"], entry["subject"], entry["reason"], *details]))
