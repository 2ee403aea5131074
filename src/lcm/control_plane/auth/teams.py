"""Which roles a person has in teams, by group, by verified e-mail address, or by token.

A team names a person by address before they have ever signed in. The first person who signs in with that address,
verified by the provider, is pinned to the entry by issuer and subject: whoever gets the address later is not them.

Teams are cached for `cache.AUTH_CACHE_SECONDS`, so a person who was removed keeps access for as long at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.auth.cache import TtlCache
from lcm.control_plane.records.kinds import AUDIT, TEAMS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import NewJournalEntry, Put, RevisionConflictError
from lcm.core import clock
from lcm.model.access import Grant
from lcm.model.audit import AuditEntry
from lcm.model.team import Team

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.store.port import Store
    from lcm.model.access import Role
    from lcm.model.team import TeamMember

log = structlog.get_logger(__name__)

_ALL = "all"
_MAX_PIN_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class TeamList:
    """All teams at one moment."""

    by_id: Mapping[str, Team] = field(default_factory=dict)

    def find(self, reference: str) -> Team | None:
        """A team by id, or else by name."""
        found = self.by_id.get(reference)
        return found or next((team for team in self.by_id.values() if team.name == reference), None)

    def name(self, team_id: str) -> str:
        """The name of a team as people read it; its id if it is gone."""
        team = self.by_id.get(team_id)
        return team_id if team is None else team.name


class TeamDirectory:
    """Reads teams, and adds the roles in them to callers.

    `group_rules` are those of OIDC_ROLE_MAP: for a group, a role and the team (its name or id) in which it is granted.
    """

    def __init__(self, store: Store, group_rules: Mapping[str, tuple[Role, str]] | None = None) -> None:
        self._store = store
        self._group_rules = dict(group_rules or {})
        self._cache: TtlCache[TeamList] = TtlCache()

    async def teams(self) -> TeamList:
        """All teams, some seconds old at most."""
        found = await self._cache.get(_ALL, self._read)
        assert found is not None, "the list is there, even without teams"
        return found

    async def name_people_by_address(self) -> bool:
        """Whether any team has a member by e-mail address."""
        teams = (await self.teams()).by_id.values()
        return any(member.email is not None for team in teams for member in team.members)

    def forget(self) -> None:
        """Read the teams again: one was changed."""
        self._cache.drop(_ALL)

    async def with_grants(self, caller: Caller) -> Caller:
        """The caller with the roles in teams that exist now."""
        if not (caller.grants or caller.groups or caller.email):
            return caller
        teams = await self.teams()
        if await self._pin(caller, teams):
            teams = await self.teams()
        grants = dict.fromkeys(grant for grant in self._grants(caller, teams) if grant.team in teams.by_id)
        return replace(caller, grants=tuple(grants))

    async def _read(self) -> TeamList:
        found = [read_or_skip(stored, Team, "team") async for stored in find_all(self._store, TEAMS)]
        return TeamList({team.id: team for team in found if team is not None})

    def _grants(self, caller: Caller, teams: TeamList) -> Iterator[Grant]:
        if caller.subject is None:
            yield from caller.grants  # those of a token
            return
        groups = set(caller.groups)
        for group in caller.groups:
            if group in self._group_rules:
                role, named = self._group_rules[group]
                if (team := teams.find(named)) is not None:
                    yield Grant(team=team.id, role=role)
        for team in teams.by_id.values():
            for member in team.members:
                if member.group in groups or _is_pinned_to(member, caller):
                    yield Grant(team=team.id, role=member.role, email=member.email)

    async def _pin(self, caller: Caller, teams: TeamList) -> bool:
        """Pin the entries with the caller's address that nobody is pinned to; returns whether there were any."""
        if caller.subject is None or caller.email is None:
            return False
        named = [team for team in teams.by_id.values() if (entry := team.member(caller.email)) and not entry.subject]
        for team in named:
            await self._pin_in(team.id, caller)
        if named:
            self.forget()
        return bool(named)

    async def _pin_in(self, team_id: str, caller: Caller) -> None:
        assert caller.email is not None
        for _ in range(_MAX_PIN_ATTEMPTS):
            stored = await self._store.get(TEAMS, team_id)
            team = None if stored is None else Team.model_validate_json(stored.body)
            entry = None if team is None else team.member(caller.email)
            if stored is None or team is None or entry is None or entry.subject:
                return  # somebody else was first, or the entry is gone
            pinned = entry.model_copy(update={"subject": caller.subject, "name": caller.name})
            members = tuple(pinned if each is entry else each for each in team.members)
            changed = team.model_copy(update={"members": members, "version": team.version + 1})
            details = {"email": caller.email, "identity": caller.identity}
            audit = AuditEntry(
                at=clock.now(), actor=caller.actor, action="member_pinned", subject=team_id, details=details
            )
            line = NewJournalEntry(AUDIT, team_id, audit.model_dump_json().encode(), audit.at)
            try:
                await self._store.commit([put_team(changed, stored.revision)], entries=[line])
            except RevisionConflictError:
                continue
            log.info("member pinned", team=team.name, email=caller.email, identity=caller.identity)
            return


def put_team(team: Team, expected: int | None) -> Put:
    """The write of a team."""
    named = {"name": team.name}
    return Put(TEAMS, team.id, team.model_dump_json().encode(), expected, fields=named, unique=named)


def _is_pinned_to(member: TeamMember, caller: Caller) -> bool:
    return member.subject is not None and member.subject == caller.subject
