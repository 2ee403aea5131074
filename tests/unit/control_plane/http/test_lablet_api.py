"""The API of lablets from a client's view."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.journal.sse_client import EventFilter
from lcm.model.access import Role
from tests.support.records.lablet_records import READY, TOPOLOGY
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

VIEWER, ADMIN, CONTROLLER = Role.VIEWER, Role.ADMIN, Role.CONTROLLER
NOW = "2026-01-17T10:30:00Z"
CML_READY = [{**READY[0], "since": NOW}]


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        await plane.ask(
            "POST", "/api/internal/leadership", role=CONTROLLER, json={"term": 5, "startup_sweep_done": True}
        )
        yield plane


async def define(plane: TestPlane, name: str = "ospf", version: str = "1", **facts: Any) -> httpx.Response:
    body = {"name": name, "version": version, "topology": TOPOLOGY, "requirements": {"license": False}, **facts}
    return await plane.ask("POST", "/api/lablet-definitions", json=body)


async def make(plane: TestPlane, name: str = "first", definition: str = "ospf", **facts: Any) -> dict[str, Any]:
    response = await plane.ask("POST", "/api/lablets", json={"name": name, "definition": definition, **facts})
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


async def ready_worker(plane: TestPlane, name: str = "alpha") -> dict[str, Any]:
    return await plane.report(await plane.running(name), "RUNNING", conditions=CML_READY)


async def schedule(plane: TestPlane, lablet: dict[str, Any], worker: dict[str, Any], **headers: str) -> httpx.Response:
    placement = {"at": NOW, "worker_id": worker["id"], "score": 0.5, "reason": "the best"}
    ids = {"lablet_id": lablet["id"], "worker_id": worker["id"], "version": lablet["version"]}
    body = {"items": [{**ids, "placement": placement}]}
    return await plane.ask("POST", "/api/internal/lablets/schedule", role=CONTROLLER, json=body, headers=headers)


async def names(plane: TestPlane, query: str) -> list[str]:
    response = await plane.ask("GET", f"/api/lablets{query}", role=VIEWER)
    assert response.status_code == 200, response.text
    return [item["name"] for item in response.json()["items"]]


async def test_a_definition_is_made_once(plane: TestPlane) -> None:
    first = await define(plane, description="two areas")
    assert first.status_code == 201
    assert first.json()["topology"] == TOPOLOGY
    again = await define(plane, description="two areas")
    assert (again.status_code, again.json()) == (200, first.json())
    other = await define(plane, description="three areas")
    assert (other.status_code, other.json()["code"]) == (409, "name_taken")
    assert (await plane.ask("GET", "/api/lablet-definitions/ospf/1", role=VIEWER)).json() == first.json()
    assert (await define(plane, version="2", topology="nodes: 3")).status_code == 422


async def test_lists_of_definitions_leave_their_topologies_out(plane: TestPlane) -> None:
    for name, version in (("ospf", "1"), ("ospf", "2"), ("bgp", "1")):
        await define(plane, name, version)
    listed = (await plane.ask("GET", "/api/lablet-definitions", role=VIEWER)).json()["items"]
    assert [item["id"] for item in listed] == ["bgp@1", "ospf@1", "ospf@2"]
    assert not any("topology" in item for item in listed)
    found = (await plane.ask("GET", "/api/lablet-definitions?q=gp", role=VIEWER)).json()["items"]
    assert [item["id"] for item in found] == ["bgp@1"]
    versions = (await plane.ask("GET", "/api/lablet-definitions/ospf", role=VIEWER)).json()["items"]
    assert [item["version"] for item in versions] == ["2", "1"]
    assert (await plane.ask("GET", "/api/lablet-definitions/rip", role=VIEWER)).status_code == 404
    assert (await plane.ask("GET", "/api/lablet-definitions/ospf/3", role=VIEWER)).status_code == 404


async def test_an_admin_enables_and_disables_a_definition(plane: TestPlane) -> None:
    await define(plane)
    path = "/api/lablet-definitions/ospf/1"
    assert (await plane.ask("POST", f"{path}/disable")).status_code == 403
    assert (await plane.ask("POST", f"{path}/disable", role=ADMIN)).json()["enabled"] is False
    rejected = await plane.ask("POST", "/api/lablets", json={"definition": "ospf@1"})
    assert (rejected.status_code, rejected.json()["code"]) == (409, "not_possible_now")
    assert (await plane.ask("POST", f"{path}/enable", role=ADMIN)).json()["enabled"] is True
    await make(plane)


async def test_a_lablet_is_made_once_for_one_key(plane: TestPlane) -> None:
    await define(plane)
    body, headers = {"definition": "ospf"}, {"Idempotency-Key": "k-1"}
    first = await plane.ask("POST", "/api/lablets", json=body, headers=headers)
    assert (first.status_code, first.headers["ETag"]) == (201, '"1"')
    again = await plane.ask("POST", "/api/lablets", json=body, headers=headers)
    assert again.json() == first.json()
    other = await plane.ask("POST", "/api/lablets", json={"definition": "ospf@1"}, headers=headers)
    assert other.json()["code"] == "idempotency_mismatch"
    assert len(await names(plane, "")) == 1


async def test_invalid_requests_are_rejected_with_a_reason(plane: TestPlane) -> None:
    await define(plane)
    unknown = await plane.ask("POST", "/api/lablets", json={"definition": "rip"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    region = await plane.ask("POST", "/api/lablets", json={"definition": "ospf", "aws_region": "mars-1"})
    assert (region.status_code, "aws_region: mars-1 is not configured" in region.text) == (422, True)
    await make(plane)
    taken = await plane.ask("POST", "/api/lablets", json={"definition": "ospf", "name": "first"})
    assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")
    wrong = await plane.ask("GET", "/api/lablets?status=asleep", role=VIEWER)
    assert (wrong.status_code, "PENDING_SCHEDULING" in wrong.json()["detail"]) == (422, True)
    assert (await plane.ask("GET", "/api/lablets?sort=colour", role=VIEWER)).status_code == 422
    assert (await plane.ask("GET", "/api/lablets?definition=a,b@1", role=VIEWER)).status_code == 422
    assert (await plane.ask("GET", "/api/lablets/l-none", role=VIEWER)).status_code == 404


async def test_lablets_are_filtered_sorted_and_paged(plane: TestPlane) -> None:
    await define(plane)
    await define(plane, version="2")
    await define(plane, "bgp")
    worker = await ready_worker(plane)
    made = [
        await make(plane, "one", "ospf@1", owner="anna"),
        await make(plane, "two", "ospf@2", owner="bob"),
        await make(plane, "three", "bgp", owner="bob"),
    ]
    assert (await schedule(plane, made[0], worker)).json()["items"][0]["placed"]
    await plane.ask("DELETE", f"/api/lablets/{made[2]['id']}")
    counts = (await plane.ask("GET", "/api/fleet", role=VIEWER)).json()["lablets_by_status"]
    assert counts == {"SCHEDULED": 1, "PENDING_SCHEDULING": 1, "TERMINATED": 1}
    assert await names(plane, "?sort=name") == ["one", "three", "two"]
    assert await names(plane, "?sort=-name") == ["two", "three", "one"]
    assert await names(plane, "?owner=bob&sort=name") == ["three", "two"]
    assert await names(plane, "?status=scheduled") == ["one"]
    assert await names(plane, "?exclude_statuses=TERMINATED,SCHEDULED") == ["two"]
    assert await names(plane, f"?worker={worker['id']}") == ["one"]
    assert await names(plane, "?definition=ospf&sort=name") == ["one", "two"]
    assert await names(plane, "?definition=ospf@2") == ["two"]
    assert await names(plane, "?q=HR") == ["three"]
    first = (await plane.ask("GET", "/api/lablets?sort=name&limit=2", role=VIEWER)).json()
    assert await names(plane, f"?sort=name&limit=2&cursor={first['next_cursor']}") == ["two"]


async def test_a_lablet_goes_through_its_life(plane: TestPlane) -> None:
    await define(plane)
    worker, lablet = await ready_worker(plane), await make(plane)
    path = f"/api/internal/lablets/{lablet['id']}"
    assert (await schedule(plane, lablet, worker)).json()["items"][0]["placed"]
    lablet = (await plane.ask("GET", path, role=CONTROLLER)).json()
    for status, facts in (
        ("INSTANTIATING", {}),
        ("RUNNING", {"lab_id": "lab-1", "endpoints": [{"node": "R1", "addresses": ["10.0.0.1"]}]}),
    ):
        write = {"status": status, "version": lablet["version"], "reason": "seen", **facts}
        response = await plane.ask("POST", f"{path}/status", role=CONTROLLER, json=write)
        assert response.status_code == 200, response.text
        lablet = response.json()
    assert lablet["endpoints"][0]["addresses"] == ["10.0.0.1"]
    illegal = {"status": "SCHEDULED", "version": lablet["version"], "reason": "no"}
    rejected = await plane.ask("POST", f"{path}/status", role=CONTROLLER, json=illegal)
    assert (rejected.status_code, rejected.json()["code"]) == (409, "illegal_transition")
    assert rejected.json()["current"] == {"status": "RUNNING"}
    ended = await plane.ask("POST", f"/api/lablets/{lablet['id']}/terminate", json={"reason": "done"})
    assert (ended.status_code, ended.json()["wanted"], ended.json()["status"]) == (202, False, "RUNNING")
    stale = {"status": "STOPPING", "version": lablet["version"], "reason": "x"}
    conflict = await plane.ask("POST", f"{path}/status", role=CONTROLLER, json=stale)
    assert (conflict.status_code, conflict.json()["code"]) == (409, "version_conflict")
    gone = {"status": "TERMINATED", "version": ended.json()["version"], "reason": "wiped and deleted"}
    released = await plane.ask("POST", f"{path}/release", role=CONTROLLER, json=gone)
    assert (released.status_code, released.json()["status"]) == (200, "TERMINATED")
    taken = (await plane.ask("GET", f"/api/workers/{worker['id']}", role=VIEWER)).json()["allocation"]
    assert (taken["lablets"], taken["cpu_cores"]) == (0, 0)
    history = (await plane.ask("GET", f"/api/lablets/{lablet['id']}/history", role=VIEWER)).json()["items"]
    assert [step["to_status"] for step in history] == [
        "PENDING_SCHEDULING", "SCHEDULED", "INSTANTIATING", "RUNNING", "TERMINATED",
    ]  # fmt: skip
    match = await plane.ask("DELETE", f"/api/lablets/{lablet['id']}", headers={"If-Match": '"1"'})
    assert (match.status_code, match.json()["code"]) == (412, "version_conflict")


async def test_writes_need_a_leader_and_the_newest_one(plane: TestPlane) -> None:
    await define(plane)
    worker, lablet = await ready_worker(plane), await make(plane)
    missing = await schedule(plane, lablet, worker, **{"X-LCM-Controller": ""})
    assert (missing.status_code, missing.json()["code"]) == (400, "leader_headers_missing")
    scheduler = {"X-LCM-Controller": "resource-scheduler", "X-LCM-Leader-Term": "7"}
    assert (await schedule(plane, lablet, worker, **scheduler)).json()["items"][0]["placed"]
    older = await schedule(plane, lablet, worker, **{**scheduler, "X-LCM-Leader-Term": "6"})
    assert (older.status_code, older.json()["code"]) == (409, "stale_leader")
    assert "lcm leadership reset resource-scheduler" in older.json()["detail"]


async def test_a_fleet_on_hold_or_not_yet_swept_places_nothing(plane: TestPlane) -> None:
    await define(plane)
    worker, lablet = await ready_worker(plane), await make(plane)
    await plane.ask("POST", "/api/fleet/hold", json={"reason": "outage"})
    held = await schedule(plane, lablet, worker)
    assert (held.status_code, held.json()["code"]) == (409, "held")
    await plane.ask("POST", "/api/fleet/release")
    newer = {"X-LCM-Leader-Term": "6"}
    await plane.ask("POST", "/api/internal/leadership", role=CONTROLLER, json={"term": 6}, headers=newer)
    early = await schedule(plane, lablet, worker, **newer)
    assert (early.status_code, early.json()["code"]) == (409, "not_possible_now")
    assert "startup sweep" in early.json()["detail"]


async def test_controllers_read_lablets_definitions_templates_and_leaders(plane: TestPlane) -> None:
    await define(plane)
    worker, lablet = await ready_worker(plane), await make(plane)
    await make(plane, "second")
    await schedule(plane, lablet, worker)

    async def read(path: str) -> Any:
        response = await plane.ask("GET", f"/api/internal/{path}", role=CONTROLLER)
        assert response.status_code == 200, response.text
        return response.json()

    assert len((await read("lablets"))["items"]) == 2
    assert [each["name"] for each in (await read("lablets?exclude_statuses=SCHEDULED"))["items"]] == ["second"]
    assert [each["name"] for each in (await read(f"lablets?worker={worker['id']}"))["items"]] == ["first"]
    assert (await read(f"lablets/{lablet['id']}"))["status"] == "SCHEDULED"
    assert (await read("lablet-definitions/ospf@1"))["topology"] == TOPOLOGY
    assert "small" in [each["name"] for each in (await read("worker-templates"))["items"]]
    (leader,) = (await read("leadership"))["items"]
    assert (leader["controller"], leader["term"], leader["startup_sweep_done"]) == ("worker-controller", 5, True)


async def test_the_stream_publishes_lablet_events(plane: TestPlane) -> None:
    await define(plane)
    events = plane.services.stream.subscribe(EventFilter(topics=frozenset({"lablet", "lablet-history"})))
    assert (await anext(events)).startswith(b"retry:")
    lablet = await make(plane)
    stream = b""
    while stream.count(b"event:") < 2:
        stream += await anext(events)
    await events.aclose()
    received = [json.loads(line.removeprefix(b"data: ")) for line in stream.splitlines() if line.startswith(b"data:")]
    assert [received[0].get("to_status"), received[1].get("id")] == ["PENDING_SCHEDULING", lablet["id"]]


async def test_an_explanation_says_what_is_on_the_worker(plane: TestPlane) -> None:
    await define(plane)
    worker = await ready_worker(plane)
    path = f"/api/workers/{worker['id']}/explain"
    assert "lablet" not in (await plane.ask("GET", path, role=VIEWER)).json()["summary"].split("unless")[0]
    await schedule(plane, await make(plane), worker)
    received = (await plane.ask("GET", path, role=VIEWER)).json()
    assert "1 lablet is assigned to it." in received["summary"]
    assert received["next"] == "It keeps running and is not paused while a lablet is assigned to it."


async def test_scale_down_waits_for_lablets_and_a_person_does_not(plane: TestPlane) -> None:
    await define(plane)
    worker, lablet = await ready_worker(plane), await make(plane)
    await schedule(plane, lablet, worker)
    drain = await plane.ask("POST", f"/api/internal/workers/{worker['id']}/drain", role=CONTROLLER)
    assert (drain.status_code, drain.json()["code"]) == (409, "not_possible_now")
    assert "1 lablet is assigned to it" in drain.json()["detail"]
    stopped = await plane.ask("POST", f"/api/workers/{worker['id']}/stop")
    assert (stopped.status_code, stopped.json()["desired_status"]) == (202, "STOPPED")


async def test_offered_node_definitions_are_stored_for_one_instance(plane: TestPlane) -> None:
    worker = await plane.running()
    offers = {"cml_version": "2.9.0", "node_definitions": ["iosv", "alpine"]}
    worker = await plane.report(worker, "RUNNING", **offers)
    assert (worker["cml_version"], worker["node_definitions"]) == ("2.9.0", ["iosv", "alpine"])
    same = await plane.report(worker, "RUNNING", **offers)
    assert same["version"] == worker["version"]
    other = await plane.report(worker, "RUNNING", instance_id="i-other")
    assert (other["cml_version"], other["node_definitions"]) == (None, None)
