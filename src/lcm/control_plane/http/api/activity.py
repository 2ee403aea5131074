"""Routes for audit entries, the activity summary and the event stream."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import WithJsonSchema

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.deps import Member, Viewer
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import AuditPage, Cursor, Limit, raw_audit_page
from lcm.control_plane.http.query_params import REPEATABLE, Regions, bounded_list_filter, list_filter
from lcm.control_plane.journal.search import AuditFilter, search_audit
from lcm.control_plane.journal.sse_client import EventFilter
from lcm.control_plane.services import get_services
from lcm.model.audit import ActorKind
from lcm.model.base import RequestedTime, SingleLineText
from lcm.model.fleet.activity_summary import ActivitySummary
from lcm.model.problems import ProblemCode

router = APIRouter(prefix="/api", tags=["activity"], responses=error_responses(401, 403, 422, 429))

Since = Annotated[RequestedTime | None, Query(description="The start of the period, such as 2026-01-17T20:00:00Z.")]
Until = Annotated[RequestedTime | None, Query(description="The end of the period, exclusive.")]
Actors = Annotated[list[str] | None, Query(description=f"Names of actors. {REPEATABLE}")]
ActorKinds = Annotated[
    list[str] | None,
    Query(description=f"Kinds of actors. {REPEATABLE}"),
    WithJsonSchema({"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(ActorKind)}}),
]
Actions = Annotated[list[str] | None, Query(description=f"Actions, such as stop. {REPEATABLE}")]
Subjects = Annotated[list[str] | None, Query(description=f"Subjects, such as worker ids. {REPEATABLE}")]


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
    q: Annotated[
        SingleLineText | None, Query(max_length=100, description="Text that any field of the entry contains.")
    ] = None,
    newest_first: Annotated[bool, Query(description="Whether the newest entry comes first.")] = True,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List audit entries: every decision and change with its actor, action, reason and time.

    Filters other than `subject` scan a few thousand entries per request, so a page may be short or empty and still
    have a `next_cursor`.
    """
    audit_filter = AuditFilter(
        subjects=bounded_list_filter("subject", subject),
        actors=bounded_list_filter("actor", actor),
        actor_kinds=parse_actor_kinds(actor_kind),
        actions=bounded_list_filter("action", action),
        since=since,
        until=until,
        q=q or "",
    )
    store = get_services(request).context.store
    page = await search_audit(store, audit_filter, newest_first=newest_first, cursor=cursor, limit=limit)
    return raw_audit_page(page.entries, page.next_cursor)


@router.get("/fleet/overnight")
async def overnight(request: Request, caller: Viewer, since: Since = None, until: Until = None) -> ActivitySummary:
    """Summarize what automation and people did in a period, and the savings. Default: the last 12 hours."""
    return await get_services(request).activity_summary.summarize(since, until)


def parse_actor_kinds(values: list[str] | None) -> tuple[str, ...]:
    """The actor kinds of a filter."""
    try:
        return tuple(ActorKind(value).value for value in list_filter("actor_kind", values))
    except ValueError as error:
        raise ProblemError(
            ProblemCode.INVALID, f"actor_kind: {error}; allowed values: {', '.join(ActorKind)}"
        ) from None


events_router = APIRouter(prefix="/api/events", tags=["events"], responses=error_responses(401, 403, 422, 429))


@events_router.get("/stream", response_class=StreamingResponse)
async def stream(
    request: Request,
    caller: Member,
    worker_id: Annotated[list[str] | None, Query(description=f"Only events of these workers. {REPEATABLE}")] = None,
    lablet_id: Annotated[list[str] | None, Query(description=f"Only events of these lablets. {REPEATABLE}")] = None,
    topic: Annotated[
        list[str] | None,
        Query(description=f"Topics: worker, history, lablet, lablet-history, audit. {REPEATABLE}"),
    ] = None,
    aws_region: Regions = None,
    last_event_id: Annotated[
        str | None,
        Header(max_length=100, description="The id of the last event received; the stream continues after it."),
    ] = None,
) -> StreamingResponse:
    """Stream server-sent events from now on, or after Last-Event-ID. The stream ends with the token or session."""
    subjects = frozenset(list_filter("worker_id", worker_id) + list_filter("lablet_id", lablet_id))
    event_filter = EventFilter(
        subjects, frozenset(list_filter("topic", topic)), frozenset(list_filter("aws_region", aws_region))
    )
    services = get_services(request)
    access = await services.authenticator.access_of(request, caller)
    services.stream.check_room(access.caller)
    events = services.stream.subscribe(event_filter, last_event_id, access)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
