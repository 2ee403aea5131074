"""The dialog that gives a lablet to a team (teams.md#what-belongs-to-a-team)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.model.access import Role
from tests.support.web.lablets import LabletWorld
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane


async def exercise(plane: TestPlane) -> str:
    world = await LabletWorld(plane).open()
    await world.define()
    return str((await world.make("exercise"))["id"])


async def blue(plane: TestPlane) -> str:
    body = {"name": "blue", "members": [{"role": "learner", "email": "bob@example.org"}]}
    return str((await plane.ask("POST", "/api/teams", role=Role.ADMIN, json=body)).json()["id"])


async def lablet_of(plane: TestPlane, lablet: str) -> dict[str, Any]:
    found: dict[str, Any] = (await plane.ask("GET", f"/api/lablets/{lablet}")).json()
    return found


async def test_an_admin_assigns_a_lablet_to_a_team_and_a_member(plane: TestPlane) -> None:
    lablet, admin = await exercise(plane), await signed_in(plane, Role.ADMIN)
    assert "There are no teams yet" in await admin.part(f"/lablets/{lablet}/assign")
    team = await blue(plane)
    assert "Assign to team" in await admin.page(f"/lablets/{lablet}")
    assert "It belongs to no team" in await admin.part(f"/lablets/{lablet}/assign")
    form = {"team": team, "owner": "bob@example.org", "idempotency_key": "key-1"}
    sent = await admin.send(f"/lablets/{lablet}/assign", form)
    assert "exercise: assigned to team blue" in sent.text
    after = await lablet_of(plane, lablet)
    assert (after["team"], after["owner"], after["owner_name"]) == (team, "email:bob@example.org", "bob@example.org")
    again = await admin.send(f"/lablets/{lablet}/assign", form)
    assert again.text == sent.text
    assert (await lablet_of(plane, lablet))["version"] == after["version"]
    assert "It belongs to team blue" in await admin.part(f"/lablets/{lablet}/assign")


async def test_an_owner_who_is_not_in_the_team_is_a_problem_of_the_owner(plane: TestPlane) -> None:
    lablet, team, admin = await exercise(plane), await blue(plane), await signed_in(plane, Role.ADMIN)
    response = await admin.send(f"/lablets/{lablet}/assign", {"team": team, "owner": "eve@example.org"})
    assert response.status_code == 422
    assert 'id="f-owner-problem">no member of team blue has this address; add it to the team first' in response.text
    assert 'value="eve@example.org"' in response.text
    response = await admin.send(f"/lablets/{lablet}/assign", {"team": "", "owner": "eve@example.org"})
    assert 'id="f-team-problem">choose a team' in response.text
    assert 'value="eve@example.org"' in response.text
    assert (await lablet_of(plane, lablet))["team"] == ""


async def test_operators_have_no_such_button(plane: TestPlane) -> None:
    lablet, team, operator = await exercise(plane), await blue(plane), await signed_in(plane, Role.OPERATOR)
    assert "Assign to team" not in await operator.page(f"/lablets/{lablet}")
    assert (await operator.send(f"/lablets/{lablet}/assign", {"team": team})).status_code == 403
