"""What happened: the audit, and the summary of a span of time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import WithJsonSchema

from lcm.control_plane.errors import Refusal
from lcm.control_plane.http.api.workers import Cursor, Limit, listed
from lcm.control_plane.http.deps import Viewer
from lcm.control_plane.http.pagination import AuditPage, documented, joined_audit
from lcm.control_plane.journal.audit import AuditFilter, read_audit
from lcm.control_plane.services import parts
from lcm.control_plane.store.validation import MOST_TOPICS
from lcm.model.audit import ActorKind
from lcm.model.base import Moment, Text
from lcm.model.fleet.activity_summary import Overnight
from lcm.model.problems import ProblemCode

router = APIRouter(prefix="/api", tags=["activity"], responses=documented(401, 403, 422, 429))

Since = Annotated[Moment | None, Query(description="Not what was before, such as 2026-01-17T20:00:00Z")]
Until = Annotated[Moment | None, Query(description="Only what was before")]
Actors = Annotated[list[str] | None, Query(description="Who did it, by name; repeated, or with commas")]
Kinds = Annotated[
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
    actor_kind: Kinds = None,
    action: Actions = None,
    since: Since = None,
    until: Until = None,
    q: Annotated[Text | None, Query(max_length=100, description="Part of any text of the line")] = None,
    newest_first: Annotated[bool, Query(description="Whether the newest line comes first")] = True,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Every decision and change: who, what, why, when.

    Filters other than `subject` look at lines one by one and at some thousands a request, so that a page may be short
    or empty and still have a `next_cursor`.
    """
    wanted = AuditFilter(
        subjects=few("subject", subject),
        actors=few("actor", actor),
        actor_kinds=kinds(actor_kind),
        actions=few("action", action),
        since=since,
        until=until,
        q=q or "",
    )
    store = parts(request).plane.store
    found = await read_audit(store, wanted, newest_first=newest_first, cursor=cursor, limit=limit)
    return joined_audit(found.lines, found.next_cursor)


@router.get("/fleet/overnight")
async def overnight(request: Request, caller: Viewer, since: Since = None, until: Until = None) -> Overnight:
    """What automation and people did in a span of time, by default the last 12 hours, and what stops saved in it."""
    return await parts(request).nights.look_back(since, until)


def few(field: str, values: list[str] | None) -> tuple[str, ...]:
    """The values of a list filter; more than can be asked for at once are refused."""
    found = listed(field, values)
    if len(found) > MOST_TOPICS:
        raise Refusal(ProblemCode.INVALID, f"{field}: at most {MOST_TOPICS} at once, not {len(found)}")
    return tuple(found)


def kinds(values: list[str] | None) -> tuple[str, ...]:
    """Kinds of actors of a filter."""
    try:
        return tuple(ActorKind(one).value for one in listed("actor_kind", values))
    except ValueError as error:
        raise Refusal(ProblemCode.INVALID, f"actor_kind: {error}; there are {', '.join(ActorKind)}") from None
