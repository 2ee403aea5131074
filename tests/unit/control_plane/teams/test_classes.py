"""Instructors book classes for their teams, and learn nothing of what others have booked (teams.md#roles-in-a-team)."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.records.kinds import BOOKINGS, LABLETS, booking_fields, booking_unique_keys, lablet_fields
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.booking.progress import seat_id
from lcm.model.booking.record import AtRisk, Booking
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import LabletStatus
from tests.unit.control_plane.teams.school import School, booking_request, open_school

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx


@pytest.fixture
async def school() -> AsyncIterator[School]:
    async with open_school() as school:
        yield school


async def send(school: School, path: str = "", *, who: str = "instructor", method: str = "POST", **body: Any) -> Any:
    return await school.ask(who, method, f"/api/bookings{path}", json=body)


async def book(school: School, who: str = "instructor", name: str = "monday", **more: Any) -> dict[str, Any]:
    made = await send(school, who=who, **booking_request(name, "ospf", None, **more))
    assert made.status_code == 201, made.text
    booked: dict[str, Any] = made.json()
    return booked


def detail(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["detail"]


async def test_an_instructor_books_extends_moves_and_cancels_a_class_of_the_own_team(school: School) -> None:
    fits = await send(school, "/preview", **booking_request("monday", "ospf", None))
    assert (fits.status_code, fits.json()["confirmed"]) == (200, True)
    made = await book(school, repeat_weeks=2)
    assert made["team"] == school.teams["blue"]
    path = f"/{made['id']}"
    assert (await send(school, path, method="GET")).json()["name"] == "monday"
    listed = (await send(school, method="GET")).json()["items"]
    assert sorted(each["name"] for each in listed) == ["alpha-class", "monday"]
    longer = await send(school, f"{path}/extend", minutes=30)
    assert longer.status_code == 200
    later = (clock.now() + timedelta(days=8)).strftime("%Y-%m-%dT10:00")
    assert (await send(school, f"{path}/occurrences/2", method="PATCH", start=later)).status_code == 200
    cancelled = await send(school, f"{path}/cancel", reason="nobody came")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "CANCELLED")


async def test_learners_book_nothing(school: School) -> None:
    path = f"/{school.bookings['alpha-class']}"
    tried = [
        await send(school, who="learner", **booking_request("monday", "ospf", None)),
        await send(school, "/preview", who="learner", **booking_request("monday", "ospf", None)),
        await send(school, who="learner", method="GET"),
        await send(school, path, who="learner", method="GET"),
        await send(school, f"{path}/cancel", who="learner"),
        await send(school, f"{path}/extend", who="learner", minutes=30),
    ]
    assert {each.status_code for each in tried} == {403}


async def test_a_team_or_definition_of_others_looks_unknown(school: School) -> None:
    foreign, absent = [
        detail(await send(school, **booking_request("monday", "ospf", team))) for team in ("secret-team", "absent-team")
    ]
    assert foreign[0] == absent[0] == 422
    assert foreign[1].replace("secret-team", "absent-team") == absent[1]
    foreign, absent = [
        detail(await send(school, **booking_request("monday", name, None))) for name in ("secret-bgp", "bgp")
    ]
    assert foreign[0] == absent[0] == 404
    assert foreign[1].replace("secret-bgp", "bgp") == absent[1]


async def test_names_of_classes_are_unique_within_a_team(school: School) -> None:
    await school.admin("PATCH", "/api/settings", scaling={"max_workers_per_region": 60})
    made = await book(school, name="secret-class")  # another team has a class of this name
    again = await send(school, **booking_request("secret-class", "ospf", None))
    assert (again.status_code, again.json()["code"]) == (409, "name_taken")
    assert made["id"] in again.json()["detail"]
    assert school.bookings["secret-class"] not in again.text


async def test_the_version_of_a_foreign_booking_is_not_compared(school: School) -> None:
    headers = {"Authorization": f"Bearer {school.tokens['instructor']}", "If-Match": '"99"'}
    for path in ("secret-class", "secret-evening"):
        foreign = f"/api/bookings/{school.bookings[path]}/cancel"
        assert (await school.plane.ask("POST", foreign, role=None, headers=headers, json={})).status_code == 404


async def test_a_refusal_has_numbers_and_no_names(school: School) -> None:
    """All workers of the region are booked by another team: how many, and not by whom or at what price."""
    settings = {"scaling": {"max_workers_per_region": 2}}
    await school.admin("PATCH", "/api/settings", **settings)
    for what in ("/preview", ""):
        answer = await send(school, what, **booking_request("monday", "ospf", None, seats=60))
        body = answer.json() if what else answer.json()["current"]
        assert answer.status_code == (200 if what else 409)
        assert not body["confirmed"]
        assert "workers: " in body["shortages"][0]["message"]
        assert (body["cost_usd"], body["cost_per_hour_usd"], body["cost"]) == (0, 0, "")
        assert "secret" not in answer.text


async def test_a_preview_of_a_change_says_what_it_costs_only_to_roles_of_the_fleet(school: School) -> None:
    path = f"/{(await book(school))['id']}/extend/preview"
    assert (await send(school, path, minutes=30)).json()["cost"] == ""
    seen = await school.plane.ask("POST", f"/api/bookings{path}", role=Role.OPERATOR, json={"minutes": 30})
    assert seen.json()["cost"].endswith("more than now.")


async def test_what_a_class_lacks_and_costs_is_for_roles_of_the_fleet(school: School) -> None:
    """The text names workers, and people who hold them."""
    mine = school.bookings["alpha-class"]
    store = school.plane.services.context.store
    stored = await store.get(BOOKINGS, mine)
    assert stored is not None
    booking = Booking.model_validate_json(stored.body)
    lacks = AtRisk(since=clock.now(), missing="secret-worker is on hold by secret-person")
    occurrence = booking.occurrences[0].model_copy(update={"at_risk": lacks})
    after = booking.with_occurrence(occurrence, clock.now())
    fields, unique = booking_fields(after), booking_unique_keys(after)
    await store.commit([Put(BOOKINGS, mine, after.model_dump_json().encode(), stored.revision, fields, unique)])
    assert "secret-worker" in (await school.plane.ask("GET", f"/api/bookings/{mine}", role=Role.VIEWER)).text
    assert after.cost_per_hour_usd > 0
    for path in (f"/api/bookings/{mine}", "/api/bookings"):
        shown = await school.ask("instructor", "GET", path)
        assert "operators see what is missing" in shown.text
        assert "secret" not in shown.text
        assert "cost_per_hour_usd" not in shown.text
    for path in (f"/bookings/{mine}", f"/bookings/{mine}/classes/1", "/bookings"):
        page = (await school.ask("instructor", "GET", path, html=True)).text
        assert "At risk" in page
        assert "secret" not in page
        assert "an hour while they run" not in page
    longer = await send(school, f"/{mine}/extend", minutes=30)
    assert (longer.status_code, "secret" in longer.text) == (200, False)
    events = await school.stream("instructor", after=school.before)
    assert "alpha-class" in events
    assert "secret" not in events
    assert "cost_per_hour_usd" not in events
    assert "alpha-class" not in await school.stream("learner", after=school.before)


async def test_the_week_counts_the_workers_of_others_and_names_nobody(school: School) -> None:
    page = (await school.ask("instructor", "GET", "/bookings", html=True)).text
    assert "alpha-class" in page
    everything = (await school.plane.ask("GET", "/api/bookings")).json()["items"]
    assert f"{sum(each['workers'] for each in everything)} of 10" in page
    assert "secret" not in page


@pytest.mark.parametrize(("who", "names"), [("instructor", ["Lablets", "Bookings"]), ("learner", ["Lablets"])])
async def test_the_navigation_has_what_people_of_a_team_can_open(school: School, who: str, names: list[str]) -> None:
    page = (await school.ask(who, "GET", "/lablets", html=True)).text
    nav = page.partition('<nav class="sites"')[2].partition("</nav>")[0]
    links = re.findall(r'<a href="([^"]+)"[^>]*>([^<]+)</a>', nav)
    assert [name for _, name in links] == names
    for address, _ in links:
        assert (await school.ask(who, "GET", address, html=True)).status_code == 200


@pytest.mark.parametrize("status", [LabletStatus.RUNNING, LabletStatus.FAILED])
async def test_a_class_of_thirty_is_shown_reset_and_extended_by_its_instructor(
    school: School, status: LabletStatus
) -> None:
    await school.admin("PATCH", "/api/settings", scaling={"max_workers_per_region": 60})
    made = await book(school, seats=30)
    begins = datetime.fromisoformat(made["occurrences"][0]["starts_at"])
    await asyncio.sleep((begins - clock.now()).total_seconds() + 60)
    await school.plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json={"term": 5})
    advanced = await school.plane.ask("POST", "/api/internal/bookings/advance", role=Role.CONTROLLER)
    assert advanced.json()["skipped"] == 0
    store, booking = school.plane.services.context.store, Booking.model_validate(made)
    stored = await store.get(LABLETS, seat_id(booking, 1, 7))
    assert stored is not None
    seat = Lablet.model_validate_json(stored.body)
    workers = (await school.plane.ask("GET", "/api/workers")).json()["items"]
    facts = {"status": status, "lab_id": "abc", "worker_id": workers[0]["id"]}
    runs = seat.model_copy(update=facts)
    await store.commit([Put(LABLETS, seat.id, runs.model_dump_json().encode(), stored.revision, lablet_fields(runs))])
    path = f"/bookings/{made['id']}/classes/1"
    page = (await school.ask("instructor", "GET", path, html=True)).text
    assert page.count('<li class="tile') == 30
    assert f"/lablets/{seat.id}/confirm-reset" in page
    assert workers[0]["name"] in page
    assert "/workers/" not in page
    assert "/confirm-extend" in page
    reset = await school.ask("instructor", "POST", f"/lablets/{seat.id}/reset", html=True, data={"confirm": seat.name})
    assert reset.status_code == 200, reset.text
    assert f"/lablets/{seat.id}/confirm-reset" not in (await school.ask("instructor", "GET", path, html=True)).text
    longer = await school.ask("instructor", "POST", f"{path}/extend", html=True, data={"minutes": "30"})
    assert longer.status_code == 200, longer.text
    again = Booking.model_validate((await send(school, f"/{made['id']}", method="GET")).json())
    assert again.occurrences[0].ends_at == booking.occurrences[0].ends_at + timedelta(minutes=30)
