"""Bookings of classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import (
    DEFAULT_PAGE_SIZE,
    Resource,
    api_path,
    encode_body,
    if_match,
    new_idempotency_key,
    query_params,
)
from lcm.client.responses import ApiRequest
from lcm.model.base import Page, format_utc
from lcm.model.booking.record import Booking
from lcm.model.booking.requests import BookingChangePreview, BookingPreview, CancelBookingRequest
from lcm.model.booking.seat_links import ClassSeatLinks, CreateClassLinksRequest, RevokedClassLinks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from datetime import datetime

    from pydantic import BaseModel

    from lcm.model.booking.record import BookingStatus
    from lcm.model.booking.requests import CreateBookingRequest, ExtendBookingRequest, MoveOccurrenceRequest

_PATH = "bookings"


class Bookings(Resource):
    """Bookings. Changes send a new Idempotency-Key by default, so they survive a lost response."""

    def list(
        self,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
        status: Iterable[BookingStatus] = (),
        team: str | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> AsyncIterator[Booking]:
        """Bookings by the time of their first class; `begin` and `end` are times with a zone."""
        times = {"from": begin, "to": end}
        query = query_params(
            status=status,
            team=team,
            **{name: None if moment is None else format_utc(moment) for name, moment in times.items()},
        )
        return self._pages("bookings.list", api_path(_PATH), Page[Booking], query, page_size)

    async def preview(self, body: CreateBookingRequest) -> BookingPreview:
        """Whether it would be confirmed now; nothing is stored."""
        call = ApiRequest("bookings.preview", "POST", api_path(_PATH, "preview"), body=encode_body(body))
        return await self._send(call, BookingPreview)

    async def create(self, body: CreateBookingRequest, *, key: str | None = None) -> Booking:
        """Book. A refusal is a `BookingRefusedError` with the answer of the preview in `current`."""
        return await self._change("create", "POST", api_path(_PATH), body, None, key)

    async def get(self, booking_id: str) -> Booking:
        """One booking."""
        return await self._send(ApiRequest("bookings.get", "GET", api_path(_PATH, booking_id)), Booking)

    async def cancel(
        self,
        booking_id: str,
        reason: str | None = None,
        *,
        number: int | None = None,
        version: int | None = None,
        key: str | None = None,
    ) -> Booking:
        """Cancel all classes that are not over, or the one with this number."""
        body = CancelBookingRequest(reason=reason, number=number)
        return await self._change("cancel", "POST", api_path(_PATH, booking_id, "cancel"), body, version, key)

    async def delete(self, booking_id: str, *, version: int | None = None, key: str | None = None) -> Booking:
        """Cancel all classes that are not over, without a reason."""
        call = ApiRequest(
            "bookings.delete",
            "DELETE",
            api_path(_PATH, booking_id),
            headers=if_match(version),
            idempotency_key=key or new_idempotency_key(),
        )
        return await self._send(call, Booking)

    async def extend(
        self, booking_id: str, body: ExtendBookingRequest, *, version: int | None = None, key: str | None = None
    ) -> Booking:
        """Let a class end later."""
        return await self._change("extend", "POST", api_path(_PATH, booking_id, "extend"), body, version, key)

    async def preview_extension(self, booking_id: str, body: ExtendBookingRequest) -> BookingChangePreview:
        """Whether a class could be extended now; nothing is changed."""
        path = api_path(_PATH, booking_id, "extend", "preview")
        return await self._send(
            ApiRequest("bookings.preview-extension", "POST", path, body=encode_body(body)), BookingChangePreview
        )

    async def preview_move(self, booking_id: str, number: int, body: MoveOccurrenceRequest) -> BookingChangePreview:
        """Whether a class could be moved now; nothing is changed."""
        path = api_path(_PATH, booking_id, "occurrences", str(number), "preview")
        return await self._send(
            ApiRequest("bookings.preview-move", "POST", path, body=encode_body(body)), BookingChangePreview
        )

    async def move(
        self,
        booking_id: str,
        number: int,
        body: MoveOccurrenceRequest,
        *,
        version: int | None = None,
        key: str | None = None,
    ) -> Booking:
        """Move one class to another time."""
        path = api_path(_PATH, booking_id, "occurrences", str(number))
        return await self._change("move", "PATCH", path, body, version, key)

    async def create_seat_links(
        self, booking_id: str, number: int, *, expires_at: datetime | None = None
    ) -> ClassSeatLinks:
        """Create a link for each seat of a class. Only this response contains them."""
        path = api_path(_PATH, booking_id, "occurrences", str(number), "seat-links")
        body = encode_body(CreateClassLinksRequest(expires_at=expires_at))
        return await self._send(ApiRequest("bookings.create-seat-links", "POST", path, body=body), ClassSeatLinks)

    async def revoke_seat_links(self, booking_id: str, number: int) -> RevokedClassLinks:
        """Revoke all links of a class: what they have opened ends."""
        path = api_path(_PATH, booking_id, "occurrences", str(number), "seat-links")
        return await self._send(ApiRequest("bookings.revoke-seat-links", "DELETE", path), RevokedClassLinks)

    async def _change(
        self, name: str, method: str, path: str, body: BaseModel, version: int | None, key: str | None
    ) -> Booking:
        call = ApiRequest(
            f"bookings.{name}",
            method,
            path,
            body=encode_body(body),
            headers=if_match(version),
            idempotency_key=key or new_idempotency_key(),
        )
        return await self._send(call, Booking)
