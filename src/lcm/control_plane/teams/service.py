"""Teams: admins create, change and delete them; members see their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from lcm.control_plane.auth.teams import put_team
from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import BOOKINGS, DEFINITIONS, LABLETS, TEAMS, WORKERS
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Delete, Sort, Where
from lcm.control_plane.teams.choice import find_team, read_team, team_not_found
from lcm.control_plane.teams.visibility import instructs
from lcm.core import clock
from lcm.model.booking.record import BookingStatus
from lcm.model.formatting import count_of
from lcm.model.lablet.placement import check_hold, check_ready
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.problems import ProblemCode
from lcm.model.team import MAX_TEAMS, Team, TeamLimits, TeamMember, TeamSummary, WorkerReadiness
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.teams import TeamDirectory
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import FieldValue, Kind, Store
    from lcm.model.team import CreateTeamRequest, RequestedMember, UpdateTeamRequest

log = structlog.get_logger(__name__)

MAX_ROLES_LISTED = 100
"""Roles that one entry of the audit names, so that it stays small."""

_LIVE_LABLETS = {"status": [status.value for status in sorted(FINAL_LABLET_STATUSES)]}
_LIVE_BOOKINGS = {"status": [BookingStatus.CANCELLED.value, BookingStatus.ENDED.value]}


class TeamService:
    """Reads and changes teams on behalf of people."""

    def __init__(self, context: ControlPlaneContext, directory: TeamDirectory) -> None:
        self._context = context
        self._directory = directory

    async def page(self, caller: Caller, after: str | None, limit: int) -> tuple[Sequence[TeamSummary], str | None]:
        """The teams that the caller may see, by name, and the cursor of the next page."""
        scope, store = caller.scope, self._context.store
        if not scope.everything:
            teams = (await self._directory.teams()).by_id
            mine = sorted((teams[each] for each in scope.all_teams if each in teams), key=lambda team: team.name)
            return [_shown(caller, team, await self._count(caller, team.id)) for team in mine], None
        page = await store.find(TEAMS, sort=Sort("name"), after=after, limit=limit)
        found = [team for each in page.items if (team := read_or_skip(each, Team, "team")) is not None]
        return [_shown(caller, team, await self._count(caller, team.id)) for team in found], page.next_cursor

    async def get(self, caller: Caller, reference: str) -> TeamSummary:
        """One team, by id or name."""
        team = find_team(await self._directory.teams(), caller, reference)
        stored = await self._context.store.get(TEAMS, team.id)
        if stored is None:
            raise team_not_found(reference)
        return _shown(caller, Team.model_validate_json(stored.body), await self._count(caller, team.id))

    async def create(self, caller: Caller, request: CreateTeamRequest, key: IdempotencyKey | None = None) -> bytes:
        """Create a team."""
        team_id = clock.new_id("team")

        async def attempt(tx: Transaction) -> Team:
            if sum(count for _, count, _ in await tx.store.count_by(TEAMS, ["name"])) >= MAX_TEAMS:
                raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"there are {MAX_TEAMS} teams, which is the limit")
            team = Team(
                id=team_id,
                name=request.name,
                description=request.description,
                members=_members(request.members, ()),
                limits=TeamLimits(**request.limits.model_dump()),
                created_at=tx.now,
                updated_at=tx.now,
                created_by=caller.name,
            )
            tx.stage(put_team(team, None))
            tx.audit("team_created", team.id, name=team.name, **_role_changes((), team.members))
            created.append(team)
            return team

        created: list[Team] = []
        try:
            body = await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)
        finally:
            self._directory.forget()
        for team in created[-1:]:
            log.info("team created", team=team.name, by=caller.name, **_role_changes((), team.members))
        return body

    async def update(
        self,
        caller: Caller,
        reference: str,
        request: UpdateTeamRequest,
        *,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Change a team. People who are pinned to an address stay so while the address is listed."""
        team_id = find_team(await self._directory.teams(), caller, reference).id

        async def attempt(tx: Transaction) -> Team:
            stored, team = await read_team(tx, team_id)
            if if_match is not None and if_match != team.version:
                raise PreconditionFailedError("team", team.version, if_match)
            changes = _changes(team, request)
            if not changes:
                return team
            if "limits" in changes:
                await tx.take_calendar()  # bookings were admitted by its limits
            changed = team.model_copy(update={**changes, "version": team.version + 1, "updated_at": tx.now})
            tx.stage(put_team(changed, stored.revision))
            roles = _role_changes(team.members, changed.members)
            tx.audit("team_changed", team.id, name=changed.name, changed=sorted(changes), **roles)
            done.append((changed.name, {"changed": sorted(changes), **roles}))
            return changed

        done: list[tuple[str, dict[str, Any]]] = []
        try:
            body = await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)
        finally:
            self._directory.forget()
        for name, details in done[-1:]:
            log.info("team changed", team=name, by=caller.name, **details)
        return body

    async def delete(self, caller: Caller, reference: str) -> None:
        """Delete a team that has no definition, no lablet or booking that goes on, and no worker of its own."""
        team_id = find_team(await self._directory.teams(), caller, reference).id

        async def attempt(tx: Transaction) -> str:
            stored, team = await read_team(tx, team_id)
            if used := await _still_used(tx.store, team_id):
                detail = f"team {team.name} still has {', '.join(used)}; end, cancel or assign them first"
                raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
            tx.stage(Delete(TEAMS, team_id, stored.revision))
            tx.audit("team_deleted", team_id, name=team.name)
            return team.name

        try:
            name = await self._context.unit_of_work.run(caller.actor, attempt)
        finally:
            self._directory.forget()
        log.info("team deleted", team=name, by=caller.name)

    async def still_used(self, caller: Caller, reference: str) -> list[str]:
        """What keeps a team from being deleted, such as `2 lablets`."""
        return await _still_used(self._context.store, find_team(await self._directory.teams(), caller, reference).id)

    async def workers(
        self, caller: Caller, after: str | None, limit: int
    ) -> tuple[Sequence[WorkerReadiness], str | None]:
        """Name and readiness of the workers that lablets of the caller's teams may be placed on."""
        any_of: dict[str, list[FieldValue]] = {}
        if not caller.scope.everything:
            any_of["team"] = [None, *sorted(caller.scope.teams)]
        where = Where(any_of=any_of, none_of={"status": [WorkerStatus.TERMINATED.value]})
        page = await self._context.store.find(WORKERS, where, sort=Sort("name"), after=after, limit=limit)
        workers = [worker for each in page.items if (worker := read_or_skip(each, Worker, "worker")) is not None]
        now = clock.now()
        takes_lablets = [(each, check_ready(each) is None and check_hold(each, now) is None) for each in workers]
        return [WorkerReadiness(name=each.name, ready=ready) for each, ready in takes_lablets], page.next_cursor

    async def _count(self, caller: Caller, team_id: str) -> int:
        """Lablets of the team that go on; a learner learns of none but their own."""
        if not caller.scope.manages(team_id):
            return 0
        return await _count(self._context.store, LABLETS, team_id, _LIVE_LABLETS)


def _shown(caller: Caller, team: Team, lablets: int) -> TeamSummary:
    values: dict[str, Any] = dict(team) | {"lablets": lablets}
    if not caller.scope.everything and instructs(caller, team.id):
        values["members"] = tuple(each.model_copy(update={"subject": None}) for each in team.members)
    elif not caller.scope.everything:
        values |= {"members": (), "created_by": ""}
    return TeamSummary(**values)


def _members(requested: Sequence[RequestedMember], before: Sequence[TeamMember]) -> tuple[TeamMember, ...]:
    pinned = {each.key: each for each in before}
    return tuple(_member(each, pinned.get((each.group, each.email))) for each in requested)


def _member(requested: RequestedMember, before: TeamMember | None) -> TeamMember:
    if before is not None:
        return before.model_copy(update={"role": requested.role})
    return TeamMember(role=requested.role, group=requested.group, email=requested.email)


def _role_changes(before: Sequence[TeamMember], after: Sequence[TeamMember]) -> dict[str, Any]:
    """Who got which role and who lost one, for the audit and the log: texts such as `instructor group teachers`."""
    had, has = ([_role_text(each) for each in members] for members in (before, after))
    changes = {
        "granted": [each for each in has if each not in had],
        "withdrawn": [each for each in had if each not in has],
    }
    return {name: _bounded(texts) for name, texts in changes.items() if texts}


def _role_text(member: TeamMember) -> str:
    return f"{member.role} {member.email}" if member.email else f"{member.role} group {member.group}"


def _bounded(texts: list[str]) -> list[str]:
    more = len(texts) - MAX_ROLES_LISTED
    return texts if more <= 0 else [*texts[:MAX_ROLES_LISTED], f"and {more} more"]


def _changes(team: Team, request: UpdateTeamRequest) -> dict[str, Any]:
    """The fields that the request gives and that differ."""
    wanted: dict[str, Any] = {}
    if request.name is not None:
        wanted["name"] = request.name
    if request.description is not None:
        wanted["description"] = request.description
    if request.members is not None:
        wanted["members"] = _members(request.members, team.members)
    if request.limits is not None:
        wanted["limits"] = TeamLimits(**request.limits.model_dump())
    return {name: value for name, value in wanted.items() if value != getattr(team, name)}


async def _still_used(store: Store, team_id: str) -> list[str]:
    ended = {"status": [WorkerStatus.TERMINATED.value]}
    counts = {
        "definition": await _count(store, DEFINITIONS, team_id, {}),
        "lablet": await _count(store, LABLETS, team_id, _LIVE_LABLETS),
        "worker": await _count(store, WORKERS, team_id, ended),
        "booking": await _count(store, BOOKINGS, team_id, _LIVE_BOOKINGS),
    }
    return [count_of(count, noun) for noun, count in counts.items() if count]


async def _count(store: Store, kind: Kind, team_id: str, none_of: dict[str, list[str]]) -> int:
    where = Where(any_of={"team": [team_id]}, none_of=none_of)
    return sum(count for _, count, _ in await store.count_by(kind, ["team"], where))
