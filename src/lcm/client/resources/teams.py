"""Teams: who belongs to which, and what each may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import DEFAULT_PAGE_SIZE, Resource, api_path, encode_body, if_match, new_idempotency_key
from lcm.client.responses import ApiRequest
from lcm.model.base import Page
from lcm.model.team import Team, TeamSummary, WorkerReadiness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.team import CreateTeamRequest, UpdateTeamRequest

_PATH = "teams"


class Teams(Resource):
    """Teams. Roles of the fleet see all, members their own."""

    def list(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[TeamSummary]:
        """Teams by name."""
        return self._pages("teams.list", api_path(_PATH), Page[TeamSummary], {}, page_size)

    async def create(self, body: CreateTeamRequest, *, key: str | None = None) -> Team:
        """Create a team."""
        request = ApiRequest(
            "teams.create",
            "POST",
            api_path(_PATH),
            body=encode_body(body),
            idempotency_key=key or new_idempotency_key(),
        )
        return await self._send(request, Team)

    async def get(self, team: str) -> TeamSummary:
        """A team, by id or name."""
        return await self._send(ApiRequest("teams.get", "GET", api_path(_PATH, team)), TeamSummary)

    async def edit(self, team: str, body: UpdateTeamRequest, *, version: int | None = None) -> Team:
        """Change the fields that are given."""
        path = api_path(_PATH, team)
        request = ApiRequest("teams.edit", "PATCH", path, body=encode_body(body), headers=if_match(version))
        return await self._send(request, Team)

    async def delete(self, team: str) -> None:
        """Delete a team that nothing belongs to."""
        await self._transport.send_raw(ApiRequest("teams.delete", "DELETE", api_path(_PATH, team)))

    def worker_readiness(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[WorkerReadiness]:
        """Name and readiness of the workers that lablets of the caller's teams may be placed on."""
        return self._pages("teams.worker-readiness", api_path("worker-readiness"), Page[WorkerReadiness], {}, page_size)
