"""Routes for lablet definitions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from lcm.control_plane.http.deps import Admin, Operator, Viewer
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import Cursor, DefinitionPage, Limit, raw_page
from lcm.control_plane.lablets import definition_preview
from lcm.control_plane.lablets.definitions import (
    add_definition,
    definition_not_found,
    list_definition_versions,
    read_definition,
    set_definition_enabled,
)
from lcm.control_plane.records.kinds import DEFINITIONS
from lcm.control_plane.records.unit_of_work import Transaction
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.model.base import SingleLineText
from lcm.model.change_preview import ChangePreview, PreviewDefinitionRequest
from lcm.model.lablet.record import CreateDefinitionRequest, LabletDefinition

router = APIRouter(prefix="/api/lablet-definitions", tags=["lablets"], responses=error_responses(401, 403, 422, 429))

DefinitionNamePath = Annotated[
    str,
    Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$", description="The name, such as ospf-basics."),
]
DefinitionVersionPath = Annotated[
    str, Path(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+-]{0,31}$", description="The version, such as 1.2.")
]


@router.get("", response_model=DefinitionPage)
async def list_definitions(
    request: Request,
    caller: Viewer,
    q: Annotated[SingleLineText | None, Query(max_length=100, description="Text that the name contains.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List all versions of all definitions by name, without their topologies."""
    where = Where(contains={"name": q} if q else {})
    store = get_services(request).context.store
    return raw_page(await store.find(DEFINITIONS, where, sort=Sort("name"), after=cursor, limit=limit))


@router.post(
    "",
    status_code=201,
    responses={
        200: {"description": "This version exists with the same content.", "model": LabletDefinition},
        **error_responses(409),
    },
)
async def create_definition(
    request: Request, response: Response, caller: Operator, body: CreateDefinitionRequest
) -> LabletDefinition:
    """Create a version. Versions are immutable; repeating the request with the same content returns the version."""

    async def attempt(tx: Transaction) -> tuple[LabletDefinition, bool]:
        return await add_definition(tx, body, caller.name)

    definition, new = await get_services(request).context.unit_of_work.run(caller.actor, attempt)
    response.status_code = 201 if new else 200
    return definition


@router.post("/preview")
async def preview_new_definition(request: Request, caller: Viewer, body: CreateDefinitionRequest) -> ChangePreview:
    """Preview a new version: whether it would be accepted, and which lablets would use it. Nothing is changed."""
    return await definition_preview.preview_new_definition(get_services(request).context.store, body)


@router.get("/{name}", response_model=DefinitionPage, responses=error_responses(404))
async def definition_versions(
    request: Request, caller: Viewer, name: DefinitionNamePath, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """List the versions of one definition, newest first, without their topologies."""
    page = await list_definition_versions(get_services(request).context.store, name, cursor, limit)
    if not page.items and cursor is None:
        raise definition_not_found(name)
    return raw_page(page)


@router.get("/{name}/{version}", responses=error_responses(404))
async def get_definition(
    request: Request, caller: Viewer, name: DefinitionNamePath, version: DefinitionVersionPath
) -> LabletDefinition:
    """Get one version with its topology."""
    return await read_definition(get_services(request).context.store, f"{name}@{version}")


@router.post("/{name}/{version}/preview", responses=error_responses(404))
async def preview_definition_change(
    request: Request,
    caller: Viewer,
    name: DefinitionNamePath,
    version: DefinitionVersionPath,
    body: PreviewDefinitionRequest,
) -> ChangePreview:
    """Preview enabling or disabling a version: what it means for new and existing lablets. Nothing is changed."""
    store = get_services(request).context.store
    return await definition_preview.preview_definition_change(store, f"{name}@{version}", body.action)


async def _set_enabled(request: Request, caller: Admin, definition_id: str, *, enabled: bool) -> LabletDefinition:
    async def attempt(tx: Transaction) -> LabletDefinition:
        return await set_definition_enabled(tx, definition_id, enabled=enabled)

    return await get_services(request).context.unit_of_work.run(caller.actor, attempt)


@router.post("/{name}/{version}/enable", responses=error_responses(404))
async def enable_definition(
    request: Request, caller: Admin, name: DefinitionNamePath, version: DefinitionVersionPath
) -> LabletDefinition:
    """Enable a version: lablets can be created from it."""
    return await _set_enabled(request, caller, f"{name}@{version}", enabled=True)


@router.post("/{name}/{version}/disable", responses=error_responses(404))
async def disable_definition(
    request: Request, caller: Admin, name: DefinitionNamePath, version: DefinitionVersionPath
) -> LabletDefinition:
    """Disable a version: no more lablets can be created from it. Existing lablets are unaffected."""
    return await _set_enabled(request, caller, f"{name}@{version}", enabled=False)
