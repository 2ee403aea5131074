"""Schedules through the API: calendar.md#schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.calendar.zone_rules import check_zone_rules
from lcm.control_plane.records.kinds import SCHEDULES
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.calendar.schedule import Schedule
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OFFICE = {
    "name": "office",
    "zone": "Europe/Brussels",
    "windows": ["mon-fri 08:00-18:00"],
    "selector": {"names": ["alpha"]},
}


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


async def create(plane: TestPlane, **changes: Any) -> dict[str, Any]:
    response = await plane.ask("POST", "/api/schedules", json={**OFFICE, **changes})
    assert response.status_code == 201, response.text
    return dict(response.json())


async def audits(plane: TestPlane, schedule_id: str) -> list[tuple[str, str]]:
    entries = (await plane.ask("GET", "/api/audit", params={"subject": schedule_id})).json()["items"]
    return [(entry["action"], entry["actor"]["name"]) for entry in reversed(entries)]


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        ({"zone": "europe/brussels"}, "zone", "did you mean Europe/Brussels?"),
        ({"zone": "Mars/Olympus"}, "zone", "must be a time zone such as Europe/Brussels"),
        ({"windows": ["weekdays 8-18"]}, "windows.0", "'weekdays' is not a day; use mon, tue"),
        ({"windows": []}, "windows", "must have at least one window, such as mon-fri"),
        ({"exceptions": ["christmas closed"]}, "exceptions.0", "such as 2026-12-25 closed"),
        ({"selector": {}}, "selector", "must have names, templates, teams or tags"),
        ({"selector": {"name": "alpha"}}, "selector", "name: unknown; a selector has names, templates, teams and tags"),
        ({"outside": "hibernate"}, "outside", "stop"),
    ],
)
async def test_an_error_names_field_and_remedy(plane: TestPlane, changes: Any, field: str, remedy: str) -> None:
    for path in ("/api/schedules", "/api/schedules/preview"):
        response = await plane.ask("POST", path, json={**OFFICE, **changes})
        assert response.status_code == 422
        assert field in response.text
        assert remedy in response.text


async def test_a_schedule_is_created_changed_and_deleted_with_an_audit_of_each(plane: TestPlane) -> None:
    made = await create(plane, windows=["MON-FRI 08:00-18:00"])
    assert made["windows"] == ["mon-fri 08:00-18:00"]
    path = f"/api/schedules/{made['id']}"
    edited = await plane.ask("PATCH", path, json={"zone": "Asia/Tokyo"}, headers={"If-Match": '"1"'})
    assert (edited.json()["zone"], edited.headers["ETag"]) == ("Asia/Tokyo", '"2"')
    assert edited.json()["zone_rules"]["zone"] == "Asia/Tokyo"
    assert (await plane.ask("PATCH", path, json={"zone": "Asia/Tokyo"})).json()["version"] == 2, "nothing changed"
    assert (await plane.ask("PATCH", path, json={"name": "x"}, headers={"If-Match": '"1"'})).status_code == 412
    assert "name: must not be null" in (await plane.ask("PATCH", path, json={"name": None})).text
    assert (await plane.ask("PATCH", path, json={"enabled": False})).json()["enabled"] is False
    assert (await plane.ask("PATCH", path, json={"enabled": True})).json()["enabled"] is True
    assert (await plane.ask("DELETE", path)).status_code == 200
    assert (await plane.ask("GET", path)).status_code == 404
    names = ["created", "edited", "disabled", "enabled", "deleted"]
    assert await audits(plane, made["id"]) == [(f"schedule_{name}", "operator") for name in names]


async def test_a_name_is_used_once_and_a_repeated_request_creates_nothing(plane: TestPlane) -> None:
    key = {"Idempotency-Key": "once"}
    first = await plane.ask("POST", "/api/schedules", json=OFFICE, headers=key)
    assert (await plane.ask("POST", "/api/schedules", json=OFFICE, headers=key)).json() == first.json()
    taken = await plane.ask("POST", "/api/schedules", json=OFFICE)
    assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")
    assert "already used by schedule s-" in taken.json()["detail"]


async def test_the_list_says_what_each_is_now(plane: TestPlane) -> None:
    await create(plane)
    await create(plane, name="always", windows=["daily 00:00-24:00"], enabled=False)
    items = (await plane.ask("GET", "/api/schedules", role=Role.VIEWER)).json()["items"]
    shown = [(each["schedule"]["name"], each["is_open"], each["next_boundary"]) for each in items]
    assert shown == [("always", True, None), ("office", False, "2026-01-19T07:00:00Z")]  # it is a Saturday


async def test_a_preview_shows_workers_and_week_and_writes_nothing(plane: TestPlane) -> None:
    await plane.running("alpha")
    await plane.running("beta")
    body = (await plane.ask("POST", "/api/schedules/preview", json=OFFICE, role=Role.VIEWER)).json()
    assert [(each["name"], each["change_to"]) for each in body["workers"]] == [("alpha", "STOPPED")]
    assert (body["stops_now"], body["starts_now"], len(body["openings"])) == (1, 0, 5)
    assert body["openings"][0] == {
        "start": "2026-01-19T07:00:00Z",
        "end": "2026-01-19T17:00:00Z",
        "rule": "mon-fri 08:00-18:00",
    }
    assert "1 worker will be stopped as soon as it is not in use." in body["effect"]
    assert (await plane.ask("GET", "/api/schedules")).json()["items"] == []
    made = await create(plane)
    open_now = {**OFFICE, "windows": ["sat 08:00-18:00"], "schedule_id": made["id"]}
    edited = (await plane.ask("POST", "/api/schedules/preview", json=open_now)).json()
    assert edited["stops_now"] == 0, "it takes the place of the one that is saved"
    removed = (await plane.ask("GET", f"/api/schedules/{made['id']}/preview", params={"remove": "true"})).json()
    assert removed["effect"] == "It selects 1 worker; it stays as it is."


async def test_a_schedule_selects_the_workers_of_a_team(plane: TestPlane) -> None:
    team = (await plane.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": "net"})).json()
    dedicated, other = await plane.running("alpha"), await plane.running("beta")
    given = await plane.ask("PATCH", f"/api/workers/{dedicated['id']}", role=Role.ADMIN, json={"team": "net"})
    assert given.status_code == 200, given.text
    of_team = {**OFFICE, "selector": {"teams": ["net"]}}
    preview = (await plane.ask("POST", "/api/schedules/preview", json=of_team)).json()
    assert [each["name"] for each in preview["workers"]] == ["alpha"], other["name"]
    made = await create(plane, selector={"teams": ["net", team["id"]]})
    assert made["selector"]["teams"] == [team["id"]], "a team may get another name"
    assert (await plane.ask("PATCH", "/api/teams/net", role=Role.ADMIN, json={"name": "school"})).status_code == 200
    (shown,) = (await plane.ask("GET", "/api/schedules")).json()["items"]
    assert shown["team_names"] == {team["id"]: "school"}
    for path in ("/api/schedules", "/api/schedules/preview"):
        wrong = await plane.ask("POST", path, json={**OFFICE, "selector": {"teams": ["net"]}})
        assert (wrong.status_code, wrong.json()["detail"][:36]) == (422, "selector.teams: there is no team net")
    edited = await plane.ask("PATCH", f"/api/schedules/{made['id']}", json={"selector": {"teams": ["school"]}})
    assert edited.json()["version"] == made["version"], "nothing changed"


async def test_changed_rules_of_a_zone_are_noticed_and_audited_once(plane: TestPlane) -> None:
    """calendar.md#time-zones: the record holds what was known of the zone when it was saved."""
    schedule = Schedule.model_validate(await create(plane))
    assert schedule.zone_rules is not None
    context = plane.services.context
    assert await check_zone_rules(context, clock.now()) == 0
    first, *others = schedule.zone_rules.offsets
    moved = first.model_copy(update={"offset_seconds": first.offset_seconds + 3600})
    rules = schedule.zone_rules.model_copy(update={"offsets": (moved, *others)})
    stored = await context.store.get(SCHEDULES, schedule.id)
    assert stored is not None
    body = schedule.model_copy(update={"zone_rules": rules}).model_dump_json().encode()
    name = {"name": schedule.name}
    await context.store.commit([Put(SCHEDULES, schedule.id, body, stored.revision, dict(name), name)])
    assert await check_zone_rules(context, clock.now()) == 1
    assert await check_zone_rules(context, clock.now()) == 0
    assert (await audits(plane, schedule.id))[-1] == ("zone_rules_changed", "time-zones")


async def test_a_record_that_cannot_be_read_stops_no_other(plane: TestPlane) -> None:
    await create(plane)
    store = plane.services.context.store
    await store.commit([Put(SCHEDULES, "s-broken", b'{"id": "s-broken"}', None, {"name": "b"}, {"name": "b"})])
    items = (await plane.ask("GET", "/api/schedules")).json()["items"]
    assert [each["schedule"]["name"] for each in items] == ["office"]
