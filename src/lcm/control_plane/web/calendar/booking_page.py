"""The page of one booking, and the page of one class: its seats as tiles, those with a problem first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.bookings.protection import fleet_is_on_hold
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import LABLETS, TEAMS
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.teams.visibility import manages
from lcm.control_plane.web.auth import InstructorUser, WebUser, is_fragment
from lcm.control_plane.web.lablets.list_page import workers_by_id
from lcm.control_plane.web.rendering import render_fragment, render_page
from lcm.core import clock
from lcm.model.booking.failed_seats import retry_text
from lcm.model.booking.progress import due_status, seat_id
from lcm.model.booking.record import MAX_REPEATS, UNDER_WAY, Booking, BookingOccurrence, BookingStatus
from lcm.model.lablet.access import unreachable_reason
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.lablet.urgency import LabletUrgency, lablet_problem, lablet_urgency
from lcm.model.problems import ProblemCode
from lcm.model.team import Team

if TYPE_CHECKING:
    from lcm.control_plane.auth.roles import Scope
    from lcm.control_plane.store.port import Store
    from lcm.model.worker.record import Worker

router = APIRouter(include_in_schema=False)
BookingId = Annotated[str, Path(pattern=r"^bk-[a-z0-9-]{1,61}$")]
ClassNumber = Annotated[int, Path(ge=1, le=MAX_REPEATS)]


@dataclass(frozen=True, slots=True)
class Seat:
    """A seat of a class: its lablet, or None while there is none, and who gets it."""

    number: int
    learner: str
    lablet: Lablet | None
    unreadable: bool = False
    next_step: str = ""  # of a failed one, while its class is under way
    worker: Worker | None = None

    @property
    def urgency(self) -> LabletUrgency:
        """Seats with a problem come first."""
        if self.unreadable:
            return LabletUrgency.STUCK
        if self.lablet is None:
            return LabletUrgency.PLANNED
        urgency = lablet_urgency(self.lablet)
        return min(urgency, LabletUrgency.DEGRADED) if self.unreachable else urgency

    @property
    def unreachable(self) -> str:
        """Why its lab, which runs by its record, cannot be reached; empty if it can be."""
        return "" if self.lablet is None else unreachable_reason(self.lablet, self.worker)

    @property
    def running(self) -> bool:
        """Whether its lab runs on a worker that runs."""
        return self.lablet is not None and self.lablet.status is LabletStatus.RUNNING and not self.unreachable

    @property
    def problem(self) -> str | None:
        """What is wrong with its lab."""
        if self.unreadable:
            return "Its record cannot be read: restore it from a backup."
        return None if self.lablet is None else lablet_problem(self.lablet) or self.unreachable or None

    @property
    def resettable(self) -> bool:
        """Whether its lab can be made anew."""
        runs = self.lablet is not None and self.lablet.wanted and self.lablet.status is LabletStatus.RUNNING
        return runs or bool(self.next_step)

    @property
    def ended(self) -> bool:
        """Whether its lab has ended."""
        return self.lablet is not None and self.lablet.status in FINAL_LABLET_STATUSES


@router.get("/bookings/{booking_id}")
async def booking_page(request: Request, user: InstructorUser, booking_id: BookingId) -> HTMLResponse:
    """The whole page, or only the part that changes."""
    services = get_services(request)
    booking = await read_booking(services, user, booking_id)
    values = {"booking": booking, "team": await _team_name(services.context.store, booking), **_changes(user, booking)}
    if is_fragment(request):
        return render_fragment("bookings/_booking.html", user=user, **values)
    return await render_page(request, user, "bookings/booking.html", here="bookings", title=booking.name, **values)


@router.get("/bookings/{booking_id}/classes/{number}")
async def class_page(
    request: Request, user: InstructorUser, booking_id: BookingId, number: ClassNumber
) -> HTMLResponse:
    """The whole page, or only the part that changes."""
    services = get_services(request)
    booking = await read_booking(services, user, booking_id)
    occurrence = find_class(booking, number)
    seats = await read_seats(services.context.store, user.caller.scope, booking, occurrence)
    values: dict[str, Any] = {
        "booking": booking,
        "occurrence": occurrence,
        "seats": seats,
        "running": sum(each.running for each in seats),
        "problems": sum(each.problem is not None for each in seats),
        "ended": sum(each.ended and each.problem is None for each in seats),
        **_changes(user, booking),
    }
    if is_fragment(request):
        return render_fragment("bookings/_class.html", user=user, **values)
    title = booking.name if len(booking.occurrences) == 1 else f"{booking.name}, class {number}"
    return await render_page(request, user, "bookings/class.html", here="bookings", title=title, **values)


async def read_booking(services: Services, user: WebUser, booking_id: str) -> Booking:
    """One booking that the user may see."""
    return Booking.model_validate_json((await services.bookings.get(user.caller, booking_id)).body)


def find_class(booking: Booking, number: int) -> BookingOccurrence:
    """One class of a booking."""
    found = booking.occurrence(number)
    if found is None:
        detail = f"number: booking {booking.name} has the classes 1 to {len(booking.occurrences)}, not {number}"
        raise ProblemError(ProblemCode.NOT_FOUND, detail)
    return found


async def read_seats(store: Store, scope: Scope, booking: Booking, occurrence: BookingOccurrence) -> list[Seat]:
    """All seats of a class, those with a problem first. A lablet that went to another team is not shown."""
    ids = {number: seat_id(booking, occurrence.number, number) for number in range(1, booking.seats + 1)}
    stored = await store.get_many(LABLETS, list(ids.values()))
    found = {key: read_or_skip(each, Lablet, "lablet") for key, each in stored.items()}
    lablets = {key: each for key, each in found.items() if each is not None and scope.sees(each.team, each.owner)}
    workers = await workers_by_id(store, (each.worker_id for each in lablets.values() if each.worker_id is not None))
    learners, now = dict(enumerate(booking.learners, 1)), clock.now()
    goes_on, on_hold = due_status(occurrence, now) in UNDER_WAY, await fleet_is_on_hold(store, now)
    seats = [
        Seat(
            number,
            learners.get(number, ""),
            lablets.get(key),
            unreadable=key in found and found[key] is None,
            next_step=retry_text(lablets[key], now, on_hold=on_hold) if goes_on and key in lablets else "",
            worker=workers.get(lablets[key].worker_id or "") if key in lablets else None,
        )
        for number, key in ids.items()
    ]
    return sorted(seats, key=lambda each: (each.urgency, each.number))


def _changes(user: WebUser, booking: Booking) -> dict[str, Any]:
    """What the user may change now, by the number of the class."""
    now, may_change = clock.now(), manages(user.caller, booking.team)
    ahead = [each for each in booking.open_occurrences if each.ends_at > now] if may_change else []
    return {
        "may_change": may_change,
        "open": {each.number for each in ahead},
        "movable": {each.number for each in ahead if each.status is BookingStatus.CONFIRMED},
        "under_way": {each.number for each in ahead if each.status in UNDER_WAY},
    }


async def _team_name(store: Store, booking: Booking) -> str:
    stored = await store.get(TEAMS, booking.team) if booking.team else None
    return booking.team if stored is None else Team.model_validate_json(stored.body).name
