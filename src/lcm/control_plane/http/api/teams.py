"""Routes for teams."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from lcm.control_plane.http.deps import Admin, IdempotencyKeyDep, IfMatchDep, Instructor, Member
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import Cursor, Limit, TeamPage, WorkerReadinessPage, versioned_response
from lcm.control_plane.services import get_services
from lcm.model.team import CreateTeamRequest, Team, TeamSummary, UpdateTeamRequest

router = APIRouter(prefix="/api/teams", tags=["teams"], responses=error_responses(401, 403, 422, 429))

workers_router = APIRouter(tags=["teams"], responses=error_responses(401, 403, 422, 429))

TeamPath = Annotated[
    str,
    Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$", description="The id of the team, or its name."),
]


@router.get("")
async def list_teams(request: Request, caller: Member, limit: Limit = 100, cursor: Cursor = None) -> TeamPage:
    """List teams by name: roles of the fleet see all, members their own."""
    items, following = await get_services(request).teams.page(caller, cursor, limit)
    return TeamPage(items=tuple(items), next_cursor=following)


@workers_router.get("/api/worker-readiness")
async def list_worker_readiness(
    request: Request, caller: Instructor, limit: Limit = 100, cursor: Cursor = None
) -> WorkerReadinessPage:
    """List name and readiness of the workers that lablets of the caller's teams may be placed on."""
    items, following = await get_services(request).teams.workers(caller, cursor, limit)
    return WorkerReadinessPage(items=tuple(items), next_cursor=following)


@router.post("", status_code=201, response_model=Team, responses=error_responses(409))
async def create_team(request: Request, caller: Admin, body: CreateTeamRequest, key: IdempotencyKeyDep) -> Response:
    """Create a team."""
    return versioned_response(await get_services(request).teams.create(caller, body, key), 201)


@router.get("/{team}", responses=error_responses(404))
async def get_team(request: Request, caller: Member, team: TeamPath) -> TeamSummary:
    """Get one team."""
    return await get_services(request).teams.get(caller, team)


@router.patch("/{team}", response_model=Team, responses=error_responses(404, 409, 412))
async def update_team(
    request: Request, caller: Admin, team: TeamPath, body: UpdateTeamRequest, if_match: IfMatchDep
) -> Response:
    """Change a team. Members who lose their role lose access within 10 seconds, and their streams end."""
    return versioned_response(await get_services(request).teams.update(caller, team, body, if_match=if_match))


@router.delete("/{team}", status_code=204, responses=error_responses(404, 409))
async def delete_team(request: Request, caller: Admin, team: TeamPath) -> Response:
    """Delete a team without definitions, lablets, bookings and workers of its own. Its tokens no longer give access."""
    await get_services(request).teams.delete(caller, team)
    return Response(status_code=204)
