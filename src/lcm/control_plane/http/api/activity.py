"""What happened: the audit, and the summary of a span of time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import WithJsonSchema

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.api.workers import Cursor, Limit, Regions, list_filter
from lcm.control_plane.http.deps import Viewer
from lcm.control_plane.http.pagination import AuditPage, error_responses, raw_audit_page
from lcm.control_plane.journal.search import AuditFilter, search_audit
from lcm.control_plane.journal.sse_client import EventFilter
from lcm.control_plane.services import get_services
from lcm.control_plane.store.validation import MAX_TOPICS
from lcm.model.audit import ActorKind
from lcm.model.base import SingleLineText, UtcDatetime
from lcm.model.fleet.activity_summary import ActivitySummary
from lcm.model.problems import ProblemCode

router = APIRouter(prefix="/api", tags=["activity"], responses=error_responses(401, 403, 422, 429))

Since = Annotated[UtcDatetime | None, Query(description="Not what was before, such as 2026-01-17T20:00:00Z")]
Until = Annotated[UtcDatetime | None, Query(description="Only what was before")]
Actors = Annotated[list[str] | None, Query(description="Who did it, by name; repeated, or with commas")]
ActorKinds = Annotated[
    list[str] | None,
    Query(description="Kinds of actors; repeated, or with commas"),
    WithJsonSchema({"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(ActorKind)}}),
]
Actions = Annotated[list[str] | None, Query(description="What was done, such as stop; repeated, or with commas")]
Subjects = Annotated[
    list[str] | None, Query(description="What it is about, such as ids of workers; repeated, or with commas")
]


@router.get("/audit", response_model=AuditPage)
async def audit(
    request: Request,
    caller: Viewer,
    subject: Subjects = None,
    actor: Actors = None,
    actor_kind: ActorKinds = None,
    action: Actions = None,
    since: Since = None,
    until: Until = None,
    q: Annotated[SingleLineText | None, Query(max_length=100, description="Part of any text of the line")] = None,
    newest_first: Annotated[bool, Query(description="Whether the newest line comes first")] = True,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Every decision and change: who, what, why, when.

    Filters other than `subject` look at lines one by one and at some thousands a request, so that a page may be short
    or empty and still have a `next_cursor`.
    """
    wanted = AuditFilter(
        subjects=bounded_list_filter("subject", subject),
        actors=bounded_list_filter("actor", actor),
        actor_kinds=parse_actor_kinds(actor_kind),
        actions=bounded_list_filter("action", action),
        since=since,
        until=until,
        q=q or "",
    )
    store = get_services(request).plane.store
    found = await search_audit(store, wanted, newest_first=newest_first, cursor=cursor, limit=limit)
    return raw_audit_page(found.lines, found.next_cursor)


@router.get("/fleet/overnight")
async def overnight(request: Request, caller: Viewer, since: Since = None, until: Until = None) -> ActivitySummary:
    """What automation and people did in a span of time, by default the last 12 hours, and what stops saved in it."""
    return await get_services(request).nights.summarize(since, until)


def bounded_list_filter(field: str, values: list[str] | None) -> tuple[str, ...]:
    """The values of a list filter; more than can be asked for at once are refused."""
    found = list_filter(field, values)
    if len(found) > MAX_TOPICS:
        raise ProblemError(ProblemCode.INVALID, f"{field}: at most {MAX_TOPICS} at once, not {len(found)}")
    return tuple(found)


def parse_actor_kinds(values: list[str] | None) -> tuple[str, ...]:
    """Kinds of actors of a filter."""
    try:
        return tuple(ActorKind(one).value for one in list_filter("actor_kind", values))
    except ValueError as error:
        raise ProblemError(ProblemCode.INVALID, f"actor_kind: {error}; there are {', '.join(ActorKind)}") from None


events_router = APIRouter(prefix="/api/events", tags=["events"], responses=error_responses(401, 403, 422, 429))


@events_router.get("/stream", response_class=StreamingResponse)
async def stream(
    request: Request,
    caller: Viewer,
    worker_id: Annotated[
        list[str] | None, Query(description="Only what is about these workers; repeated, or with commas")
    ] = None,
    lablet_id: Annotated[
        list[str] | None, Query(description="Only what is about these lablets; repeated, or with commas")
    ] = None,
    topic: Annotated[
        list[str] | None,
        Query(
            description="Only these: worker, history, lablet, lablet-history, audit; repeated, or with commas",
        ),
    ] = None,
    aws_region: Regions = None,
    last_event_id: Annotated[
        str | None, Header(max_length=100, description="The id of the last event that was heard: go on after it")
    ] = None,
) -> StreamingResponse:
    """Server-sent events from now on, or from after Last-Event-ID. It ends only when one side goes."""
    subjects = frozenset(list_filter("worker_id", worker_id) + list_filter("lablet_id", lablet_id))
    wanted = EventFilter(
        subjects, frozenset(list_filter("topic", topic)), frozenset(list_filter("aws_region", aws_region))
    )
    events = get_services(request).stream.subscribe(wanted, last_event_id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
