"""Roles in teams: by group, by verified address, by token; and who is pinned to an address (teams.md#members)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.auth.cache import AUTH_CACHE_SECONDS
from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.teams import TeamDirectory, put_team
from lcm.control_plane.records.kinds import ALL_KINDS, AUDIT, TEAMS
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.access import CallerKind, Grant, Role
from lcm.model.team import Team, TeamMember

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store

ANN, EVE = "https://id.example#ann", "https://id.example#eve"


@pytest.fixture
async def store() -> Store:
    made = MemoryStore()
    await made.open(ALL_KINDS)
    return made


async def add(store: Store, name: str, *members: TeamMember) -> Team:
    team = Team(id=f"team-{name}", name=name, members=members, created_at=clock.now(), updated_at=clock.now())
    await store.commit([put_team(team, None)])
    return team


def person(subject: str, *groups: str, email: str | None = None, role: Role | None = None) -> Caller:
    return Caller(subject[-3:], CallerKind.OIDC, role, subject=subject, groups=groups, email=email)


async def grants(directory: TeamDirectory, caller: Caller) -> list[tuple[str, Role]]:
    return [(grant.team, grant.role) for grant in (await directory.with_grants(caller)).grants]


async def test_groups_give_roles_by_the_team_and_by_the_map_of_the_settings(store: Store) -> None:
    await add(store, "a", TeamMember(role=Role.LEARNER, group="course a"))
    await add(store, "b")
    directory = TeamDirectory(store, {"teachers": (Role.INSTRUCTOR, "b"), "lost": (Role.LEARNER, "no such team")})
    found = await grants(directory, person(ANN, "course a", "teachers", "lost"))
    assert sorted(found) == [("team-a", Role.LEARNER), ("team-b", Role.INSTRUCTOR)]
    assert await grants(directory, person(ANN, "other")) == []


async def test_the_first_person_with_an_address_is_pinned_to_it(store: Store) -> None:
    await add(store, "a", TeamMember(role=Role.LEARNER, email="ann@example.org"))
    directory = TeamDirectory(store)
    assert await grants(directory, person(ANN, email="ann@example.org")) == [("team-a", Role.LEARNER)]
    stored = await store.get(TEAMS, "team-a")
    assert stored is not None
    (member,) = Team.model_validate_json(stored.body).members
    assert (member.subject, member.name) == (ANN, "ann")
    (line,) = await store.read_journal(topics=[AUDIT])
    assert b"member_pinned" in line.body
    # The address goes to another person, and the first one has a new one.
    assert await grants(directory, person(EVE, email="ann@example.org")) == []
    assert await grants(directory, person(ANN, email="ann.new@example.org")) == [("team-a", Role.LEARNER)]


async def test_of_two_people_who_come_at_once_one_is_pinned(store: Store) -> None:
    await add(store, "a", TeamMember(role=Role.LEARNER, email="ann@example.org"))
    people = [person(each, email="ann@example.org") for each in (ANN, EVE)]
    found = await asyncio.gather(*(grants(TeamDirectory(store), each) for each in people))
    assert sorted(map(len, found)) == [0, 1]


async def test_a_token_has_its_team_as_long_as_there_is_the_team(store: Store) -> None:
    team = await add(store, "a")
    mine, lost = Grant(team=team.id, role=Role.LEARNER), Grant(team="team-gone", role=Role.INSTRUCTOR)
    token = Caller("t", CallerKind.TOKEN, None, token_id="t-1", grants=(mine, lost))
    assert (await TeamDirectory(store).with_grants(token)).grants == (mine,)


async def test_a_person_who_is_removed_keeps_the_role_for_some_seconds_at_most(store: Store) -> None:
    team = await add(store, "a", TeamMember(role=Role.LEARNER, group="g"))
    directory = TeamDirectory(store)
    assert await grants(directory, person(ANN, "g")) == [("team-a", Role.LEARNER)]
    stored = await store.get(TEAMS, team.id)
    assert stored is not None
    await store.commit([put_team(team.model_copy(update={"members": ()}), stored.revision)])
    await asyncio.sleep(AUTH_CACHE_SECONDS + 0.1)
    assert await grants(directory, person(ANN, "g")) == []


async def test_a_team_that_cannot_be_read_takes_no_role_from_the_members_of_others(store: Store) -> None:
    await add(store, "a", TeamMember(role=Role.LEARNER, group="course"))
    await store.commit([Put(TEAMS, "team-b", b'{"id": "team-b", "members": 7}', None, {"name": "b"}, {"name": "b"})])
    directory = TeamDirectory(store)
    assert await grants(directory, person(ANN, "course", email="ann@example.org")) == [("team-a", Role.LEARNER)]
