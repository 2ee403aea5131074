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
    from lcm.model.lablet.record import (
        AssignDefinitionRequest,
        AssignLabletRequest,
        CreateDefinitionRequest,
        CreateLabletRequest,
    )
    from lcm.model.lablet.requests import ExtendLabletRequest, PreviewLabletRequest
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
        team: Iterable[str] = (),
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
            team=team,
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

        return await self._command(lablet_id, "terminate", CommandRequest(reason=reason), version, key)

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

    async def extend(
        self, lablet_id: str, body: ExtendLabletRequest, *, version: int | None = None, key: str | None = None
    ) -> Lablet:
        """Move its end to a later time."""
        return await self._command(lablet_id, "extend", body, version, key)

    async def reset(
        self, lablet_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Lablet:
        """Request a new lab in place of its lab."""
        from lcm.model.worker.requests import CommandRequest

        return await self._command(lablet_id, "reset", CommandRequest(reason=reason), version, key)

    async def _command(
        self, lablet_id: str, name: str, body: BaseModel, version: int | None, key: str | None
    ) -> Lablet:
        call = ApiRequest(
            f"lablets.{name}",
            "POST",
            api_path("lablets", lablet_id, name),
            body=encode_body(body),
            headers=if_match(version),
            idempotency_key=key or new_idempotency_key(),
        )
        return await self._send(call, Lablet)

    async def preview_action(self, lablet_id: str, body: PreviewLabletRequest) -> ChangePreview:
        """What an action on it would do. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        path = api_path("lablets", lablet_id, "preview")
        return await self._send(
            ApiRequest("lablets.preview-action", "POST", path, body=encode_body(body)), ChangePreview
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

    async def assign(self, lablet_id: str, body: AssignLabletRequest) -> Lablet:
        """Assign it to a team, and to a person in it."""
        path = api_path("lablets", lablet_id, "assign")
        return await self._send(ApiRequest("lablets.assign", "POST", path, body=encode_body(body)), Lablet)


class Definitions(Resource):
    """Lablet definitions. A version never changes."""

    def list(
        self, *, q: str | None = None, page_size: int = DEFAULT_PAGE_SIZE
    ) -> AsyncIterator[LabletDefinitionSummary]:
        """All versions of all definitions."""
        return self._pages(
            "definitions.list", api_path(_DEFINITIONS_PATH), Page[LabletDefinitionSummary], query_params(q=q), page_size
        )

    def versions(
        self, name: str, *, team: str | None = None, page_size: int = DEFAULT_PAGE_SIZE
    ) -> AsyncIterator[LabletDefinitionSummary]:
        """All versions of a definition, newest first."""
        path, query = api_path(_DEFINITIONS_PATH, name), query_params(team=team)
        return self._pages("definitions.versions", path, Page[LabletDefinitionSummary], query, page_size)

    async def get(self, name: str, version: str, *, team: str | None = None) -> LabletDefinition:
        """One version."""
        path = api_path(_DEFINITIONS_PATH, name, version)
        request = ApiRequest("definitions.get", "GET", path, query=query_params(team=team))
        return await self._send(request, LabletDefinition)

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

    async def preview(
        self, name: str, version: str, body: PreviewDefinitionRequest, *, team: str | None = None
    ) -> ChangePreview:
        """What enabling or disabling a version would do. Nothing is changed."""
        path = api_path(_DEFINITIONS_PATH, name, version, "preview")
        return await self._preview("definitions.preview", path, body, team)

    async def assign(
        self, name: str, version: str, body: AssignDefinitionRequest, *, team: str | None = None
    ) -> LabletDefinition:
        """Assign a version to a team, or to none; `team` is the one that has it."""
        path, query = api_path(_DEFINITIONS_PATH, name, version, "assign"), query_params(team=team)
        request = ApiRequest("definitions.assign", "POST", path, query=query, body=encode_body(body))
        return await self._send(request, LabletDefinition)

    async def _preview(self, operation: str, path: str, body: BaseModel, team: str | None = None) -> ChangePreview:
        from lcm.model.change_preview import ChangePreview

        request = ApiRequest(operation, "POST", path, query=query_params(team=team), body=encode_body(body))
        return await self._send(request, ChangePreview)

    async def enable(self, name: str, version: str, *, team: str | None = None) -> LabletDefinition:
        """Allow new lablets from it."""
        return await self._switch(name, version, team, "enable")

    async def disable(self, name: str, version: str, *, team: str | None = None) -> LabletDefinition:
        """Allow no new lablets from it."""
        return await self._switch(name, version, team, "disable")

    async def _switch(self, name: str, version: str, team: str | None, how: str) -> LabletDefinition:
        path = api_path(_DEFINITIONS_PATH, name, version, how)
        call = ApiRequest(f"definitions.{how}", "POST", path, query=query_params(team=team))
        return await self._send(call, LabletDefinition)
