"""Lablets and lablet definitions, for users."""

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
from lcm.model.base import Page
from lcm.model.lablet.record import Lablet, LabletDefinition, LabletDefinitionSummary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from pydantic import BaseModel

    from lcm.model.audit import LabletHistoryEntry
    from lcm.model.change_preview import ChangePreview, PreviewDefinitionRequest
    from lcm.model.lablet.access import LabletAccess
    from lcm.model.lablet.placement import LabletPreview
    from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest
    from lcm.model.lablet.status import LabletStatus

_DEFINITIONS_PATH = "lablet-definitions"


class Lablets(Resource):
    """Lablets. Changes send a new Idempotency-Key by default, so they survive a lost response."""

    def list(
        self,
        *,
        status: Iterable[LabletStatus] = (),
        exclude_statuses: Iterable[LabletStatus] = (),
        owner: Iterable[str] = (),
        worker: Iterable[str] = (),
        definition: Iterable[str] = (),
        q: str | None = None,
        sort: str | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> AsyncIterator[Lablet]:
        """Lablets that match all filters."""
        query = query_params(
            status=status,
            exclude_statuses=exclude_statuses,
            owner=owner,
            worker=worker,
            definition=definition,
            q=q,
            sort=sort,
        )
        return self._pages("lablets.list", api_path("lablets"), Page[Lablet], query, page_size)

    async def create(self, body: CreateLabletRequest, *, key: str | None = None) -> Lablet:
        """Create a lablet."""
        call = ApiRequest(
            "lablets.create",
            "POST",
            api_path("lablets"),
            body=encode_body(body),
            idempotency_key=key or new_idempotency_key(),
        )
        return await self._send(call, Lablet)

    async def get(self, lablet_id: str) -> Lablet:
        """One lablet."""
        return await self._send(ApiRequest("lablets.get", "GET", api_path("lablets", lablet_id)), Lablet)

    async def terminate(
        self, lablet_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Lablet:
        """Request its termination."""
        from lcm.model.worker.requests import CommandRequest

        call = ApiRequest(
            "lablets.terminate",
            "POST",
            api_path("lablets", lablet_id, "terminate"),
            body=encode_body(CommandRequest(reason=reason)),
            headers=if_match(version),
            idempotency_key=key or new_idempotency_key(),
        )
        return await self._send(call, Lablet)

    async def delete(self, lablet_id: str, *, version: int | None = None, key: str | None = None) -> Lablet:
        """Request its termination. The record stays."""
        path = api_path("lablets", lablet_id)
        call = ApiRequest(
            "lablets.delete", "DELETE", path, headers=if_match(version), idempotency_key=key or new_idempotency_key()
        )
        return await self._send(call, Lablet)

    def history(self, lablet_id: str, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[LabletHistoryEntry]:
        """Its history, oldest first."""
        from lcm.model.audit import LabletHistoryEntry

        path = api_path("lablets", lablet_id, "history")
        return self._pages("lablets.history", path, Page[LabletHistoryEntry], {}, page_size)

    async def access(self, lablet_id: str) -> LabletAccess:
        """How to reach it: host, ports and commands."""
        from lcm.model.lablet.access import LabletAccess

        return await self._send(
            ApiRequest("lablets.access", "GET", api_path("lablets", lablet_id, "access")), LabletAccess
        )

    async def preview_termination(self, lablet_id: str) -> ChangePreview:
        """What its termination would do. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        path = api_path("lablets", lablet_id, "preview")
        return await self._send(ApiRequest("lablets.preview-termination", "POST", path), ChangePreview)

    async def preview(self, body: CreateLabletRequest) -> LabletPreview:
        """Where it would be placed, without creating it."""
        from lcm.model.lablet.placement import LabletPreview

        call = ApiRequest("lablets.preview", "POST", api_path("lablets", "preview"), body=encode_body(body))
        return await self._send(call, LabletPreview)


class Definitions(Resource):
    """Lablet definitions. A version never changes."""

    def list(
        self, *, q: str | None = None, page_size: int = DEFAULT_PAGE_SIZE
    ) -> AsyncIterator[LabletDefinitionSummary]:
        """All versions of all definitions."""
        return self._pages(
            "definitions.list", api_path(_DEFINITIONS_PATH), Page[LabletDefinitionSummary], query_params(q=q), page_size
        )

    def versions(self, name: str, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[LabletDefinitionSummary]:
        """All versions of a definition, newest first."""
        return self._pages(
            "definitions.versions", api_path(_DEFINITIONS_PATH, name), Page[LabletDefinitionSummary], {}, page_size
        )

    async def get(self, name: str, version: str) -> LabletDefinition:
        """One version."""
        return await self._send(
            ApiRequest("definitions.get", "GET", api_path(_DEFINITIONS_PATH, name, version)), LabletDefinition
        )

    async def create(self, body: CreateDefinitionRequest, *, key: str | None = None) -> LabletDefinition:
        """Create a version; the same content again has the same result."""
        call = ApiRequest(
            "definitions.create",
            "POST",
            api_path(_DEFINITIONS_PATH),
            body=encode_body(body),
            idempotency_key=key or new_idempotency_key(),
        )
        return await self._send(call, LabletDefinition)

    async def preview_create(self, body: CreateDefinitionRequest) -> ChangePreview:
        """What creating a version would do. Nothing is changed."""
        return await self._preview("definitions.preview-create", api_path(_DEFINITIONS_PATH, "preview"), body)

    async def preview(self, name: str, version: str, body: PreviewDefinitionRequest) -> ChangePreview:
        """What enabling or disabling a version would do. Nothing is changed."""
        return await self._preview("definitions.preview", api_path(_DEFINITIONS_PATH, name, version, "preview"), body)

    async def _preview(self, operation: str, path: str, body: BaseModel) -> ChangePreview:
        from lcm.model.change_preview import ChangePreview

        return await self._send(ApiRequest(operation, "POST", path, body=encode_body(body)), ChangePreview)

    async def enable(self, name: str, version: str) -> LabletDefinition:
        """Allow new lablets from it."""
        return await self._switch(name, version, "enable")

    async def disable(self, name: str, version: str) -> LabletDefinition:
        """Allow no new lablets from it."""
        return await self._switch(name, version, "disable")

    async def _switch(self, name: str, version: str, how: str) -> LabletDefinition:
        call = ApiRequest(f"definitions.{how}", "POST", api_path(_DEFINITIONS_PATH, name, version, how))
        return await self._send(call, LabletDefinition)
