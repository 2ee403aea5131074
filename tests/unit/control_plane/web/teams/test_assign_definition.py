"""The dialog that gives a version of a definition to a team (teams.md#what-belongs-to-a-team)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.model.access import Role
from tests.support.records.lablet_records import TOPOLOGY
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

PATH = "/definitions/ospf/1/assign"


async def define(plane: TestPlane, **more: Any) -> None:
    body = {"name": "ospf", "version": "1", "topology": TOPOLOGY, "requirements": {"license": False}, **more}
    assert (await plane.ask("POST", "/api/lablet-definitions", role=Role.ADMIN, json=body)).status_code == 201


async def make_team(plane: TestPlane, name: str = "blue") -> str:
    return str((await plane.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": name})).json()["id"])


async def teams_of(plane: TestPlane) -> list[str]:
    items = (await plane.ask("GET", "/api/lablet-definitions")).json()["items"]
    return [each["team"] for each in items]


async def test_an_admin_assigns_a_definition_to_a_team_and_back_to_none(plane: TestPlane) -> None:
    await define(plane)
    admin = await signed_in(plane, Role.ADMIN)
    assert "There are no teams yet" in await admin.part(PATH)
    team = await make_team(plane)
    assert PATH in await admin.page("/definitions")
    assert "It belongs to no team" in await admin.part(PATH)
    sent = await admin.send(PATH, {"team": team})
    assert "ospf@1: assigned to blue" in sent.text
    assert await teams_of(plane) == [team]
    assert "It belongs to team blue" in await admin.part(f"{PATH}?team={team}")
    assert (await admin.send(f"{PATH}?team={team}", {"team": team})).status_code == 200, "it is there already"
    assert "assigned to no team" in (await admin.send(f"{PATH}?team={team}", {"team": ""})).text
    assert await teams_of(plane) == [""]


async def test_a_team_with_the_same_version_or_that_is_gone_is_a_problem_of_the_form(plane: TestPlane) -> None:
    await define(plane)
    admin, team = await signed_in(plane, Role.ADMIN), await make_team(plane)
    await admin.page("/definitions")
    await define(plane, team=team)
    taken = await admin.send(PATH, {"team": team})
    assert taken.status_code == 422
    assert f'<option value="{team}" selected>' in taken.text
    gone = await admin.send(PATH, {"team": "team-gone"})
    assert gone.status_code == 422
    assert "there is no team team-gone" in gone.text
    assert await teams_of(plane) == ["", team]


async def test_operators_have_no_such_button(plane: TestPlane) -> None:
    await define(plane)
    team, operator = await make_team(plane), await signed_in(plane, Role.OPERATOR)
    assert PATH not in await operator.page("/definitions")
    assert (await operator.send(PATH, {"team": team})).status_code == 403
