"""The pages Definitions and Bookings can be limited to a team, as Lablets can (teams.md)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.session_cookies import session_cookie
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from tests.support.records.lablet_records import TOPOLOGY
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

NAMES = ("of-none", "of-blue", "of-green", "of-red")


@pytest.fixture
async def teams(plane: TestPlane) -> dict[str, str]:
    """The ids of three teams. Each has a definition and a class, and so has none."""
    starts = (clock.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    made: dict[str, str] = {}
    for name in ("blue", "green", "red"):
        made[name] = (await plane.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": name})).json()["id"]
    for name in NAMES:
        team = name.removeprefix("of-")
        of_team = {"team": team} if team in made else {}
        body = {"name": name, "version": "1", "topology": TOPOLOGY, "requirements": {"license": False}, **of_team}
        assert (await plane.ask("POST", "/api/lablet-definitions", role=Role.ADMIN, json=body)).is_success
        when = {"start": starts, "zone": "UTC", "duration_minutes": 60}
        wanted = {"name": name, "definition": f"{name}@1", "seats": 1, **when, **of_team}
        booked = await plane.ask("POST", "/api/bookings", role=Role.ADMIN, json=wanted)
        assert booked.is_success, booked.text
    return made


def shown(page: str) -> list[str]:
    return [name for name in NAMES if f">{name}" in page]


def page_of(path: str, team: str) -> str:
    week = (clock.now() + timedelta(days=1)).date().isoformat()
    return f"{path}?zone=UTC&week={week}&team={team}"


@pytest.mark.parametrize("path", ["/definitions", "/bookings"])
async def test_roles_of_the_fleet_choose_a_team_or_what_has_none(
    plane: TestPlane, teams: dict[str, str], path: str
) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    assert shown(await visitor.page(page_of(path, ""))) == list(NAMES)
    assert shown(await visitor.page(page_of(path, teams["blue"]))) == ["of-blue"]
    assert shown(await visitor.page(page_of(path, "none"))) == ["of-none"]
    page = await visitor.page(page_of(path, teams["green"]))
    assert f'<option value="{teams["green"]}" selected>green</option>' in page
    assert f"team={teams['green']}" in page.partition("data-refresh=")[2].partition(" ")[0], "a refresh keeps it"
    assert shown(await visitor.part(page_of(path, teams["green"]))) == ["of-green"]
    for nobody in ("team-gone", '"><script>'):
        page = await visitor.page(page_of(path, nobody))
        assert shown(page) == []
        assert "<script>&" not in page
        assert ("This team has no definitions." if path == "/definitions" else "No classes of this team") in page


async def test_without_a_match_the_page_says_which_definitions_were_looked_for(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    assert "Every definition belongs to a team." in await visitor.page("/definitions?team=none")
    for team, words in (
        ("", "No definition"),
        ("none", "No definition without a team"),
        ("x", "No definition of this team"),
    ):
        assert f"{words} has this text in its name." in await visitor.page(f"/definitions?q=no-such&team={team}")


@pytest.mark.parametrize("path", ["/definitions", "/bookings"])
async def test_an_instructor_switches_between_their_teams_and_sees_no_other(
    plane: TestPlane, teams: dict[str, str], path: str
) -> None:
    body = {"members": [{"role": "instructor", "group": "teachers"}]}
    for name in ("blue", "green"):
        assert (await plane.ask("PATCH", f"/api/teams/{name}", role=Role.ADMIN, json=body)).is_success
    visitor = await instructor(plane)
    page = await visitor.page(page_of(path, ""))
    assert shown(page) == ["of-blue", "of-green"]
    assert "no team" not in page
    assert teams["red"] not in page
    assert shown(await visitor.page(page_of(path, teams["green"]))) == ["of-green"]
    for foreign in (teams["red"], "none"):
        assert shown(await visitor.page(page_of(path, foreign))) == []


async def instructor(plane: TestPlane) -> WebVisitor:
    gate = plane.services.authenticator
    person = Caller("eve", CallerKind.OIDC, None, subject="https://id.example#eve", groups=("teachers",))
    visitor = WebVisitor(plane)
    visitor.cookie = session_cookie(await gate.sessions.begin(person), secure=False).partition(";")[0]
    return visitor
