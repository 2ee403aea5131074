"""Activity: what automation did while nobody looked, what that saved, and every line of the audit."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.journal.search import search_audit
from lcm.control_plane.records.kinds import AUDIT, LABLETS, WORKERS
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import InvalidCursorError
from lcm.control_plane.web.admin.audit_query import ACTOR_KIND_LABELS, PAGE_SIZE, SUMMARY_PERIODS, AuditQuery
from lcm.control_plane.web.auth import CurrentUser, is_fragment
from lcm.control_plane.web.rendering import render_fragment, render_page
from lcm.core import clock
from lcm.model.audit import AuditEntry
from lcm.model.fleet.activity_summary import PROBLEM_ACTIONS, action_label
from lcm.model.formatting import humanize_duration

if TYPE_CHECKING:
    from lcm.control_plane.journal.search import AuditSearchResult
    from lcm.control_plane.store.port import Store

router = APIRouter(include_in_schema=False)
MAX_NEW_ENTRIES = 100
_FIRST_CURSOR = "0" * 16
_RECORD_ID = re.compile(r"[wl]-[a-z0-9-]{1,64}")
_SUGGESTED_ACTIONS = (
    "auto_paused",
    "breaker_opened",
    "created",
    "drain",
    "fleet_held",
    "fleet_released",
    "hold",
    "imported",
    "leaked_instance",
    "license_leaked",
    "provisioned",
    "retry",
    "scale_down_initiated",
    "scale_up_accepted",
    "settings_changed",
    "start",
    "status_reported",
    "stop",
    "template_changed",
    "terminate",
)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A line of the audit as it is shown."""

    cursor: str
    entry: AuditEntry
    address: str  # of the page about what was changed; empty where there is none
    name: str

    @property
    def details(self) -> str:
        """What else is kept, in a row."""
        return ", ".join(f"{name}={_format_detail(value)}" for name, value in self.entry.details.items())


@router.get("/activity")
async def activity_page(request: Request, who: CurrentUser) -> HTMLResponse:
    """The summary and the list, or only the list for a script that asks again."""
    look = AuditQuery.of(request.query_params)
    store = get_services(request).plane.store
    look, found = await _read_entries(store, look)
    lines = await _audit_rows(store, found)
    newest = lines[0].cursor if lines and not look.after else _FIRST_CURSOR
    values: dict[str, Any] = {
        "look": look,
        "lines": lines,
        "more": None if found.next_cursor is None else look.address(after=found.next_cursor),
        "full": len(lines) == PAGE_SIZE,
        "news_from": None if look.after or look.until else look.address("/activity/news", after=newest),
    }
    if is_fragment(request):
        return render_fragment("admin/_activity_list.html", **values)
    values |= {"kinds": ACTOR_KIND_LABELS, "nights": SUMMARY_PERIODS, "actions": _SUGGESTED_ACTIONS}
    return await render_page(request, who, "admin/activity.html", here="activity", title="Activity", **values)


@router.get("/activity/night")
async def activity_summary_panel(request: Request, who: CurrentUser) -> HTMLResponse:
    """The summary of a span of time."""
    look = AuditQuery.of(request.query_params)
    until = clock.now()
    summed = await get_services(request).nights.summarize(until - SUMMARY_PERIODS[look.night], until)
    return render_fragment(
        "admin/_activity_summary.html",
        look=look,
        night=summed,
        in_words=action_label,
        lasting=lambda seconds: humanize_duration(timedelta(seconds=seconds)),
        troubles=PROBLEM_ACTIONS,
    )


@router.get("/activity/news")
async def new_entries_notice(request: Request, who: CurrentUser) -> HTMLResponse:
    """How many lines have come since the page was made; the list itself does not move under anybody's eyes.

    The answer carries how many there were and where it looked last, so that a page that stays open for a day does not
    have all lines of that day looked at again and again.
    """
    look, counted = AuditQuery.of(request.query_params), request.query_params.get("new", "0")
    before = int(counted) if counted.isdecimal() and len(counted) < 4 else 0
    if before < MAX_NEW_ENTRIES:
        look, more = await _count_new_entries(get_services(request).plane.store, look)
        before = min(MAX_NEW_ENTRIES, before + more)
    return render_fragment("admin/_activity_new_entries.html", look=look, count=before, most=MAX_NEW_ENTRIES)


def _format_detail(value: object) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_format_detail, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


async def _count_new_entries(store: Store, look: AuditQuery) -> tuple[AuditQuery, int]:
    """How many lines fit after the place of a look, and the look from where that was looked at."""
    newest = await store.journal(topics=[AUDIT], newest_first=True, limit=1)
    mark = newest[0].cursor if newest else _FIRST_CURSOR
    wanted = look.filter(await _subject_ids(store, look))
    try:
        found = await search_audit(store, wanted, newest_first=False, cursor=look.after, limit=MAX_NEW_ENTRIES)
    except InvalidCursorError:
        return replace(look, after=mark), 0
    known = [line for line in found.lines if line.cursor <= mark]  # what came while we looked is for the next time
    return replace(look, after=min(mark, found.next_cursor or mark)), len(known)


async def _read_entries(store: Store, look: AuditQuery) -> tuple[AuditQuery, AuditSearchResult]:
    """Lines. A place that no longer means anything is the newest line, not an error."""
    wanted = look.filter(await _subject_ids(store, look))
    try:
        return look, await search_audit(store, wanted, cursor=look.after or None, limit=PAGE_SIZE)
    except InvalidCursorError:
        return replace(look, after=""), await search_audit(store, wanted, limit=PAGE_SIZE)


async def _subject_ids(store: Store, look: AuditQuery) -> tuple[str, ...]:
    """What the audit calls the subjects: workers and lablets by their ids, which people need not know."""
    ids = []
    for subject in look.subjects:
        held = await store.get_unique(WORKERS, "name", subject) or await store.get_unique(LABLETS, "name", subject)
        ids.append(subject if held is None else held.id)
    return tuple(ids)


async def _audit_rows(store: Store, found: AuditSearchResult) -> list[AuditRow]:
    entries = [AuditEntry.model_validate_json(each.body) for each in found.lines]
    subjects = {each.subject for each in entries if _RECORD_ID.fullmatch(each.subject)}
    pages: dict[str, tuple[str, str]] = {}
    for kind, prefix, place in ((WORKERS, "w-", "/workers/"), (LABLETS, "l-", "/lablets/")):
        known = await store.get_many(kind, sorted(each for each in subjects if each.startswith(prefix)))
        pages |= {each: (f"{place}{each}", json.loads(stored.body)["name"]) for each, stored in known.items()}
    return [
        AuditRow(line.cursor, entry, *pages.get(entry.subject, ("", "")))
        for line, entry in zip(found.lines, entries, strict=True)
    ]
