"""Routes for bookings."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from lcm.control_plane.http.deps import IdempotencyKeyDep, IfMatchDep, Instructor, InstructorWriter
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import BookingPage, Cursor, Limit, raw_page, versioned_response
from lcm.control_plane.http.query_params import BookingStatuses, parse_booking_statuses
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import FieldValue, Sort, Where
from lcm.model.base import RequestedTime, SingleLineText
from lcm.model.booking.record import MAX_REPEATS, Booking
from lcm.model.booking.requests import (
    BookingChangePreview,
    BookingPreview,
    CancelBookingRequest,
    CreateBookingRequest,
    ExtendBookingRequest,
    MoveOccurrenceRequest,
)
from lcm.model.booking.seat_links import ClassSeatLinks, CreateClassLinksRequest, RevokedClassLinks

router = APIRouter(prefix="/api/bookings", tags=["bookings"], responses=error_responses(401, 403, 422, 429))

BookingId = Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$", description="The id, such as bk-3f9k2m1xq0ab.")]
OccurrenceNumber = Annotated[int, Path(ge=1, le=MAX_REPEATS, description="The class, 1 for the first.")]


@router.get("", response_model=BookingPage)
async def list_bookings(
    request: Request,
    caller: Instructor,
    since: Annotated[
        RequestedTime | None, Query(alias="from", description="Only bookings whose last class ends after this time.")
    ] = None,
    to: Annotated[
        RequestedTime | None, Query(description="Only bookings whose first warm-up begins before this time.")
    ] = None,
    status: BookingStatuses = None,
    team: Annotated[
        SingleLineText | None, Query(max_length=63, description="Only bookings of the team with this id.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List bookings by the time of their first class, each with all of its classes. Instructors see their teams'."""
    any_of: dict[str, list[FieldValue]] = {}
    if statuses := parse_booking_statuses("status", status):
        any_of["status"] = list(statuses)
    if team is not None:
        any_of["team"] = [team]
    where = Where(
        any_of=any_of,
        at_least={} if since is None else {"ends_at": since.isoformat()},
        below={} if to is None else {"starts_at": to.isoformat()},
    )
    return raw_page(await get_services(request).bookings.page(caller, where, Sort("starts_at"), cursor, limit))


@router.post("", status_code=201, response_model=Booking, responses=error_responses(404, 409))
async def create_booking(
    request: Request, caller: InstructorWriter, body: CreateBookingRequest, key: IdempotencyKeyDep
) -> Response:
    """Book seats for a class. A refusal (409, `booking_refused`) has the answer of the preview in `current`."""
    return versioned_response(await get_services(request).bookings.create(caller, body, key), 201)


@router.post("/preview", responses=error_responses(404, 409))
async def preview_booking(request: Request, caller: InstructorWriter, body: CreateBookingRequest) -> BookingPreview:
    """Preview a booking: whether it fits, what is short, when it would fit, and what it costs. Nothing is stored."""
    return await get_services(request).bookings.preview(caller, body)


@router.get("/{booking_id}", response_model=Booking, responses=error_responses(404))
async def get_booking(request: Request, caller: Instructor, booking_id: BookingId) -> Response:
    """Get one booking with all of its classes."""
    return versioned_response((await get_services(request).bookings.get(caller, booking_id)).body)


@router.delete("/{booking_id}", response_model=Booking, responses=error_responses(404, 409, 412))
async def delete_booking(
    request: Request, caller: InstructorWriter, booking_id: BookingId, if_match: IfMatchDep, key: IdempotencyKeyDep
) -> Response:
    """Cancel a booking: all classes that are not over. Its record is kept."""
    record = await get_services(request).bookings.cancel(
        caller, booking_id, CancelBookingRequest(), if_match=if_match, key=key
    )
    return versioned_response(record)


@router.post("/{booking_id}/cancel", response_model=Booking, responses=error_responses(404, 409, 412))
async def cancel_booking(
    request: Request,
    caller: InstructorWriter,
    booking_id: BookingId,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
    body: CancelBookingRequest | None = None,
) -> Response:
    """Cancel a booking, or one class of it. Labs of a class that is under way end."""
    record = await get_services(request).bookings.cancel(
        caller, booking_id, body or CancelBookingRequest(), if_match=if_match, key=key
    )
    return versioned_response(record)


@router.post("/{booking_id}/extend", response_model=Booking, responses=error_responses(404, 409, 412))
async def extend_booking(
    request: Request,
    caller: InstructorWriter,
    booking_id: BookingId,
    body: ExtendBookingRequest,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
) -> Response:
    """Extend a class. That is refused (409, `booking_refused`) if the workers are not free until then."""
    record = await get_services(request).bookings.extend(caller, booking_id, body, if_match=if_match, key=key)
    return versioned_response(record)


@router.post("/{booking_id}/extend/preview", responses=error_responses(404, 409))
async def preview_booking_extension(
    request: Request, caller: InstructorWriter, booking_id: BookingId, body: ExtendBookingRequest
) -> BookingChangePreview:
    """Say whether the class can be extended, and what is missing if not. Nothing is changed."""
    return await get_services(request).bookings.preview_extension(caller, booking_id, body)


@router.post("/{booking_id}/occurrences/{number}/preview", responses=error_responses(404, 409))
async def preview_booking_move(
    request: Request,
    caller: InstructorWriter,
    booking_id: BookingId,
    number: OccurrenceNumber,
    body: MoveOccurrenceRequest,
) -> BookingChangePreview:
    """Say whether the class fits at the new time; if not, what is missing and which times fit. Nothing is changed."""
    return await get_services(request).bookings.preview_move(caller, booking_id, number, body)


@router.patch("/{booking_id}/occurrences/{number}", response_model=Booking, responses=error_responses(404, 409, 412))
async def move_booking_occurrence(
    request: Request,
    caller: InstructorWriter,
    booking_id: BookingId,
    number: OccurrenceNumber,
    body: MoveOccurrenceRequest,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
) -> Response:
    """Move one class to another time. That is refused (409, `booking_refused`) if it does not fit then."""
    record = await get_services(request).bookings.move(caller, booking_id, number, body, if_match=if_match, key=key)
    return versioned_response(record)


@router.post("/{booking_id}/occurrences/{number}/seat-links", status_code=201, responses=error_responses(404, 409))
async def create_class_seat_links(
    request: Request,
    caller: InstructorWriter,
    booking_id: BookingId,
    number: OccurrenceNumber,
    body: CreateClassLinksRequest | None = None,
) -> ClassSeatLinks:
    """Create a seat link for each seat of a class whose learner does not sign in. Only this response contains them."""
    expires_at = None if body is None else body.expires_at
    return await get_services(request).class_links.create(caller, booking_id, number, expires_at)


@router.delete("/{booking_id}/occurrences/{number}/seat-links", responses=error_responses(404))
async def revoke_class_seat_links(
    request: Request, caller: InstructorWriter, booking_id: BookingId, number: OccurrenceNumber
) -> RevokedClassLinks:
    """Revoke all seat links of a class: what they have opened ends."""
    return RevokedClassLinks(revoked=await get_services(request).class_links.revoke(caller, booking_id, number))
