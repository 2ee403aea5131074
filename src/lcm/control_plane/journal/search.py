"""Searching the journal: by time, and the audit by filter.

Entries are in commit order and not indexed by time, so a time is found by bisection. The clocks of several control
planes differ a little, and a transaction is dated when it begins, so times are only nearly ordered: a caller that needs
exact bounds searches `CLOCK_SKEW` further.

The audit is indexed by topic and subject. Other conditions are checked entry by entry, so one request scans a bounded
number of entries and returns where the next one continues: a page may be short, or empty, without being the last.
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
MAX_ENTRIES_SCANNED = 5000
_PAGE = 500
_BISECT_UNTIL = 64
_SAMPLE_SIZE = 3  # entries read at each step; their median time counts, so a single wrong clock does no harm


async def cursor_before(store: Store, topic: str, time: datetime) -> str | None:
    """A cursor up to which all entries of the topic are older than the given time; None if there is none."""
    bounds = await _bisect(store, topic, time)
    return None if bounds is None else journal_cursor(bounds[0])


async def cursor_after(store: Store, topic: str, time: datetime) -> str | None:
    """A cursor from which on all entries of the topic are younger than the given time; None if there is none."""
    bounds = await _bisect(store, topic, time)
    return None if bounds is None else journal_cursor(bounds[1])


async def _bisect(store: Store, topic: str, time: datetime) -> tuple[int, int] | None:
    """Two entry numbers: up to the first all are older; from the second on all are younger or did not exist yet."""
    oldest = await store.read_journal(topics=[topic], limit=1)
    newest = await store.read_journal(topics=[topic], newest_first=True, limit=1)
    if not oldest or not newest:
        return None
    low, high = parse_journal_cursor(oldest[0].cursor) - 1, parse_journal_cursor(newest[0].cursor) + 1
    while high - low > _BISECT_UNTIL:
        middle = (low + high) // 2
        entries = await store.read_journal(
            topics=[topic], after=journal_cursor(middle), before=journal_cursor(high), limit=_SAMPLE_SIZE
        )
        if not entries or _median_time(entries) >= time:
            high = middle + 1
        else:
            low = middle
    # Where the median entry was younger, the entries before it may be older.
    following = await store.read_journal(topics=[topic], after=journal_cursor(high - 1), limit=_SAMPLE_SIZE)
    return low, parse_journal_cursor(following[-1].cursor) + 1 if following else high


def _median_time(entries: Sequence[JournalEntry]) -> datetime:
    return sorted(entry.at for entry in entries)[len(entries) // 2]


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Conditions that must all match; of a list, one value must match. Names are compared case-insensitively."""

    subjects: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    actor_kinds: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    q: str = ""

    @property
    def indexed_only(self) -> bool:
        """Whether the journal's indexes cover all conditions."""
        return not (self.actors or self.actor_kinds or self.actions or self.since or self.until or self.q)


@dataclass(frozen=True, slots=True)
class AuditSearchResult:
    """Matching entries in order, and where to continue; None at the end."""

    entries: Sequence[JournalEntry]
    next_cursor: str | None


async def search_audit(
    store: Store, audit_filter: AuditFilter, *, newest_first: bool = True, cursor: str | None = None, limit: int = 100
) -> AuditSearchResult:
    """Audit entries that match, from a cursor on."""
    if cursor is None:
        cursor = await _start_cursor(store, audit_filter, newest_first=newest_first)
    matches: list[JournalEntry] = []
    scanned = 0
    while scanned < MAX_ENTRIES_SCANNED:
        size = limit if audit_filter.indexed_only else _PAGE
        bound = {"before": cursor} if newest_first else {"after": cursor}
        page = await store.read_journal(
            topics=[AUDIT], subjects=audit_filter.subjects, newest_first=newest_first, limit=size, **bound
        )
        for entry in page:
            if _is_past_range(entry, audit_filter, newest_first=newest_first):
                return AuditSearchResult(matches, None)
            cursor, scanned = entry.cursor, scanned + 1
            if _matches(entry, audit_filter):
                matches.append(entry)
            if len(matches) == limit:
                return AuditSearchResult(matches, cursor)
        if len(page) < size:
            return AuditSearchResult(matches, None)
    return AuditSearchResult(matches, cursor)


async def _start_cursor(store: Store, audit_filter: AuditFilter, *, newest_first: bool) -> str | None:
    """The cursor where the time range begins; None if it begins at the end of the journal."""
    if newest_first and audit_filter.until is not None:
        return await cursor_after(store, AUDIT, audit_filter.until + CLOCK_SKEW)
    if not newest_first and audit_filter.since is not None:
        return await cursor_before(store, AUDIT, audit_filter.since - CLOCK_SKEW)
    return None


def _is_past_range(entry: JournalEntry, audit_filter: AuditFilter, *, newest_first: bool) -> bool:
    """Whether no entry from here on can be in the time range."""
    if newest_first:
        return audit_filter.since is not None and entry.at < audit_filter.since - CLOCK_SKEW
    return audit_filter.until is not None and entry.at > audit_filter.until + CLOCK_SKEW


def _matches(entry: JournalEntry, audit_filter: AuditFilter) -> bool:
    if audit_filter.indexed_only:
        return True
    if audit_filter.since is not None and entry.at < audit_filter.since:
        return False
    if audit_filter.until is not None and entry.at >= audit_filter.until:
        return False
    audit: dict[str, Any] = json.loads(entry.body)
    actor = audit["actor"]
    return (
        _matches_any(actor["name"], audit_filter.actors)
        and _matches_any(actor["kind"], audit_filter.actor_kinds)
        and _matches_any(audit["action"], audit_filter.actions)
        and (not audit_filter.q or fold(audit_filter.q) in _searchable_text(audit))
    )


def _matches_any(text: str, allowed: Sequence[str]) -> bool:
    return not allowed or fold(text) in [fold(one) for one in allowed]


def _searchable_text(audit: dict[str, Any]) -> str:
    """All text of an audit entry that people can read."""
    details = [f"{name}={value}" for name, value in audit.get("details", {}).items()]
    return fold("\n".join([audit["actor"]["name"], audit["action"], audit["subject"], audit["reason"], *details]))
