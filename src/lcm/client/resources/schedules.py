"""Schedules: when workers are up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import Resource, api_path, encode_body, new_idempotency_key
from lcm.client.responses import ApiRequest
from lcm.model.base import Page
from lcm.model.calendar.schedule import Schedule
from lcm.model.calendar.schedule_preview import SchedulePreview, ScheduleStatus

if TYPE_CHECKING:
    from lcm.model.calendar.schedule_requests import (
        CreateScheduleRequest,
        EditScheduleRequest,
        PreviewScheduleRequest,
    )

_PATH = "schedules"


class Schedules(Resource):
    """Weekly windows during which workers are up, and what is done outside them."""

    async def list(self) -> tuple[ScheduleStatus, ...]:
        """All schedules by name."""
        return (await self._send(ApiRequest("schedules.list", "GET", api_path(_PATH)), Page[ScheduleStatus])).items

    async def get(self, schedule_id: str) -> ScheduleStatus:
        """One schedule."""
        return await self._send(ApiRequest("schedules.get", "GET", api_path(_PATH, schedule_id)), ScheduleStatus)

    async def create(self, body: CreateScheduleRequest) -> Schedule:
        """Create a schedule."""
        request = ApiRequest(
            "schedules.create", "POST", api_path(_PATH), body=encode_body(body), idempotency_key=new_idempotency_key()
        )
        return await self._send(request, Schedule)

    async def edit(self, schedule_id: str, body: EditScheduleRequest) -> Schedule:
        """Change the fields that are given."""
        request = ApiRequest(
            "schedules.edit",
            "PATCH",
            api_path(_PATH, schedule_id),
            body=encode_body(body),
            idempotency_key=new_idempotency_key(),
        )
        return await self._send(request, Schedule)

    async def delete(self, schedule_id: str) -> Schedule:
        """Delete a schedule. Workers that it stopped stay stopped."""
        path = api_path(_PATH, schedule_id)
        request = ApiRequest("schedules.delete", "DELETE", path, idempotency_key=new_idempotency_key())
        return await self._send(request, Schedule)

    async def preview(self, body: PreviewScheduleRequest) -> SchedulePreview:
        """What a schedule that is not saved would do."""
        request = ApiRequest("schedules.preview", "POST", api_path(_PATH, "preview"), body=encode_body(body))
        return await self._send(request, SchedulePreview)

    async def preview_saved(self, schedule_id: str, *, remove: bool = False) -> SchedulePreview:
        """What a saved schedule does, or what changes when it is deleted."""
        query = {"remove": ["true"]} if remove else {}
        path = api_path(_PATH, schedule_id, "preview")
        return await self._send(ApiRequest("schedules.preview-saved", "GET", path, query=query), SchedulePreview)
