"""Activity: what automation did while nobody looked, what that saved, and every line of the audit."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.journal.audit import read_audit
from lcm.control_plane.records.kinds import AUDIT, LABLETS, WORKERS
from lcm.control_plane.services import parts
from lcm.control_plane.store.port import BadCursor
from lcm.control_plane.web.admin.audit_query import KINDS, NIGHTS, ROWS, AuditLook
from lcm.control_plane.web.auth import Visitor, is_fragment
from lcm.control_plane.web.rendering import fragment, page
from lcm.core import clock
from lcm.model.audit import AuditEntry
from lcm.model.fleet.activity_summary import TROUBLES, in_words
from lcm.model.formatting import span

if TYPE_CHECKING:
    from lcm.control_plane.journal.audit import AuditLines
    from lcm.control_plane.store.port import Store

router = APIRouter(include_in_schema=False)
MOST_NEWS = 100
_BEFORE_ALL = "0" * 16
_ID = re.compile(r"[wl]-[a-z0-9-]{1,64}")
_USUAL_ACTIONS = (
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
class Line:
    """A line of the audit as it is shown."""

    cursor: str
    entry: AuditEntry
    address: str  # of the page about what was changed; empty where there is none
    name: str

    @property
    def details(self) -> str:
        """What else is kept, in a row."""
        return ", ".join(f"{name}={_plain(value)}" for name, value in self.entry.details.items())


@router.get("/activity")
async def activity(request: Request, who: Visitor) -> HTMLResponse:
    """The summary and the list, or only the list for a script that asks again."""
    look = AuditLook.of(request.query_params)
    store = parts(request).plane.store
    look, found = await _found(store, look)
    lines = await _lines(store, found)
    newest = lines[0].cursor if lines and not look.after else _BEFORE_ALL
    values: dict[str, Any] = {
        "look": look,
        "lines": lines,
        "more": None if found.next_cursor is None else look.address(after=found.next_cursor),
        "full": len(lines) == ROWS,
        "news_from": None if look.after or look.until else look.address("/activity/news", after=newest),
    }
    if is_fragment(request):
        return fragment("admin/_activity_list.html", **values)
    values |= {"kinds": KINDS, "nights": NIGHTS, "actions": _USUAL_ACTIONS}
    return await page(request, who, "admin/activity.html", here="activity", title="Activity", **values)


@router.get("/activity/night")
async def night(request: Request, who: Visitor) -> HTMLResponse:
    """The summary of a span of time."""
    look = AuditLook.of(request.query_params)
    until = clock.now()
    summed = await parts(request).nights.look_back(until - NIGHTS[look.night], until)
    return fragment(
        "admin/_activity_summary.html",
        look=look,
        night=summed,
        in_words=in_words,
        lasting=lambda seconds: span(timedelta(seconds=seconds)),
        troubles=TROUBLES,
    )


@router.get("/activity/news")
async def news(request: Request, who: Visitor) -> HTMLResponse:
    """How many lines have come since the page was made; the list itself does not move under anybody's eyes.

    The answer carries how many there were and where it looked last, so that a page that stays open for a day does not
    have all lines of that day looked at again and again.
    """
    look, counted = AuditLook.of(request.query_params), request.query_params.get("new", "0")
    before = int(counted) if counted.isdecimal() and len(counted) < 4 else 0
    if before < MOST_NEWS:
        look, more = await _news_since(parts(request).plane.store, look)
        before = min(MOST_NEWS, before + more)
    return fragment("admin/_activity_new_entries.html", look=look, count=before, most=MOST_NEWS)


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_plain, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


async def _news_since(store: Store, look: AuditLook) -> tuple[AuditLook, int]:
    """How many lines fit after the place of a look, and the look from where that was looked at."""
    newest = await store.journal(topics=[AUDIT], newest_first=True, limit=1)
    mark = newest[0].cursor if newest else _BEFORE_ALL
    wanted = look.filter(await _ids(store, look))
    try:
        found = await read_audit(store, wanted, newest_first=False, cursor=look.after, limit=MOST_NEWS)
    except BadCursor:
        return replace(look, after=mark), 0
    known = [line for line in found.lines if line.cursor <= mark]  # what came while we looked is for the next time
    return replace(look, after=min(mark, found.next_cursor or mark)), len(known)


async def _found(store: Store, look: AuditLook) -> tuple[AuditLook, AuditLines]:
    """Lines. A place that no longer means anything is the newest line, not an error."""
    wanted = look.filter(await _ids(store, look))
    try:
        return look, await read_audit(store, wanted, cursor=look.after or None, limit=ROWS)
    except BadCursor:
        return replace(look, after=""), await read_audit(store, wanted, limit=ROWS)


async def _ids(store: Store, look: AuditLook) -> tuple[str, ...]:
    """What the audit calls the subjects: workers and lablets by their ids, which people need not know."""
    ids = []
    for subject in look.subjects:
        held = await store.get_unique(WORKERS, "name", subject) or await store.get_unique(LABLETS, "name", subject)
        ids.append(subject if held is None else held.id)
    return tuple(ids)


async def _lines(store: Store, found: AuditLines) -> list[Line]:
    entries = [AuditEntry.model_validate_json(each.body) for each in found.lines]
    subjects = {each.subject for each in entries if _ID.fullmatch(each.subject)}
    pages: dict[str, tuple[str, str]] = {}
    for kind, prefix, place in ((WORKERS, "w-", "/workers/"), (LABLETS, "l-", "/lablets/")):
        known = await store.get_many(kind, sorted(each for each in subjects if each.startswith(prefix)))
        pages |= {each: (f"{place}{each}", json.loads(stored.body)["name"]) for each, stored in known.items()}
    return [
        Line(line.cursor, entry, *pages.get(entry.subject, ("", "")))
        for line, entry in zip(found.lines, entries, strict=True)
    ]
