"""What belongs to a team: names, limits, assignment, dedicated workers, what members may do (teams.md#limits)."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest

from lcm.cli.output.lablet_views import preview_lines
from lcm.control_plane.auth.roles import Caller, UnauthenticatedError
from lcm.control_plane.auth.teams import TeamDirectory
from lcm.control_plane.store.port import Sort, Where
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from lcm.model.lablet.placement import LabletPreview, rejection_reason
from lcm.model.lablet.record import LabletRequirements
from tests.support.records.lablet_records import a_ready_worker
from tests.support.records.workers import NOW
from tests.unit.control_plane.teams.school import TOPOLOGY, School, booking_request, open_school

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx


@pytest.fixture
async def school() -> AsyncIterator[School]:
    async with open_school() as school:
        yield school


async def create(school: School, who: str, **body: Any) -> httpx.Response:
    return await school.ask(who, "POST", "/api/lablets", json={"definition": "ospf", **body})


async def test_names_are_unique_within_a_team_and_errors_name_no_other_team(school: School) -> None:
    assert (await create(school, "instructor", name="secret-b")).status_code == 201  # another team has the name too
    again = await create(school, "instructor", name="secret-b")
    assert (again.status_code, again.json()["code"]) == (409, "name_taken")
    assert school.foreign[0] not in again.text
    assert school.teams["blue"] not in again.json()["detail"]
    body = {"name": "secret-open", "version": "1", "topology": TOPOLOGY}
    made = await school.ask("instructor", "POST", "/api/lablet-definitions", json=body)
    assert (made.status_code, made.json()["team"]) == (201, school.teams["blue"])


async def test_an_instructor_creates_in_the_own_team_alone(school: School) -> None:
    made = await create(school, "instructor", owner="nobody known")
    assert (made.json()["team"], made.json()["owner"]) == (school.teams["blue"], "")
    for team, status in (("secret-team", 404), ("no-such-team", 404)):
        assert (await create(school, "instructor", team=team)).status_code == status
    assert (await create(school, "instructor", definition="secret-open")).status_code == 404
    assert (await create(school, "learner")).status_code == 403


async def test_a_learner_ends_the_own_lablet_and_no_other(school: School) -> None:
    for name, status in (("alpha-mine", 202), ("alpha-other", 404), ("secret-b", 404), ("secret-none", 404)):
        answer = await school.ask("learner", "POST", f"/api/lablets/{school.ids[name]}/terminate")
        assert answer.status_code == status, name
    stale = {"If-Match": '"99"'}
    path = f"/api/lablets/{school.ids['secret-b']}"
    assert (await school.plane.ask("DELETE", path, headers={**bearer(school, "learner"), **stale})).status_code == 404


def bearer(school: School, who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {school.tokens[who]}"}


async def test_of_two_lablets_at_once_the_limit_lets_one_in(school: School) -> None:
    await school.admin("PATCH", "/api/teams/blue", limits={"max_lablets": 3})
    answers = await asyncio.gather(*(create(school, "instructor") for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert "team blue may have 3 lablets at once and has 3" in refused.json()["detail"]
    await school.ask("learner", "POST", f"/api/lablets/{school.ids['alpha-mine']}/terminate")
    assert (await create(school, "instructor")).status_code == 201


async def test_a_class_of_lablets_is_created_at_once(school: School) -> None:
    """Each writes the record of the team, and none gives up because of the others."""
    answers = await asyncio.gather(*(create(school, "instructor") for _ in range(30)))
    assert {answer.status_code for answer in answers} == {201}


async def test_a_lablet_lasts_no_longer_than_its_team_allows(school: School) -> None:
    await school.admin("PATCH", "/api/teams/blue", limits={"max_lifetime_minutes": 60})
    assert (await create(school, "instructor")).json()["time_to_live_minutes"] == 60
    assert (await create(school, "instructor", time_to_live_minutes=90)).json()["time_to_live_minutes"] == 60
    assert (await create(school, "instructor", time_to_live_minutes=30)).json()["time_to_live_minutes"] == 30
    late = await create(school, "instructor", ends_at="2999-01-01T00:00:00Z")
    assert (late.status_code, "60 minutes at most" in late.text) == (409, True)


async def test_an_admin_assigns_what_has_no_team(school: School) -> None:
    lablet = school.ids["secret-none"]
    mine = await school.identity("learner")
    done = await school.admin("POST", f"/api/lablets/{lablet}/assign", team="blue", owner=mine)
    assert (done["team"], done["owner"]) == (school.teams["blue"], mine)
    assert (await school.ask("learner", "GET", f"/api/lablets/{lablet}")).status_code == 200
    await school.admin("POST", "/api/lablet-definitions/secret-open/1/assign", team="blue")
    assert (await create(school, "instructor", definition="secret-open@1")).status_code == 201
    elsewhere = await school.admin("POST", f"/api/lablets/{lablet}/assign", team="secret-team")
    assert elsewhere["owner"] == ""  # it proved somebody in the other team
    assert (await school.ask("learner", "GET", f"/api/lablets/{lablet}")).status_code == 404


async def test_a_lablet_is_assigned_within_the_limit_and_the_names_of_the_team(school: School) -> None:
    """In the commit, also of two at once: the team has two lablets."""
    await school.admin("PATCH", "/api/teams/blue", limits={"max_lablets": 3})
    more = [school.ids["secret-none"], await school.lablet("secret-more", "secret-open")]

    async def assign(lablet: str, team: str = "blue") -> httpx.Response:
        path = f"/api/lablets/{lablet}/assign"
        return await school.plane.ask("POST", path, role=Role.ADMIN, json={"team": team})

    answers = await asyncio.gather(*(assign(each) for each in more))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert "team blue may have 3 lablets at once and has 3" in refused.json()["detail"]
    kept = next(each for each, answer in zip(more, answers, strict=True) if answer.status_code == 200)
    assert (await assign(kept)).status_code == 200, "it is there already"
    same_name = await school.lablet("alpha-mine", "secret-open")
    await school.admin("PATCH", "/api/teams/blue", limits={})
    taken = await assign(same_name)
    assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")
    assert (await school.plane.ask("GET", f"/api/lablets/{same_name}")).json()["team"] == ""


async def test_a_token_with_a_name_of_before_gets_no_answer_of_the_other_team(school: School) -> None:
    """Names are free again after a revocation, and scripts send the same keys."""

    async def make(who: str) -> str:
        headers = {"Authorization": f"Bearer {school.tokens[who]}", "Idempotency-Key": "monday-1"}
        body = {"definition": "ospf"}
        made = await school.plane.ask("POST", "/api/lablets", role=None, headers=headers, json=body)
        assert made.status_code == 201
        return str(made.json()["team"])

    assert await make("instructor") == school.teams["blue"]
    tokens = (await school.plane.ask("GET", "/api/tokens", role=Role.ADMIN)).json()["items"]
    (old,) = [each["id"] for each in tokens if each["name"] == "blue-instructor"]
    await school.admin("DELETE", f"/api/tokens/{old}")
    school.tokens["instructor"] = await school.token("blue-instructor", "instructor", "secret-team")
    assert await make("instructor") == school.teams["secret-team"]


async def test_a_team_is_deleted_once_nothing_belongs_to_it(school: School) -> None:
    answer = await school.plane.ask("DELETE", "/api/teams/blue", role=Role.ADMIN)
    assert (answer.status_code, "still has 1 definition, 2 lablets, 1 booking;" in answer.text) == (409, True)
    await school.admin("POST", "/api/teams", name="empty")
    token = await school.token("empty-learner", "learner", "empty")
    await school.admin("DELETE", "/api/teams/empty")
    school.tokens["gone"] = token
    assert (await school.ask("gone", "GET", "/api/lablets")).status_code == 403


async def book(school: School, team: str, *learners: str) -> dict[str, Any]:
    needs = {"license": False, "cpu_cores": 1, "memory_gb": 1, "storage_gb": 5}
    body = {"name": "small", "version": "1", "topology": TOPOLOGY, "requirements": needs}
    await school.admin("POST", "/api/lablet-definitions", **body)
    start = (clock.now() + timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M")
    when = {"start": start, "zone": "UTC", "duration_minutes": 60}
    what = {"name": "class", "definition": "small", "seats": 2, "team": team, "learners": learners}
    booking: dict[str, Any] = await school.admin("POST", "/api/bookings", **what, **when)
    return booking


async def test_a_lablet_that_goes_to_another_team_leaves_nothing_with_the_first(school: School) -> None:
    lablet = school.ids["alpha-mine"]
    made = await school.ask("instructor", "POST", f"/api/lablets/{lablet}/seat-links", json={})
    code = made.json()["path"].partition("#")[2]
    seat = await school.plane.services.seat_sessions.open(code, "198.51.100.7")
    await school.admin("POST", f"/api/lablets/{lablet}/assign", team="secret-team")
    assert not await school.plane.services.seat_sessions.still_valid(seat.id.reveal())
    with pytest.raises(UnauthenticatedError):
        await school.plane.services.seat_sessions.open(code, "198.51.100.7")
    history = await school.ask("secret-person", "GET", f"/api/lablets/{lablet}/history")
    assert (history.status_code, history.json()["items"]) == (200, []), "what was before is not theirs"


async def test_a_team_with_a_class_ahead_is_not_deleted(school: School) -> None:
    await school.admin("POST", "/api/teams", name="evening")
    booking = await book(school, "evening")
    answer = await school.plane.ask("DELETE", "/api/teams/evening", role=Role.ADMIN)
    assert (answer.status_code, "still has 1 booking" in answer.text) == (409, True)
    await school.admin("POST", f"/api/bookings/{booking['id']}/cancel")
    await school.admin("DELETE", "/api/teams/evening")


async def test_the_seats_of_a_class_are_the_learners_own(school: School) -> None:
    """calendar.md#carrying-out: the owner of a seat is the learner, by what proves who they are."""
    member = {"role": "learner", "email": "ann@example.org"}
    await school.admin("POST", "/api/teams", name="evening", members=[member])
    booking = await book(school, "evening", "ann@example.org", await school.identity("learner"))
    warm_up = datetime.fromisoformat(booking["occurrences"][0]["warm_up_at"])
    await asyncio.sleep((warm_up - clock.now()).total_seconds() + 1)
    await school.plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json={"term": 5})
    advanced = await school.plane.ask("POST", "/api/internal/bookings/advance", role=Role.CONTROLLER)
    assert (advanced.status_code, advanced.json()["skipped"]) == (200, 0)
    ann = Caller("ann", CallerKind.OIDC, None, subject="https://id.example#ann", email="ann@example.org")
    ann = await school.plane.services.directory.with_grants(ann)
    page = await school.plane.services.lablets.page(ann, Where(), Sort("name"), None, 10)
    assert [json.loads(each.body)["owner_name"] for each in page.items] == ["ann@example.org"]


async def test_a_lablet_has_the_team_of_its_definition_also_if_that_was_made_a_moment_ago(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = school.plane.services.directory
    before = await directory.teams()
    team = await school.admin("POST", "/api/teams", name="new")
    await school.define("mpls", "new")
    # Another control plane made both: this one has not read the teams again.
    monkeypatch.setattr(TeamDirectory, "teams", AsyncMock(return_value=before))
    made = await school.admin("POST", "/api/lablets", definition="mpls")
    assert made["team"] == team["id"]


def test_a_dedicated_worker_takes_the_lablets_of_its_team_alone() -> None:
    needs = LabletRequirements(license=False)
    worker = a_ready_worker(team="team-a")
    assert rejection_reason(worker, needs, now=NOW, team="team-a") is None
    for team in ("", "team-b"):
        assert rejection_reason(worker, needs, now=NOW, team=team) == "it is dedicated to another team"
    assert rejection_reason(a_ready_worker(), needs, now=NOW, team="team-b") is None


async def test_the_timeline_has_what_happened_while_the_lablet_was_theirs(school: School) -> None:
    """As its history and the streams: of the steps before, nobody of the new team learns who made them."""
    made = await school.ask("instructor", "POST", "/api/lablets", json={"definition": "ospf", "owner": "somebody"})
    lablet = made.json()["id"]
    pages = [f"/lablets/{lablet}", f"/lablets/{lablet}/timeline"]

    async def named(who: str) -> list[bool]:
        answers = [await school.ask(who, "GET", page, html=True) for page in pages]
        assert [each.status_code for each in answers] == [200, 200]
        return ["blue-instructor" in each.text.replace("blue-instructor <span", "") for each in answers]

    assert all(await named("instructor"))
    await school.admin("POST", f"/api/lablets/{lablet}/assign", team="blue", owner=await school.identity("learner"))
    assert not any(await named("learner")), "it was not theirs yet"
    await school.admin("POST", f"/api/lablets/{lablet}/assign", team="secret-team")
    assert not any(await named("secret-person"))
    await school.ask("secret-person", "POST", f"/api/lablets/{lablet}/terminate")
    timeline = await school.ask("secret-person", "GET", pages[1], html=True)
    assert "secret-person" in timeline.text, "what happens now is theirs"


async def test_the_preview_of_a_token_says_whether_its_team_exists(school: School) -> None:
    body = {"name": "grader", "role": "instructor"}
    absent = await school.admin("POST", "/api/tokens/preview", **body, team="absent")
    assert (absent["changes"], "there is no team absent" in absent["refusal"]) == (False, True)
    for team in ("blue", school.teams["blue"]):
        preview = await school.admin("POST", "/api/tokens/preview", **body, team=team)
        assert preview["effect"].endswith("has the role instructor in the team blue.")


async def test_a_class_lasts_no_longer_than_lablets_of_its_team(school: School) -> None:
    """Its seats are lablets of the team: who books a class must not get past the limit."""
    await school.admin("PATCH", "/api/teams/blue", limits={"max_lifetime_minutes": 90})
    await school.admin("PATCH", "/api/settings", scaling={"max_workers_per_region": 60})
    body = booking_request("long", "ospf", None)
    for path in ("/api/bookings", "/api/bookings/preview"):
        refused = await school.ask("instructor", "POST", path, json={**body, "duration_minutes": 91})
        assert (refused.status_code, refused.json()["code"]) == (409, "not_possible_now")
        assert "duration_minutes: lablets of team blue may last 90 minutes at most" in refused.text
    made = await school.ask("instructor", "POST", "/api/bookings", json=body)
    assert made.status_code == 201
    for minutes, status in ((31, 409), (30, 200)):
        path = f"/api/bookings/{made.json()['id']}/extend"
        extended = await school.ask("instructor", "POST", path, json={"minutes": minutes})
        assert extended.status_code == status
        assert (status == 409) == ("minutes: lablets of team blue may last 90 minutes at most" in extended.text)
    free = await school.ask("secret-person", "POST", "/api/bookings", json={**body, "duration_minutes": 600})
    assert free.status_code == 201, "the limit is that of one team"


async def test_a_preview_says_nothing_of_a_cost_that_an_instructor_does_not_see(school: School) -> None:
    school.tokens["operator"] = school.plane.tokens[Role.OPERATOR]
    for name, shown in (("instructor", False), ("operator", True)):
        page = await school.ask(name, "GET", "/lablets/new/preview?definition=ospf&team=blue", html=True)
        assert (page.status_code, "Preview:" in page.text, "Cost:" in page.text) == (200, True, shown), name
        preview = await school.ask(name, "POST", "/api/lablets/preview", json={"definition": "ospf", "team": "blue"})
        lines = preview_lines(LabletPreview.model_validate(preview.json()))
        assert [name for name, _ in lines] == ["then", "cost"][: 1 + shown]
