"""The Teams page: read by all roles of the fleet, changed by admins (teams.md#members, teams.md#limits)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lcm.model.access import Role
from tests.support.web.lablets import LabletWorld
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

_KEY = re.compile(r'name="idempotency_key" value="([^"]+)"')
FORM = {
    "name": "networks-1",
    "description": "First year",
    "instructors": "ann@example.org",
    "instructor_groups": "teachers",
    "learners": "Bob@Example.org\r\n\r\ncarol@example.org",
    "learner_groups": "",
    "max_lablets": "30",
    "max_seats": "",
    "max_lifetime_minutes": "240",
}


async def teams(plane: TestPlane) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await plane.ask("GET", "/api/teams", role=Role.ADMIN)).json()["items"]
    return found


async def test_an_admin_creates_changes_and_deletes_a_team(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    assert "people who should see their own labs and nothing else" in await admin.page("/teams")
    assert "Team networks-1 created" in (await admin.send("/teams/save", FORM)).text
    [team] = await teams(plane)
    assert [(each["role"], each["group"] or each["email"]) for each in team["members"]] == [
        ("instructor", "ann@example.org"),
        ("instructor", "teachers"),
        ("learner", "bob@example.org"),
        ("learner", "carol@example.org"),
    ]
    assert team["limits"] == {"max_lablets": 30, "max_seats": None, "max_lifetime_minutes": 240}
    page = await admin.page("/teams")
    for text in ("networks-1", "First year", "group teachers", "bob@example.org", "of 30", "4 hours for each lablet"):
        assert text in page
    form = await admin.part(f"/teams/{team['id']}/edit")
    assert "bob@example.org\ncarol@example.org</textarea>" in form
    assert 'value="240"' in form
    edited = {**FORM, "team_id": team["id"], "version": "1", "learners": "carol@example.org", "max_lablets": ""}
    assert "Team networks-1 saved" in (await admin.send("/teams/save", edited)).text
    [team] = await teams(plane)
    assert (len(team["members"]), team["limits"]["max_lablets"], team["version"]) == (3, None, 2)
    dialog = await admin.part(f"/teams/{team['id']}/confirm-delete")
    assert "Its 3 entries of members: these people will lose their role" in dialog
    assert "Team networks-1 deleted" in (await admin.send(f"/teams/{team['id']}/remove")).text
    assert await teams(plane) == []


async def test_a_form_with_mistakes_shows_each_beside_its_field_and_keeps_what_was_typed(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    wrong = {**FORM, "name": "no spaces", "learners": "bob@example.org\n\nnobody", "max_lablets": "many"}
    wrong |= {"instructor_groups": "g" * 300, "max_lifetime_minutes": "0"}
    response = await admin.send("/teams/save", wrong)
    assert response.status_code == 422
    assert 'id="f-learners-problem">line 3: must be an e-mail address' in response.text
    assert 'id="f-instructor_groups-problem">line 1: ' in response.text
    for field in ("name", "max_lablets", "max_lifetime_minutes"):
        assert f'id="f-{field}-problem"' in response.text
    assert "5 fields are invalid" in response.text
    assert "nobody</textarea>" in response.text
    assert 'value="many"' in response.text
    assert await teams(plane) == []


async def test_who_is_listed_twice_is_named_with_the_line(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    response = await admin.send("/teams/save", {**FORM, "learners": "carol@example.org\nANN@example.org"})
    assert 'id="f-learners-problem">line 2: ann@example.org is listed twice' in response.text


async def test_a_name_that_is_taken_is_a_problem_of_the_name(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    await admin.send("/teams/save", FORM)
    response = await admin.send("/teams/save", FORM)
    assert response.status_code == 422
    assert 'id="f-name-problem">networks-1 is already used' in response.text


async def test_a_form_counts_once_and_a_form_that_is_out_of_date_changes_nothing(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    form = {**FORM, "idempotency_key": key_in(await admin.part("/teams/new"))}
    first, again = await admin.send("/teams/save", form), await admin.send("/teams/save", form)
    assert (first.status_code, again.text) == (200, first.text)
    [team] = await teams(plane)
    dialog = await admin.part(f"/teams/{team['id']}/edit")
    edit = {**FORM, "team_id": team["id"], "version": "1", "name": "n-2", "idempotency_key": key_in(dialog)}
    first, again = await admin.send("/teams/save", edit), await admin.send("/teams/save", edit)
    assert (first.status_code, again.text) == (200, first.text)
    stale = await admin.send("/teams/save", {**edit, "idempotency_key": "other", "name": "n-3"})
    assert stale.status_code == 422
    assert "the team is at version 2, not 1" in stale.text
    assert 'value="n-3"' in stale.text
    assert [(each["name"], each["version"]) for each in await teams(plane)] == [("n-2", 2)]


async def test_saving_what_is_there_changes_nothing_whatever_the_order_of_its_members(plane: TestPlane) -> None:
    members = [{"role": "learner", "email": "z@example.org"}, {"role": "instructor", "group": "teachers"}]
    made = await plane.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": "n-1", "members": members})
    admin = await signed_in(plane, Role.ADMIN)
    form = {"name": "n-1", "learners": "z@example.org", "instructor_groups": "teachers", "team_id": made.json()["id"]}
    assert (await admin.send("/teams/save", form)).status_code == 200
    assert [each["version"] for each in await teams(plane)] == [1]


async def test_a_team_in_use_is_not_deleted_and_a_token_is_named_as_lost(plane: TestPlane) -> None:
    world = await LabletWorld(plane).open()
    await world.define()
    lablet = await world.make("exercise")
    admin = await signed_in(plane, Role.ADMIN)
    await admin.send("/teams/save", FORM)
    [team] = await teams(plane)
    token = {"name": "grader", "role": "instructor", "team": "networks-1"}
    assert (await plane.ask("POST", "/api/tokens", role=Role.ADMIN, json=token)).status_code == 201
    assert "1 token will no longer give access" in await admin.part(f"/teams/{team['id']}/confirm-delete")
    assigned = {"team": "networks-1"}
    await plane.ask("POST", f"/api/lablets/{lablet['id']}/assign", role=Role.ADMIN, json=assigned)
    dialog = await admin.part(f"/teams/{team['id']}/confirm-delete")
    assert "It still has 1 lablet." in dialog
    assert 'id="do"' not in dialog
    assert (await admin.send(f"/teams/{team['id']}/remove")).status_code == 409
    assert f"/lablets?team={team['id']}" in await admin.page("/teams")


async def test_other_roles_of_the_fleet_read_the_page_and_get_no_buttons(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    await admin.send("/teams/save", FORM)
    operator = await signed_in(plane, Role.OPERATOR)
    page = await operator.page("/teams")
    assert "bob@example.org" in page
    assert "New team" not in page
    assert "Edit networks-1" not in page
    assert (await operator.send("/teams/save", {**FORM, "name": "other"})).status_code == 403
    assert len(await teams(plane)) == 1


async def test_more_teams_than_a_page_has_are_on_the_next_one(plane: TestPlane) -> None:
    for number in range(52):
        await plane.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": f"team-{number:02}"})
    viewer = await signed_in(plane, Role.VIEWER)
    first = await viewer.page("/teams")
    assert "team-49" in first
    assert "team-50" not in first
    found = re.search(r'href="(/teams\?after=[^"]+)" rel="next"', first)
    assert found
    second = await viewer.page(found.group(1))
    assert "team-51" in second
    assert "Next page" not in second


def key_in(dialog: str) -> str:
    found = _KEY.search(dialog)
    assert found, "every form has a key"
    return found.group(1)
