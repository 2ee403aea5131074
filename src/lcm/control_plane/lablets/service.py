"""Operations on lablets that people request."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from lcm.control_plane.auth.seats.links import revoke_all
from lcm.control_plane.bookings.protection import end_of_class_under_way, read_extension_limit, takes_room
from lcm.control_plane.lablets import lifecycle
from lcm.control_plane.lablets.access import LabletAccessReader
from lcm.control_plane.lablets.definitions import resolve_definition
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import LABLET_HISTORY, LABLETS, TEAMS, in_team
from lcm.control_plane.teams.choice import admit, admit_assigned, choose_owner, choose_team, find_team, read_team
from lcm.control_plane.teams.visibility import (
    lablet_not_found,
    lablets_in_scope,
    require_may_change,
    require_visible,
    shown_lablet,
    shown_page,
)
from lcm.control_plane.workers.lifecycle import updated_record
from lcm.core import clock
from lcm.model.lablet.lifetime import MaxLifetime
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import LabletStatus
from lcm.model.team import Team

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.seats.sessions import SeatCaller
    from lcm.control_plane.auth.teams import TeamDirectory
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import DocumentPage, JournalEntry, Sort, Store, StoredDocument, Where
    from lcm.model.lablet.access import LabletAccess
    from lcm.model.lablet.record import AssignLabletRequest, CreateLabletRequest
    from lcm.model.lablet.requests import ExtendLabletRequest


class LabletService:
    """Reads and changes lablets on behalf of people. Changes return the lablet's JSON."""

    def __init__(self, context: ControlPlaneContext, teams: TeamDirectory) -> None:
        self._context = context
        self._teams = teams
        self._access = LabletAccessReader(context.store)

    async def page(self, caller: Caller, where: Where, sort: Sort, after: str | None, limit: int) -> DocumentPage:
        """A page of the lablets that the caller may see, undecoded."""
        where = replace(where, either=lablets_in_scope(caller.scope))
        return shown_page(
            caller.scope, await self._context.store.find(LABLETS, where, sort=sort, after=after, limit=limit)
        )

    async def get(self, caller: Caller, lablet_id: str) -> StoredDocument:
        """One lablet that the caller may see, undecoded."""
        stored = await self._context.store.get(LABLETS, lablet_id)
        if stored is None:
            raise lablet_not_found(lablet_id)
        if caller.scope.everything:
            return stored
        require_visible(caller, Lablet.model_validate_json(stored.body))
        return replace(stored, body=shown_lablet(caller.scope, stored.body))

    async def access(self, caller: Caller, lablet_id: str) -> LabletAccess:
        """How to reach a lablet now."""
        return await self._access.read(Lablet.model_validate_json((await self.get(caller, lablet_id)).body))

    async def access_to(self, lablet: Lablet) -> LabletAccess:
        """How to reach a lablet that is shown to whoever may see it."""
        return await self._access.read(lablet)

    async def history(self, caller: Caller, lablet_id: str, after: str | None, limit: int) -> Sequence[JournalEntry]:
        """A lablet's status transitions, oldest first. They are kept longer than the record of an ended lablet."""
        store, scope = self._context.store, caller.scope
        if not scope.everything:
            await self._require_history(caller, lablet_id)
        found: list[JournalEntry] = []
        at = after
        while len(found) < limit:
            entries = await store.read_journal(topics=[LABLET_HISTORY], subjects=[lablet_id], after=at, limit=limit)
            # As in streams: what happened while it was another team's is not theirs.
            found += [each for each in entries if scope.everything or (each.team and scope.sees(each.team, each.owner))]
            if len(entries) < limit:
                break
            at = entries[-1].cursor
        if not found and after is None:
            await self.get(caller, lablet_id)
        return found[:limit]

    async def _require_history(self, caller: Caller, lablet_id: str) -> None:
        """Raise as for an unknown lablet unless it is the caller's, or was when it ended and the record is gone.

        Before anything is read whose length would tell of it.
        """
        store = self._context.store
        stored = await store.get(LABLETS, lablet_id)
        last = await store.read_journal(topics=[LABLET_HISTORY], subjects=[lablet_id], newest_first=True, limit=1)
        if stored is not None:
            require_visible(caller, Lablet.model_validate_json(stored.body))
        elif not any(each.team and caller.scope.sees(each.team, each.owner) for each in last):
            raise lablet_not_found(lablet_id)

    async def create(self, caller: Caller, request: CreateLabletRequest, key: IdempotencyKey | None = None) -> bytes:
        if request.aws_region is not None:
            self._context.region(request.aws_region)
        lablet_id = clock.new_id("l")
        teams = await self._teams.teams()
        team = choose_team(teams, caller, request.team)

        async def attempt(tx: Transaction) -> Lablet:
            within = None if team is None else team.id
            definition = await resolve_definition(tx.store, request.definition, caller.scope, within)
            belongs_to = team or await _team_of(tx, definition.team)
            owner = choose_owner(belongs_to, caller, request.owner)
            lablet = lifecycle.build_lablet(request, definition, lablet_id=lablet_id, owner=owner, now=tx.now)
            lablet = lablet.model_copy(update={"team": belongs_to.id if belongs_to else ""})
            return tx.save_lablet(await admit(tx, lablet), "created", definition=definition.id)

        return await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)

    async def extend(
        self,
        caller: Caller | SeatCaller,
        lablet_id: str,
        request: ExtendLabletRequest,
        *,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Move the end of a lablet to a later time."""

        async def attempt(tx: Transaction) -> Lablet:
            require_may_change(caller, await tx.lablet(lablet_id))
            lablet = await tx.lablet(lablet_id, if_match=if_match)
            limit = await max_lifetime_of(tx.store, lablet, self._context.max_lablet_lifetime)
            await tx.depend_on_calendar()
            scaling = (await self._context.settings()).scaling
            booked = await read_extension_limit(tx.store, scaling, lablet, tx.now)
            after = lifecycle.extend(lablet, request, tx.now, limit, booked)
            if booked.is_counted:
                await tx.take_calendar()  # so does whoever places or extends another walk-in
            end = None if after.expires_at is None else after.expires_at.isoformat()
            return tx.save_lablet(after, "extend", request.reason or "", expires_at=end)

        extended = partial(run_idempotent, self._context.unit_of_work, caller.actor, key, attempt)
        if await takes_room(self._context.store, await self._changeable(caller, lablet_id)):
            return await self._context.reads.run_alone(extended)
        return await extended()

    async def _changeable(self, caller: Caller | SeatCaller, lablet_id: str) -> Lablet:
        stored = await self._context.store.get(LABLETS, lablet_id)
        if stored is None:
            raise lablet_not_found(lablet_id)
        lablet = Lablet.model_validate_json(stored.body)
        require_may_change(caller, lablet)
        return lablet

    async def reset(
        self,
        caller: Caller | SeatCaller,
        lablet_id: str,
        *,
        reason: str | None = None,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Request a new lab in place of the lablet's lab; its worker, ports and end stay. Make a failed seat anew."""

        async def attempt(tx: Transaction) -> Lablet:
            require_may_change(caller, await tx.lablet(lablet_id))
            lablet = await tx.lablet(lablet_id, if_match=if_match)
            class_end = None
            if lablet.status is LabletStatus.FAILED:
                await tx.depend_on_calendar()  # which changes when its class is cancelled
                class_end = await end_of_class_under_way(tx.store, lablet, tx.now)
            after = lifecycle.reset(lablet, tx.now, class_end)
            if after.status is LabletStatus.PENDING_SCHEDULING:
                after = after.model_copy(update={"name": await free_name(tx.store, lablet)})
            return tx.save_lablet(after, "reset", reason or "", lab_id=lablet.lab_id)

        return await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)

    async def terminate(
        self,
        caller: Caller | SeatCaller,
        lablet_id: str,
        *,
        reason: str | None = None,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Request the end of a lablet. A repeated request changes nothing."""

        async def attempt(tx: Transaction) -> Lablet:
            require_may_change(caller, await tx.lablet(lablet_id))
            lablet = await tx.lablet(lablet_id, if_match=if_match)
            after = lifecycle.request_termination(lablet, tx.now, reason or "")
            return await save_and_release(tx, lablet, after, "terminate", reason or "")

        return await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)

    async def assign(
        self, caller: Caller, lablet_id: str, request: AssignLabletRequest, key: IdempotencyKey | None = None
    ) -> bytes:
        """Give a lablet to a team, and to a person in it. What is there already changes nothing."""
        team = find_team(await self._teams.teams(), caller, request.team)

        async def attempt(tx: Transaction) -> Lablet:
            lablet = await tx.lablet(lablet_id)
            changes: dict[str, Any] = {"team": team.id}
            if request.owner is not None:
                owner = choose_owner(team, caller, request.owner)
                changes |= {"owner": owner.identity, "owner_name": owner.name}
            elif lablet.team != team.id:
                changes["owner"] = ""  # it proved somebody in another team
            if all(getattr(lablet, name) == value for name, value in changes.items()):
                return lablet
            end: dict[str, Any] = {}
            if lablet.team != team.id:
                end = await admit_assigned(tx, lablet, team.id)
                await revoke_all(tx, lablet.id)  # those who hold its links are people of the other team
            after = updated_record(lablet, tx.now, bump_generation=bool(end), **changes, **end)
            return tx.save_lablet(after, "assigned", team=team.name, owner=after.owner_name)

        return await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)


async def _team_of(tx: Transaction, team_id: str) -> Team | None:
    """The team with this id as it is now, not as it was some seconds ago; None without an id."""
    return (await read_team(tx, team_id))[1] if team_id else None


async def max_lifetime_of(store: Store, lablet: Lablet, for_all: timedelta | None) -> MaxLifetime | None:
    """How long it may last: as the settings say `for_all`, or less if its team has a lower limit."""
    stored = await store.get(TEAMS, lablet.team) if lablet.team else None
    team = None if stored is None else Team.model_validate_json(stored.body)
    limits = [] if for_all is None else [MaxLifetime(for_all)]
    if team is not None and (minutes := team.limits.max_lifetime_minutes) is not None:
        limits.append(MaxLifetime(timedelta(minutes=minutes), f"limit of team {team.name}"))
    return min(limits, key=lambda limit: limit.length, default=None)


async def save_and_release(tx: Transaction, before: Lablet, after: Lablet, action: str, reason: str) -> Lablet:
    """Save a lablet; if it leaves its worker, its reservation there is released in the same commit."""
    if before.assigned and not after.assigned and before.worker_id is not None:
        worker = await tx.worker(before.worker_id)
        tx.save_worker(
            lifecycle.release_reservations(worker, [before], tx.now), "lablet_released", reason, lablet=before.id
        )
    return tx.save_lablet(after, action, reason, status=after.status.value)


async def free_name(store: Store, lablet: Lablet) -> str:
    """The name of a lablet that is made anew, with a number if another one has taken it while it had failed."""
    name, number = lablet.name, 1
    while await store.get_unique(LABLETS, "name", in_team(lablet.team, name)) is not None:
        number += 1
        name = f"{lablet.name}-{number}"
    return name
