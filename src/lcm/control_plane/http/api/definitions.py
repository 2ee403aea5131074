"""Routes for lablet definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from lcm.control_plane.auth.roles import Caller, ForbiddenError
from lcm.control_plane.http.deps import Admin, Instructor, InstructorAdmin, InstructorWriter
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import Cursor, DefinitionPage, Limit, raw_page
from lcm.control_plane.lablets import definition_preview
from lcm.control_plane.lablets.definitions import (
    add_definition,
    assign_definition,
    definition_not_found,
    find_definition,
    list_definition_versions,
    read_definition,
    set_definition_enabled,
)
from lcm.control_plane.records.idempotency import IdempotencyKey, run_idempotent
from lcm.control_plane.records.kinds import DEFINITIONS
from lcm.control_plane.records.unit_of_work import Transaction
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.store.port import FieldValue, Sort, Where
from lcm.control_plane.teams.choice import add_to_team, choose_team, find_team
from lcm.control_plane.teams.visibility import definitions_in_scope, instructs
from lcm.model.access import Role
from lcm.model.base import ResourceName, SingleLineText
from lcm.model.change_preview import ChangePreview, PreviewDefinitionRequest
from lcm.model.lablet.record import (
    AssignDefinitionRequest,
    CreateDefinitionRequest,
    LabletDefinition,
    LabletDefinitionSummary,
)

router = APIRouter(prefix="/api/lablet-definitions", tags=["lablets"], responses=error_responses(401, 403, 422, 429))

DefinitionNamePath = Annotated[
    str,
    Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$", description="The name, such as ospf-basics."),
]
TeamQuery = Annotated[
    ResourceName | None, Query(description="The name or id of a team, where several have a definition of this name.")
]
DefinitionVersionPath = Annotated[
    str, Path(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+-]{0,31}$", description="The version, such as 1.2.")
]


@router.get("", response_model=DefinitionPage, responses=error_responses(404))
async def list_definitions(
    request: Request,
    caller: Instructor,
    q: Annotated[SingleLineText | None, Query(max_length=100, description="Text that the name contains.")] = None,
    team: TeamQuery = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List all versions of all definitions by name, without their topologies."""
    where = Where(any_of=await _scoped(request, caller, team), contains={"name": q} if q else {})
    store = get_services(request).context.store
    return raw_page(await store.find(DEFINITIONS, where, sort=Sort("name"), after=cursor, limit=limit))


@router.post(
    "",
    status_code=201,
    responses={
        200: {"description": "This version exists with the same content.", "model": LabletDefinition},
        **error_responses(404, 409),
    },
)
async def create_definition(
    request: Request, response: Response, caller: InstructorWriter, body: CreateDefinitionRequest
) -> LabletDefinition:
    """Create a version. Versions are immutable; repeating the request with the same content returns the version."""

    definition, new = await create_in_team(get_services(request), caller, body)
    response.status_code = 201 if new else 200
    return definition


async def create_in_team(
    services: Services, caller: Caller, body: CreateDefinitionRequest
) -> tuple[LabletDefinition, bool]:
    """Create a version in the team that was named, or in the only one of an instructor."""
    team = choose_team(await services.directory.teams(), caller, body.team)
    team_id = "" if team is None else team.id

    async def attempt(tx: Transaction) -> tuple[LabletDefinition, bool]:
        await add_to_team(tx, team_id)
        return await add_definition(tx, body, caller.name, team_id)

    return await services.context.unit_of_work.run(caller.actor, attempt)


@router.post("/preview", responses=error_responses(404))
async def preview_new_definition(request: Request, caller: Instructor, body: CreateDefinitionRequest) -> ChangePreview:
    """Preview a new version: whether it would be accepted, and which lablets would use it. Nothing is changed."""
    services = get_services(request)
    team = choose_team(await services.directory.teams(), caller, body.team)
    team_id = "" if team is None else team.id
    return await definition_preview.preview_new_definition(services.context.store, body, team_id)


@router.get("/{name}", response_model=DefinitionPage, responses=error_responses(404))
async def definition_versions(
    request: Request,
    caller: Instructor,
    name: DefinitionNamePath,
    team: TeamQuery = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List the versions of one definition, newest first, without their topologies."""
    scoped = await _scoped(request, caller, team)
    page = await list_definition_versions(get_services(request).context.store, name, scoped, cursor, limit)
    if not page.items and cursor is None:
        raise definition_not_found(name)
    return raw_page(page)


@router.get("/{name}/{version}", responses=error_responses(404, 409))
async def get_definition(
    request: Request,
    caller: Instructor,
    name: DefinitionNamePath,
    version: DefinitionVersionPath,
    team: TeamQuery = None,
) -> LabletDefinition:
    """Get one version with its topology."""
    found = await find_visible(get_services(request), caller, name, version, team)
    return await read_definition(get_services(request).context.store, found.id)


@router.post("/{name}/{version}/preview", responses=error_responses(404, 409))
async def preview_definition_change(
    request: Request,
    caller: Instructor,
    name: DefinitionNamePath,
    version: DefinitionVersionPath,
    body: PreviewDefinitionRequest,
    team: TeamQuery = None,
) -> ChangePreview:
    """Preview enabling or disabling a version: what it means for new and existing lablets. Nothing is changed."""
    found = await find_visible(get_services(request), caller, name, version, team)
    return await definition_preview.preview_definition_change(get_services(request).context.store, found, body.action)


async def find_visible(
    services: Services, caller: Caller, name: str, version: str, team: str | None
) -> LabletDefinitionSummary:
    """A version that the caller may see; of a team, if one is named."""
    team_id = None if team is None else find_team(await services.directory.teams(), caller, team).id
    return await find_definition(services.context.store, caller.scope, name, version, team_id)


async def _scoped(request: Request, caller: Caller, team: str | None) -> dict[str, Sequence[FieldValue]]:
    """The condition for definitions that the caller may see; of a team, if one is named."""
    if team is None:
        return definitions_in_scope(caller.scope)
    found = find_team(await get_services(request).directory.teams(), caller, team)
    return {"team": [found.id] if caller.scope.everything or found.id in caller.scope.teams else []}


def require_switch(caller: Caller, definition: LabletDefinitionSummary) -> None:
    """Raise unless the caller may enable and disable the version."""
    if not caller.allows(Role.ADMIN) and not instructs(caller, definition.team):
        raise ForbiddenError(f"This needs the role admin, or instructor in the team of {definition.reference}.")


async def set_enabled(
    services: Services, caller: Caller, name: str, version: str, team: str | None, *, enabled: bool
) -> LabletDefinition:
    """Enable or disable a version: admins any, instructors those of their teams."""
    found = await find_visible(services, caller, name, version, team)
    require_switch(caller, found)

    async def attempt(tx: Transaction) -> LabletDefinition:
        return await set_definition_enabled(tx, found.id, enabled=enabled)

    return await services.context.unit_of_work.run(caller.actor, attempt)


@router.post("/{name}/{version}/enable", responses=error_responses(404, 409))
async def enable_definition(
    request: Request,
    caller: InstructorAdmin,
    name: DefinitionNamePath,
    version: DefinitionVersionPath,
    team: TeamQuery = None,
) -> LabletDefinition:
    """Enable a version: lablets can be created from it."""
    return await set_enabled(get_services(request), caller, name, version, team, enabled=True)


@router.post("/{name}/{version}/disable", responses=error_responses(404, 409))
async def disable_definition(
    request: Request,
    caller: InstructorAdmin,
    name: DefinitionNamePath,
    version: DefinitionVersionPath,
    team: TeamQuery = None,
) -> LabletDefinition:
    """Disable a version: no more lablets can be created from it. Existing lablets are unaffected."""
    return await set_enabled(get_services(request), caller, name, version, team, enabled=False)


@router.post("/{name}/{version}/assign", responses=error_responses(404, 409))
async def assign_definition_to_team(
    request: Request,
    caller: Admin,
    name: DefinitionNamePath,
    version: DefinitionVersionPath,
    body: AssignDefinitionRequest,
    team: TeamQuery = None,
) -> LabletDefinition:
    """Assign a version to another team, or to none. Existing lablets are unaffected."""
    services = get_services(request)
    return await assign_to_team(services, caller, await find_visible(services, caller, name, version, team), body)


async def assign_to_team(
    services: Services,
    caller: Caller,
    found: LabletDefinitionSummary,
    body: AssignDefinitionRequest,
    key: IdempotencyKey | None = None,
) -> LabletDefinition:
    """Give a version to a team, or to none."""
    new = "" if body.team is None else find_team(await services.directory.teams(), caller, body.team).id

    async def attempt(tx: Transaction) -> LabletDefinition:
        await add_to_team(tx, new)
        return await assign_definition(tx, found.id, new)

    stored = await run_idempotent(services.context.unit_of_work, caller.actor, key, attempt)
    return LabletDefinition.model_validate_json(stored)
