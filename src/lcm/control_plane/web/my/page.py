"""The learners' page: their labs, how to reach each node, and the time that is left. It follows changes."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse

from lcm.control_plane.bookings.protection import next_step_of_seat
from lcm.control_plane.journal.sse_client import EventFilter, format_event
from lcm.control_plane.records.kinds import LABLET_CHANGED, LABLETS
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.web.auth import LABS_PATH
from lcm.control_plane.web.my.access import LabUserDep, stream_access
from lcm.control_plane.web.rendering import render_fragment
from lcm.core import clock
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lcm.control_plane.services import Services
    from lcm.control_plane.web.my.access import LabUser
    from lcm.model.lablet.access import LabletAccess

router = APIRouter(include_in_schema=False)
MY_PATH: Final = LABS_PATH
MAX_LABS_SHOWN: Final = 50
_STATES: Final = {
    LabletStatus.PENDING_SCHEDULING: ("Waiting for a server", "busy"),
    LabletStatus.SCHEDULED: ("Starting", "busy"),
    LabletStatus.INSTANTIATING: ("Starting", "busy"),
    LabletStatus.RUNNING: ("Running", "good"),
    LabletStatus.STOPPING: ("Ending", "calm"),
}


@dataclass(frozen=True, slots=True)
class MyLab:
    """One lab as the page shows it."""

    lablet: Lablet
    access: LabletAccess
    changeable: bool
    next_step: str = ""  # of a failed one that is a seat of a class under way

    @property
    def state(self) -> tuple[str, str]:
        """Its state in plain words, and how that is marked."""
        if self.next_step:
            return "Failed", "bad"
        if not self.lablet.wanted:
            return _STATES[LabletStatus.STOPPING]
        if self.access.state == "unreachable" and self.lablet.status is LabletStatus.RUNNING:
            return "Not reachable", "calm"
        return _STATES.get(self.lablet.status, (self.lablet.status.value, "calm"))

    @property
    def ending(self) -> bool:
        """Whether its end was requested."""
        return not self.lablet.wanted or self.lablet.status is LabletStatus.STOPPING

    @property
    def extendable(self) -> bool:
        """Whether it has an end that can be moved."""
        lablet = self.lablet
        has_end = lablet.ends_at is not None or lablet.time_to_live_minutes is not None
        return self.changeable and not self.ending and not self.next_step and has_end

    @property
    def resettable(self) -> bool:
        """Whether its lab can be made anew."""
        anew = self.lablet.status is LabletStatus.RUNNING or bool(self.next_step)
        return self.changeable and not self.ending and anew


@router.get(MY_PATH)
async def my_page(request: Request, user: LabUserDep) -> HTMLResponse:
    """The whole page."""
    labs = await _labs(get_services(request), user)
    return render_fragment("my/page.html", user=user, labs=labs, title="My lab" if len(labs) == 1 else "My labs")


@router.get(f"{MY_PATH}/now")
async def my_labs(request: Request, user: LabUserDep) -> HTMLResponse:
    """The part that changes."""
    return render_fragment("my/_labs.html", user=user, labs=await _labs(get_services(request), user))


@router.get(f"{MY_PATH}/session")
async def my_session(user: LabUserDep) -> Response:
    """Whether the session goes on; asked before a lost stream is opened again."""
    return Response(status_code=204)


@router.get(f"{MY_PATH}/events")
async def my_events(request: Request, user: LabUserDep) -> StreamingResponse:
    """Says when one of their lablets has changed, and nothing about it or others."""
    services = get_services(request)
    access = await stream_access(request, user)
    services.stream.check_room(access.caller)
    only_seat = user.person is None and user.seat is not None
    subjects = frozenset({user.seat.caller.lablet_id} if user.seat is not None and only_seat else ())
    events = services.stream.subscribe(EventFilter(subjects, frozenset({LABLET_CHANGED})), None, access)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    announced = _announcements(events, lambda data: _concerns(user, data))
    return StreamingResponse(announced, media_type="text/event-stream", headers=headers)


async def _labs(services: Services, user: LabUser) -> list[MyLab]:
    found: dict[str, Lablet] = {}
    if user.seat is not None:
        stored = await services.context.store.get(LABLETS, user.seat.caller.lablet_id)
        if stored is not None and (lablet := read_or_skip(stored, Lablet, "lablet")) is not None:
            found[stored.id] = lablet
    newest_first = Sort("created_at", descending=True)
    for field, values in user.owner_fields().items():
        present = Where(any_of={field: values}, none_of={"status": sorted(FINAL_LABLET_STATUSES)})
        failed = Where(
            any_of={field: values, "status": [LabletStatus.FAILED.value]}
        )  # apart: they take no room of others
        for where in (present, failed):
            page = await services.context.store.find(LABLETS, where, sort=newest_first, limit=MAX_LABS_SHOWN)
            lablets = [read_or_skip(each, Lablet, "lablet") for each in page.items]
            found |= {each.id: each for each in lablets if each is not None}
    labs = [await _my_lab(services, user, each) for each in found.values() if user.sees(each)]
    return [each for each in labs if each is not None]


async def _my_lab(services: Services, user: LabUser, lablet: Lablet) -> MyLab | None:
    """One lab; None if it has ended. A failed seat has not while its class is under way."""
    next_step = ""
    if lablet.status in FINAL_LABLET_STATUSES:
        next_step = await next_step_of_seat(services.context.store, lablet, clock.now())
        if not next_step:
            return None
    return MyLab(lablet, await services.lablets.access_to(lablet), user.may_change(lablet), next_step)


def _concerns(user: LabUser, data: bytes) -> bool:
    record: dict[str, Any] = json.loads(data)
    is_seat = user.seat is not None and record.get("id") == user.seat.caller.lablet_id
    return is_seat or user.owns(record.get("team", ""), record.get("owner", ""))


async def _announcements(
    events: AsyncGenerator[bytes, None], concerns: Callable[[bytes], bool]
) -> AsyncGenerator[bytes, None]:
    """The events without their content and without places in the journal, which tell how much else happens."""
    yield b": connected\n\n"
    async with aclosing(events):
        async for chunk in events:
            for event in chunk.split(b"\n\n"):
                fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
                name = fields.get(b"event", b"").decode()
                if name and (name != LABLET_CHANGED or concerns(fields.get(b"data", b"{}"))):
                    yield format_event(name, b"{}")
