"""The API of bookings from a client's view."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.records.kinds import TEAMS
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.team import Team, TeamLimits
from tests.support.records.lablet_records import TOPOLOGY
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

BRUSSELS = "Europe/Brussels"


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        needs = {"license": False, "cpu_cores": 10, "memory_gb": 40, "storage_gb": 10}
        body = {"name": "bgp", "version": "1", "topology": TOPOLOGY, "requirements": needs}
        assert (await plane.ask("POST", "/api/lablet-definitions", json=body)).status_code == 201
        yield plane


def request(name: str = "monday", start: str | None = None, **facts: Any) -> dict[str, Any]:
    """30 seats, which take 10 workers, for four hours of tomorrow."""
    tomorrow = (clock.now() + timedelta(days=1)).strftime("%Y-%m-%dT09:00")
    body = {"name": name, "definition": "bgp", "seats": 30, "start": start or tomorrow, "zone": BRUSSELS}
    return {**body, "duration_minutes": 240, **facts}


async def ask(plane: TestPlane, path: str = "", body: Any = None, *, method: str = "POST") -> httpx.Response:
    return await plane.ask(method, f"/api/bookings{path}", json=body)


async def book(plane: TestPlane, *args: Any, **facts: Any) -> dict[str, Any]:
    response = await ask(plane, body=request(*args, **facts))
    assert response.status_code == 201, response.text
    booked: dict[str, Any] = response.json()
    return booked


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def bookings(plane: TestPlane, query: str = "") -> list[str]:
    response = await plane.ask("GET", f"/api/bookings{query}", role=Role.VIEWER)
    assert response.status_code == 200, response.text
    return [each["name"] for each in response.json()["items"]]


async def set_limits(plane: TestPlane, **scaling: int) -> None:
    response = await plane.ask("PATCH", "/api/settings", role=Role.ADMIN, json={"scaling": scaling})
    assert response.status_code == 200, response.text


async def test_a_class_is_booked_with_its_warm_up(plane: TestPlane) -> None:
    booked = await book(plane, learners=["anna@example.com"])
    (only,) = booked["occurrences"]
    assert (booked["workers"], booked["template"], booked["seats_per_worker"]) == (10, "nested-large", 3)
    assert (booked["status"], only["status"], booked["definition"]) == ("CONFIRMED", "CONFIRMED", "bgp@1")
    warm_up = instant(only["starts_at"]) - instant(only["warm_up_at"])
    # 45 minutes for the launch and 10 for the lab until they are measured, 5 before the start, and the rate of launches
    assert warm_up == timedelta(minutes=75)
    assert instant(only["ends_at"]) - instant(only["starts_at"]) == timedelta(hours=4)
    shown = (await plane.ask("GET", f"/api/bookings/{booked['id']}", role=Role.VIEWER)).json()
    assert shown == booked


async def test_a_preview_says_what_it_costs_and_stores_nothing(plane: TestPlane) -> None:
    preview = (await ask(plane, "/preview", request(repeat_weeks=2))).json()
    assert preview["confirmed"]
    assert (preview["workers"], preview["warm_up_minutes"], len(preview["occurrences"])) == (10, 75, 2)
    assert preview["cost_usd"] == pytest.approx(10 * 1.69344 * 5.25 * 2, abs=0.01)
    assert preview["cost"].startswith("10 workers of nested-large for 10.5 hours")
    assert await bookings(plane) == []


async def test_only_the_rest_of_a_warm_up_that_would_have_begun_is_paid(plane: TestPlane) -> None:
    start = (clock.now() + timedelta(minutes=15)).replace(second=0, microsecond=0)
    paid = (start - clock.now()).total_seconds() / 3600 + 4
    preview = (await ask(plane, "/preview", request(start=f"{start:%Y-%m-%dT%H:%M}", zone="UTC"))).json()
    assert preview["warnings"] == ["The warm-up takes about 75 minutes: seats may not be ready at the start."]
    assert preview["cost_usd"] == pytest.approx(10 * 1.69344 * paid, abs=0.02)
    assert preview["cost"].startswith(f"10 workers of nested-large for {round(paid, 2):g} hours")


async def test_a_refusal_says_what_is_short_and_a_proposed_time_is_confirmed(plane: TestPlane) -> None:
    await book(plane)
    refused = await ask(plane, body=request("too-many"))
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (409, "booking_refused")
    (shortage,) = problem["current"]["shortages"]
    assert (shortage["resource"], shortage["needed"], shortage["allowed"]) == ("workers", 20, 10)
    assert "MAX_WORKERS_PER_REGION is 10" in problem["detail"]
    times = problem["current"]["free_times"]
    assert len(times) == 3
    assert problem["detail"].endswith(f"{times[2]['start']['at'][:10]} {times[2]['start']['at'][11:16]} in {BRUSSELS}")
    preview = (await ask(plane, "/preview", request("too-many"))).json()
    assert preview == problem["current"]
    for number, each in enumerate(times):
        start = each["start"]["at"][:16]
        assert start[-3:] in (":00", ":15", ":30", ":45")
        taken = await book(plane, f"later-{number}", start)
        cancelled = await ask(plane, f"/{taken['id']}/cancel", {"reason": "only tried"})
        assert cancelled.json()["status"] == "CANCELLED"


async def test_weekly_classes_are_confirmed_all_or_none(plane: TestPlane) -> None:
    in_two_weeks = (clock.now() + timedelta(days=15)).strftime("%Y-%m-%dT10:00")
    await book(plane, "blocks", in_two_weeks, duration_minutes=60)
    refused = (await ask(plane, body=request(repeat_weeks=4))).json()
    assert refused["code"] == "booking_refused"
    assert await bookings(plane) == ["blocks"]
    first = refused["current"]["free_times"][0]["start"]["at"][:16]
    booked = await book(plane, "weekly", first, repeat_weeks=4)
    assert [each["number"] for each in booked["occurrences"]] == [1, 2, 3, 4]


async def test_licenses_of_the_pool_are_counted(plane: TestPlane) -> None:
    needs = {"license": True, "cpu_cores": 10, "memory_gb": 40, "storage_gb": 10}
    body = {"name": "licensed", "version": "1", "topology": TOPOLOGY, "requirements": needs}
    await plane.ask("POST", "/api/lablet-definitions", json=body)
    await set_limits(plane, license_pool_size=4, max_workers_per_region=20)
    refused = (await ask(plane, body=request(definition="licensed", seats=13))).json()["current"]
    assert [(each["resource"], each["needed"], each["allowed"]) for each in refused["shortages"]] == [
        ("licenses", 5, 4)
    ]
    await book(plane, definition="licensed", seats=12)


async def test_ports_and_templates_that_are_short_are_named(plane: TestPlane) -> None:
    huge = {"name": "huge", "version": "1", "topology": TOPOLOGY, "requirements": {"memory_gb": 5000}}
    await plane.ask("POST", "/api/lablet-definitions", json=huge)
    refused = (await ask(plane, "/preview", request(definition="huge"))).json()
    assert (refused["confirmed"], refused["template"]) == (False, None)
    assert refused["shortages"][0]["resource"] == "templates"
    assert "add or enable one" in refused["reason"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"start": "2026-03-29T02:30"}, ("start:", "does not exist", "use 2026-03-29 01:59 or 2026-03-29 03:00")),
        ({"start": "2026-10-25T02:30"}, ("start:", "occurs twice", "first or second")),
        ({"start": "2026-01-01T09:00"}, ("start:", "has passed")),
        ({"aws_region": "eu-north-1"}, ("aws_region:", "eu-west-1, us-east-1")),
    ],
)
async def test_a_request_that_cannot_be_booked_names_field_and_remedy(
    plane: TestPlane, facts: dict[str, Any], words: tuple[str, ...]
) -> None:
    for path in ("", "/preview"):
        response = await ask(plane, path, request(**facts))
        assert (response.status_code, response.json()["code"]) == (422, "invalid")
        for word in words:
            assert word in response.json()["detail"]


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"zone": "Mars/Base"}, "zone"),
        ({"start": "2026-02-01T09:00:30"}, "start"),
        ({"start": "2026-02-01T09:00:00Z"}, "start"),
        ({"start": 1_800_000_000}, "start"),
        ({"seats": 2, "learners": ["a", "b", "c"]}, "learners"),
        ({"learners": ["a", "a"]}, "learners"),
        ({"repeat_weeks": 53}, "repeat_weeks"),
    ],
)
async def test_an_invalid_field_is_named(plane: TestPlane, facts: dict[str, Any], field: str) -> None:
    response = await ask(plane, body=request(**facts))
    assert response.status_code == 422
    assert [each["field"] for each in response.json()["errors"]] == [field]


async def test_a_time_that_occurs_twice_is_booked_as_said(plane: TestPlane) -> None:
    await set_limits(plane, max_workers_per_region=20)
    starts = []
    for which in ("first", "second"):
        booked = await book(plane, which, "2026-10-25T02:30", occurrence=which)
        starts.append(instant(booked["occurrences"][0]["starts_at"]))
    assert starts[1] - starts[0] == timedelta(hours=1)


async def test_a_repeated_request_with_its_key_books_once(plane: TestPlane) -> None:
    body = request()
    made = [
        (await plane.ask("POST", "/api/bookings", json=body, headers={"Idempotency-Key": "k-1"})).json()["id"]
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert await bookings(plane) == ["monday"]


async def test_a_name_is_free_again_when_its_booking_is_over(plane: TestPlane) -> None:
    booked = await book(plane, seats=3)
    taken = await ask(plane, body=request(seats=3))
    assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")
    assert (await ask(plane, f"/{booked['id']}", method="DELETE")).json()["status"] == "CANCELLED"
    await book(plane, seats=3)


async def test_bookings_are_listed_by_time(plane: TestPlane) -> None:
    for name, day in (("late", 20), ("soon", 1), ("between", 10)):
        await book(plane, name, (clock.now() + timedelta(days=day)).strftime("%Y-%m-%dT09:00"))
    assert await bookings(plane) == ["soon", "between", "late"]
    begin = (clock.now() + timedelta(days=5)).strftime("%Y-%m-%dT00:00:00Z")
    end = (clock.now() + timedelta(days=15)).strftime("%Y-%m-%dT00:00:00Z")
    assert await bookings(plane, f"?from={begin}&to={end}") == ["between"]
    assert await bookings(plane, "?status=cancelled,ended") == []


async def test_one_class_is_moved_and_admitted_there(plane: TestPlane) -> None:
    booked = await book(plane, repeat_weeks=2)
    other = await book(plane, "other", (clock.now() + timedelta(days=3)).strftime("%Y-%m-%dT09:00"))
    taken = {"start": other["occurrences"][0]["start"]["at"]}
    refused = await ask(plane, f"/{booked['id']}/occurrences/2", taken, method="PATCH")
    assert (refused.status_code, refused.json()["code"]) == (409, "booking_refused")
    proposed = refused.json()["current"]["free_times"][-1]["start"]
    assert proposed["zone"] == BRUSSELS
    assert refused.json()["detail"].endswith(f"{proposed['at'][:10]} {proposed['at'][11:16]} in {BRUSSELS}")
    free = (clock.now() + timedelta(days=4)).strftime("%Y-%m-%dT14:30")
    moved = (await ask(plane, f"/{booked['id']}/occurrences/2", {"start": free}, method="PATCH")).json()
    assert [each["start"]["at"][:16] for each in moved["occurrences"]] == [
        booked["occurrences"][0]["start"]["at"][:16],
        free,
    ]
    # Within itself it may move: what it has booked now does not stand in its way.
    shifted = free.replace("14:30", "15:00")
    again = await ask(plane, f"/{booked['id']}/occurrences/2", {"start": shifted}, method="PATCH")
    assert again.status_code == 200, again.text
    onto_itself = {"start": booked["occurrences"][0]["start"]["at"]}
    overlap = await ask(plane, f"/{booked['id']}/occurrences/2", onto_itself, method="PATCH")
    assert (overlap.status_code, overlap.json()["detail"][:20]) == (422, "start: it would over")


async def test_a_class_can_be_moved_to_every_time_that_is_proposed(plane: TestPlane) -> None:
    """The same time a day later would be that of the next class of the booking."""
    booked = await book(plane, seats=3, repeat_weeks=2)
    other = await book(plane, "other", (clock.now() + timedelta(days=7)).strftime("%Y-%m-%dT09:00"))
    path, start = f"/{booked['id']}/occurrences/1", other["occurrences"][0]["start"]["at"]
    refused = await ask(plane, path, {"start": start}, method="PATCH")
    proposed = [each["start"]["at"] for each in refused.json()["current"]["free_times"]]
    assert len(proposed) == 3
    for each in proposed:
        moved = await ask(plane, path, {"start": each}, method="PATCH")
        assert moved.status_code == 200, moved.text


async def test_an_extension_needs_free_workers(plane: TestPlane) -> None:
    first = await book(plane)
    ends = instant(first["occurrences"][0]["ends_at"])
    following = (ends + timedelta(hours=1, minutes=75 + 60)).strftime("%Y-%m-%dT%H:%M")  # Brussels is an hour ahead
    await book(plane, "next", following)
    extended = await ask(plane, f"/{first['id']}/extend", {"minutes": 60})
    assert instant(extended.json()["occurrences"][0]["ends_at"]) == ends + timedelta(hours=1)
    refused = await ask(plane, f"/{first['id']}/extend", {"minutes": 15})
    assert (refused.status_code, refused.json()["code"]) == (409, "booking_refused")
    assert "workers: 20 would be needed" in refused.json()["detail"]


async def test_an_extension_and_a_move_are_previewed_as_they_would_be_answered(plane: TestPlane) -> None:
    first = await book(plane)
    ends = instant(first["occurrences"][0]["ends_at"])
    following = (ends + timedelta(hours=1, minutes=75 + 60)).strftime("%Y-%m-%dT%H:%M")
    other = await book(plane, "next", following)
    extend, move = f"/{first['id']}/extend", f"/{first['id']}/occurrences/1"
    fits = (await ask(plane, f"{extend}/preview", {"minutes": 60})).json()
    assert (fits["confirmed"], instant(fits["occurrence"]["ends_at"])) == (True, ends + timedelta(hours=1))
    assert fits["reason"].startswith("it fits: class 1 would take place from ")
    for path, method, body in (
        (extend, "POST", {"minutes": 75}),
        (move, "PATCH", {"start": other["occurrences"][0]["start"]["at"]}),
    ):
        preview = (await ask(plane, f"{path}/preview", body)).json()
        refused = await ask(plane, path, body, method=method)
        assert (refused.status_code, preview["confirmed"], preview["occurrence"]) == (409, False, None)
        assert preview["reason"] == refused.json()["detail"]
        current = refused.json()["current"]
        assert [preview["shortages"], preview["free_times"]] == [current["shortages"], current["free_times"]]
    assert (await ask(plane, f"{move}/preview", {"start": "2020-01-01T09:00"})).status_code == 422
    assert (await ask(plane, f"/{first['id']}", method="GET")).json() == first, "nothing is changed"


async def test_one_class_is_cancelled_and_the_others_stay(plane: TestPlane) -> None:
    booked = await book(plane, repeat_weeks=3)
    after = (await ask(plane, f"/{booked['id']}/cancel", {"number": 2})).json()
    assert [each["status"] for each in after["occurrences"]] == ["CONFIRMED", "CANCELLED", "CONFIRMED"]
    assert after["status"] == "CONFIRMED"
    again = (await ask(plane, f"/{booked['id']}/cancel", {"number": 2})).json()
    assert again["version"] == after["version"]
    missing = await ask(plane, f"/{booked['id']}/cancel", {"number": 7})
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_a_worker_that_cannot_serve_takes_up_its_place(plane: TestPlane) -> None:
    await plane.create("other")  # of another template; it is live until it is terminated
    refused = (await ask(plane, body=request())).json()["current"]
    assert [(each["resource"], each["needed"]) for each in refused["shortages"]] == [("workers", 11)]
    assert refused["free_times"] == []
    await plane.create("alike", template_name="nested-large")  # this one can serve
    await book(plane, seats=27)


async def test_who_may_book(plane: TestPlane) -> None:
    for path in ("", "/preview"):
        refused = await plane.ask("POST", f"/api/bookings{path}", role=Role.VIEWER, json=request())
        assert refused.status_code == 403
    booked = await book(plane)
    for method, path in (("DELETE", ""), ("POST", "/cancel"), ("POST", "/extend"), ("PATCH", "/occurrences/1")):
        response = await plane.ask(method, f"/api/bookings/{booked['id']}{path}", role=Role.VIEWER, json={"minutes": 5})
        assert response.status_code == 403


async def test_the_seats_of_a_team_are_limited(plane: TestPlane) -> None:
    now, store = clock.now(), plane.services.context.store
    team = Team(id="team-1", name="net", limits=TeamLimits(max_seats=20), created_at=now, updated_at=now)
    put = Put(TEAMS, team.id, team.model_dump_json().encode(), None, {"name": "net"}, {"name": "net"})
    await store.commit([put])
    booked = await book(plane, seats=12, team="net")
    assert booked["team"] == "team-1"
    refused = (await ask(plane, body=request("second", seats=9, team="net"))).json()["current"]
    assert [(each["resource"], each["needed"], each["allowed"]) for each in refused["shortages"]] == [
        ("team_seats", 21, 20)
    ]
    await book(plane, "of-nobody", seats=9)
    unknown = await ask(plane, body=request("third", team="other"))
    assert (unknown.status_code, unknown.json()["detail"][:29]) == (422, "team: there is no team other;")


async def test_a_team_with_a_booking_is_not_deleted(plane: TestPlane) -> None:
    """Its labs could not be created, and nothing would limit its seats any more (teams.md#what-belongs-to-a-team)."""
    assert (await plane.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": "net"})).status_code == 201
    booked = await book(plane, team="net")
    refused = await plane.ask("DELETE", "/api/teams/net", role=Role.ADMIN)
    assert (refused.status_code, refused.json()["detail"][:28]) == (409, "team net still has 1 booking")
    await ask(plane, f"/{booked['id']}/cancel", {})
    assert (await plane.ask("DELETE", "/api/teams/net", role=Role.ADMIN)).status_code == 204
