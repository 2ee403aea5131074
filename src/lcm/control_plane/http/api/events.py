"""The stream of events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from lcm.control_plane.http.api.workers import Regions, listed
from lcm.control_plane.http.deps import Viewer
from lcm.control_plane.http.pagination import documented
from lcm.control_plane.journal.sse_client import Wanted
from lcm.control_plane.services import parts

router = APIRouter(prefix="/api/events", tags=["events"], responses=documented(401, 403, 422, 429))


@router.get("/stream", response_class=StreamingResponse)
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
    subjects = frozenset(listed("worker_id", worker_id) + listed("lablet_id", lablet_id))
    wanted = Wanted(subjects, frozenset(listed("topic", topic)), frozenset(listed("aws_region", aws_region)))
    events = parts(request).stream.subscribe(wanted, last_event_id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
