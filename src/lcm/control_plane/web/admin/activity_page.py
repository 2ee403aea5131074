"""The Activity page: a summary of what automation did and saved, and the list of all audit entries."""

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
    """An audit entry as the page shows it."""

    cursor: str
    entry: AuditEntry
    url: str  # the page of the changed record; empty if it has none
    name: str

    @property
    def details(self) -> str:
        """The details of the entry as one line."""
        return ", ".join(f"{name}={_format_detail(value)}" for name, value in self.entry.details.items())


@router.get("/activity")
async def activity_page(request: Request, user: CurrentUser) -> HTMLResponse:
    """The whole page, or only the list for a refresh by a script."""
    query = AuditQuery.from_query(request.query_params)
    store = get_services(request).context.store
    query, result = await _read_entries(store, query)
    lines = await _audit_rows(store, result)
    newest = lines[0].cursor if lines and not query.after else _FIRST_CURSOR
    values: dict[str, Any] = {
        "query": query,
        "action_label": action_label,
        "lines": lines,
        "more": None if result.next_cursor is None else query.url(after=result.next_cursor),
        "full": len(lines) == PAGE_SIZE,
        "new_entries_url": None if query.after or query.until else query.url("/activity/news", after=newest),
    }
    if is_fragment(request):
        return render_fragment("admin/_activity_list.html", **values)
    values |= {"kinds": ACTOR_KIND_LABELS, "periods": SUMMARY_PERIODS, "actions": _SUGGESTED_ACTIONS}
    return await render_page(request, user, "admin/activity.html", here="activity", title="Activity", **values)


@router.get("/activity/night")
async def activity_summary_panel(request: Request, user: CurrentUser) -> HTMLResponse:
    """The summary of a period."""
    query = AuditQuery.from_query(request.query_params)
    until = clock.now()
    summary = await get_services(request).activity_summary.summarize(until - SUMMARY_PERIODS[query.period], until)
    return render_fragment(
        "admin/_activity_summary.html",
        query=query,
        summary=summary,
        action_label=action_label,
        duration=lambda seconds: humanize_duration(timedelta(seconds=seconds)),
        problem_actions=PROBLEM_ACTIONS,
    )


@router.get("/activity/news")
async def new_entries_notice(request: Request, user: CurrentUser) -> HTMLResponse:
    """How many entries are newer than the page. The list itself does not move while a person reads it.

    The response carries the count so far and the cursor up to which entries were counted: a page that stays open for
    a day does not scan the whole day again for each refresh.
    """
    query, previous = AuditQuery.from_query(request.query_params), request.query_params.get("new", "0")
    count = int(previous) if previous.isdecimal() and len(previous) < 4 else 0
    if count < MAX_NEW_ENTRIES:
        query, more = await _count_new_entries(get_services(request).context.store, query)
        count = min(MAX_NEW_ENTRIES, count + more)
    return render_fragment("admin/_activity_new_entries.html", query=query, count=count, most=MAX_NEW_ENTRIES)


def _format_detail(value: object) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_format_detail, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


async def _count_new_entries(store: Store, query: AuditQuery) -> tuple[AuditQuery, int]:
    """Count the matching entries after the cursor of a query; returns the query with the cursor moved past them."""
    newest = await store.read_journal(topics=[AUDIT], newest_first=True, limit=1)
    newest_cursor = newest[0].cursor if newest else _FIRST_CURSOR
    audit_filter = query.filter(await _subject_ids(store, query))
    try:
        result = await search_audit(store, audit_filter, newest_first=False, cursor=query.after, limit=MAX_NEW_ENTRIES)
    except InvalidCursorError:
        return replace(query, after=newest_cursor), 0
    # Entries written during the search are counted by the next refresh.
    counted = [line for line in result.entries if line.cursor <= newest_cursor]
    return replace(query, after=min(newest_cursor, result.next_cursor or newest_cursor)), len(counted)


async def _read_entries(store: Store, query: AuditQuery) -> tuple[AuditQuery, AuditSearchResult]:
    """A page of entries. An invalid cursor gives the newest entries, not an error."""
    audit_filter = query.filter(await _subject_ids(store, query))
    try:
        return query, await search_audit(store, audit_filter, cursor=query.after or None, limit=PAGE_SIZE)
    except InvalidCursorError:
        return replace(query, after=""), await search_audit(store, audit_filter, limit=PAGE_SIZE)


async def _subject_ids(store: Store, query: AuditQuery) -> tuple[str, ...]:
    """The IDs of the subjects; users may also name workers and lablets by their names."""
    ids = []
    for subject in query.subjects:
        record = await store.get_unique(WORKERS, "name", subject) or await store.get_unique(LABLETS, "name", subject)
        ids.append(subject if record is None else record.id)
    return tuple(ids)


async def _audit_rows(store: Store, result: AuditSearchResult) -> list[AuditRow]:
    entries = [AuditEntry.model_validate_json(each.body) for each in result.entries]
    subjects = {each.subject for each in entries if _RECORD_ID.fullmatch(each.subject)}
    pages: dict[str, tuple[str, str]] = {}
    for kind, prefix, path in ((WORKERS, "w-", "/workers/"), (LABLETS, "l-", "/lablets/")):
        records = await store.get_many(kind, sorted(each for each in subjects if each.startswith(prefix)))
        pages |= {each: (f"{path}{each}", json.loads(stored.body)["name"]) for each, stored in records.items()}
    return [
        AuditRow(line.cursor, entry, *pages.get(entry.subject, ("", "")))
        for line, entry in zip(result.entries, entries, strict=True)
    ]
