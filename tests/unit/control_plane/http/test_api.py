"""The API from a client's view: roles, problems, versions, idempotency keys, pages and secrets."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.records.idempotency import delete_expired_responses
from lcm.control_plane.workers.metrics import MetricsService
from lcm.core import clock
from lcm.model.access import Role
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from lcm.control_plane.store.port import Kind, StoredDocument

NEW = {"name": "a", "template_name": "small"}
VIEWER, OPERATOR, ADMIN, CONTROLLER = Role.VIEWER, Role.OPERATOR, Role.ADMIN, Role.CONTROLLER


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


# Every route and the lowest role that may use it. Each role of people includes the roles below it.
NEEDED: dict[tuple[str, str], Role | None] = {
    ("GET", "/api/workers"): VIEWER,
    ("POST", "/api/workers"): OPERATOR,
    ("GET", "/api/workers/{worker_id}"): VIEWER,
    ("PATCH", "/api/workers/{worker_id}"): OPERATOR,
    ("DELETE", "/api/workers/{worker_id}"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/start"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/stop"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/terminate"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/drain"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/cancel-drain"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/retry"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/trust"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/adopt"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/hold"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/release"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/license"): OPERATOR,
    ("GET", "/api/workers/{worker_id}/history"): VIEWER,
    ("GET", "/api/workers/{worker_id}/explain"): VIEWER,
    ("GET", "/api/workers/{worker_id}/metrics"): VIEWER,
    ("GET", "/api/worker-templates"): VIEWER,
    ("GET", "/api/worker-templates/{name}"): VIEWER,
    ("PUT", "/api/worker-templates/{name}"): ADMIN,
    ("POST", "/api/worker-templates/{name}/enable"): ADMIN,
    ("POST", "/api/worker-templates/{name}/disable"): ADMIN,
    ("GET", "/api/lablets"): VIEWER,
    ("POST", "/api/lablets"): OPERATOR,
    ("POST", "/api/lablets/preview"): VIEWER,
    ("POST", "/api/settings/preview"): VIEWER,
    ("POST", "/api/workers/preview"): VIEWER,
    ("POST", "/api/workers/{worker_id}/preview"): VIEWER,
    ("POST", "/api/lablets/{lablet_id}/preview"): VIEWER,
    ("POST", "/api/fleet/release/preview"): VIEWER,
    ("POST", "/api/fleet/hold/preview"): VIEWER,
    ("POST", "/api/fleet/breaker/reset/preview"): VIEWER,
    ("POST", "/api/leadership/{controller}/reset/preview"): VIEWER,
    ("POST", "/api/workers/{worker_id}/adopt/preview"): VIEWER,
    ("POST", "/api/workers/{worker_id}/license/preview"): OPERATOR,
    ("POST", "/api/lablet-definitions/preview"): VIEWER,
    ("POST", "/api/lablet-definitions/{name}/{version}/preview"): VIEWER,
    ("POST", "/api/worker-templates/{name}/preview"): VIEWER,
    ("POST", "/api/tokens/preview"): ADMIN,
    ("POST", "/api/tokens/{token_id}/preview"): ADMIN,
    ("POST", "/api/secrets/rotate/preview"): ADMIN,
    ("GET", "/api/lablets/{lablet_id}"): VIEWER,
    ("DELETE", "/api/lablets/{lablet_id}"): OPERATOR,
    ("POST", "/api/lablets/{lablet_id}/terminate"): OPERATOR,
    ("POST", "/api/lablets/{lablet_id}/extend"): OPERATOR,
    ("POST", "/api/lablets/{lablet_id}/reset"): OPERATOR,
    ("GET", "/api/lablets/{lablet_id}/seat-links"): OPERATOR,
    ("POST", "/api/lablets/{lablet_id}/seat-links"): OPERATOR,
    ("DELETE", "/api/lablets/{lablet_id}/seat-links/{link_id}"): OPERATOR,
    ("GET", "/api/lablets/{lablet_id}/access"): VIEWER,
    ("GET", "/api/lablets/{lablet_id}/history"): VIEWER,
    ("GET", "/api/lablet-definitions"): VIEWER,
    ("POST", "/api/lablet-definitions"): OPERATOR,
    ("GET", "/api/lablet-definitions/{name}"): VIEWER,
    ("GET", "/api/lablet-definitions/{name}/{version}"): VIEWER,
    ("POST", "/api/lablet-definitions/{name}/{version}/enable"): ADMIN,
    ("POST", "/api/lablet-definitions/{name}/{version}/assign"): ADMIN,
    ("POST", "/api/lablets/{lablet_id}/assign"): ADMIN,
    ("GET", "/api/teams"): VIEWER,
    ("POST", "/api/teams"): ADMIN,
    ("GET", "/api/teams/{team}"): VIEWER,
    ("PATCH", "/api/teams/{team}"): ADMIN,
    ("DELETE", "/api/teams/{team}"): ADMIN,
    ("GET", "/api/worker-readiness"): VIEWER,
    ("POST", "/api/lablet-definitions/{name}/{version}/disable"): ADMIN,
    ("GET", "/api/fleet"): VIEWER,
    ("GET", "/api/fleet/history"): VIEWER,
    ("GET", "/api/plan"): VIEWER,
    ("POST", "/api/fleet/hold"): OPERATOR,
    ("POST", "/api/fleet/release"): OPERATOR,
    ("POST", "/api/fleet/breaker/reset"): ADMIN,
    ("POST", "/api/leadership/{controller}/reset"): ADMIN,
    ("GET", "/api/audit"): VIEWER,
    ("GET", "/api/fleet/overnight"): VIEWER,
    ("GET", "/api/system"): VIEWER,
    ("GET", "/api/settings"): VIEWER,
    ("PATCH", "/api/settings"): ADMIN,
    ("GET", "/api/events/stream"): VIEWER,
    ("GET", "/api/whoami"): None,
    ("POST", "/api/session"): None,
    ("DELETE", "/api/session"): None,
    ("POST", "/api/session/links"): VIEWER,
    ("POST", "/api/session/command-line"): None,
    ("POST", "/api/session/command-line/poll"): None,
    ("POST", "/api/session/command-line/redeem"): None,
    ("GET", "/api/bookings"): VIEWER,
    ("POST", "/api/bookings"): OPERATOR,
    ("POST", "/api/bookings/preview"): OPERATOR,
    ("GET", "/api/bookings/{booking_id}"): VIEWER,
    ("DELETE", "/api/bookings/{booking_id}"): OPERATOR,
    ("POST", "/api/bookings/{booking_id}/cancel"): OPERATOR,
    ("POST", "/api/bookings/{booking_id}/extend"): OPERATOR,
    ("POST", "/api/bookings/{booking_id}/extend/preview"): OPERATOR,
    ("PATCH", "/api/bookings/{booking_id}/occurrences/{number}"): OPERATOR,
    ("POST", "/api/bookings/{booking_id}/occurrences/{number}/preview"): OPERATOR,
    ("POST", "/api/bookings/{booking_id}/occurrences/{number}/seat-links"): OPERATOR,
    ("DELETE", "/api/bookings/{booking_id}/occurrences/{number}/seat-links"): OPERATOR,
    ("GET", "/api/subscriptions"): VIEWER,
    ("POST", "/api/subscriptions"): ADMIN,
    ("GET", "/api/subscriptions/{subscription_id}"): VIEWER,
    ("PATCH", "/api/subscriptions/{subscription_id}"): ADMIN,
    ("DELETE", "/api/subscriptions/{subscription_id}"): ADMIN,
    ("POST", "/api/subscriptions/{subscription_id}/test"): ADMIN,
    ("POST", "/api/subscriptions/{subscription_id}/rotate-secret"): ADMIN,
    ("GET", "/api/subscriptions/{subscription_id}/dead-letters"): VIEWER,
    ("POST", "/api/subscriptions/{subscription_id}/dead-letters/{letter_id}/send"): ADMIN,
    ("GET", "/api/schedules"): VIEWER,
    ("POST", "/api/schedules"): OPERATOR,
    ("POST", "/api/schedules/preview"): VIEWER,
    ("GET", "/api/schedules/{schedule_id}"): VIEWER,
    ("GET", "/api/schedules/{schedule_id}/preview"): VIEWER,
    ("PATCH", "/api/schedules/{schedule_id}"): OPERATOR,
    ("DELETE", "/api/schedules/{schedule_id}"): OPERATOR,
    ("GET", "/api/tokens"): ADMIN,
    ("POST", "/api/tokens"): ADMIN,
    ("DELETE", "/api/tokens/{token_id}"): ADMIN,
    ("GET", "/api/sessions"): ADMIN,
    ("DELETE", "/api/sessions/{session_id}"): ADMIN,
    ("POST", "/api/secrets/rotate"): ADMIN,
    ("GET", "/api/internal/workers"): CONTROLLER,
    ("GET", "/api/internal/workers/{worker_id}"): CONTROLLER,
    ("GET", "/api/internal/workers/{worker_id}/context"): CONTROLLER,
    ("POST", "/api/internal/leadership"): CONTROLLER,
    ("POST", "/api/internal/workers/import"): CONTROLLER,
    ("POST", "/api/internal/workers/scale-up"): CONTROLLER,
    ("POST", "/api/internal/bookings/advance"): CONTROLLER,
    ("GET", "/api/internal/bookings/capacity"): CONTROLLER,
    ("POST", "/api/internal/workers/metrics"): CONTROLLER,
    ("POST", "/api/internal/workers/decisions"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/status"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/launch"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/detect-idle"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/drain"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/maintenance"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/schedule"): CONTROLLER,
    ("GET", "/api/internal/schedules"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/license-status"): CONTROLLER,
    ("GET", "/api/internal/workers/{worker_id}/license-token"): CONTROLLER,
    ("GET", "/api/internal/workers/{worker_id}/cml-credentials"): CONTROLLER,
    ("GET", "/api/internal/cml-accounts"): CONTROLLER,
    ("POST", "/api/internal/audit"): CONTROLLER,
    ("POST", "/api/internal/controllers/{name}/report"): CONTROLLER,
    ("GET", "/api/internal/fleet"): CONTROLLER,
    ("POST", "/api/internal/fleet/breaker"): CONTROLLER,
    ("GET", "/api/internal/worker-templates/{name}"): CONTROLLER,
    ("GET", "/api/internal/settings"): CONTROLLER,
    ("GET", "/api/internal/installation"): CONTROLLER,
    ("GET", "/api/internal/leadership"): CONTROLLER,
    ("GET", "/api/internal/worker-templates"): CONTROLLER,
    ("GET", "/api/internal/lablets"): CONTROLLER,
    ("GET", "/api/internal/lablets/{lablet_id}"): CONTROLLER,
    ("GET", "/api/internal/lablet-definitions/{definition_id}"): CONTROLLER,
    ("POST", "/api/internal/lablets/schedule"): CONTROLLER,
    ("POST", "/api/internal/lablets/{lablet_id}/status"): CONTROLLER,
    ("POST", "/api/internal/lablets/{lablet_id}/release"): CONTROLLER,
}
PEOPLE = (VIEWER, OPERATOR, ADMIN)


def may(role: Role, needed: Role | None) -> bool:
    if needed is None or role is needed:
        return True
    return role in PEOPLE and needed in PEOPLE and PEOPLE.index(role) > PEOPLE.index(needed)


async def test_every_route_is_in_the_matrix(plane: TestPlane) -> None:
    document = plane.app.openapi()
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert routes == set(NEEDED)


@pytest.mark.parametrize("role", [*Role, None])
async def test_each_role_may_do_what_the_matrix_says_and_nothing_else(plane: TestPlane, role: Role | None) -> None:
    for (method, path), needed in NEEDED.items():
        filled = path.replace("{worker_id}", "w-none").replace("{name}", "nope").replace("{token_id}", "t-none")
        filled = filled.replace("{controller}", "nobody").replace("{lablet_id}", "l-none").replace("{version}", "1")
        filled = filled.replace("{definition_id}", "none@1").replace("{subscription_id}", "sub-none")
        filled = filled.replace("{letter_id}", "sub-none.ev-none")
        if path == "/api/events/stream" and role is not None and may(role, needed):
            continue  # it has no end; its events are tested with the stream itself
        response = await plane.ask(method, filled, role=role)
        if path in ("/api/session", "/api/session/command-line/poll", "/api/session/command-line/redeem"):
            assert response.status_code == (422 if method == "POST" else 401 if role is None else 204)
        elif path == "/api/session/command-line":
            assert response.status_code == 404  # signing in requires no role, but an identity provider
        elif role is None:
            assert (response.status_code, response.json()["code"]) == (401, "unauthenticated"), (method, path)
        elif may(role, needed):
            assert response.status_code not in (401, 403), (method, path, response.text)
        else:
            assert (response.status_code, response.json()["code"]) == (403, "forbidden"), (method, path)


async def test_a_worker_goes_through_its_life(plane: TestPlane) -> None:
    worker = await plane.running()
    assert (worker["status"], worker["desired_status"], worker["ready"]) == ("RUNNING", "RUNNING", False)
    stopped = (await plane.ask("POST", f"/api/workers/{worker['id']}/stop", json={"reason": "evening"})).json()
    assert (stopped["desired_status"], stopped["pause_reason"]) == ("STOPPED", "evening")
    worker = await plane.report(stopped, "STOPPING")
    worker = await plane.report(worker, "STOPPED")
    assert worker["public_ip"] is None
    history = (await plane.ask("GET", f"/api/workers/{worker['id']}/history", role=VIEWER)).json()["items"]
    assert [step["to_status"] for step in history] == [
        "PENDING", "PROVISIONING", "STARTING", "RUNNING", "STOPPING", "STOPPED",
    ]  # fmt: skip
    audit = (await plane.ask("GET", f"/api/audit?subject={worker['id']}&newest_first=false", role=VIEWER)).json()
    assert [line["action"] for line in audit["items"]][:3] == ["created", "provisioned", "status_reported"]
    assert {line["actor"]["name"] for line in audit["items"]} == {"operator", "worker-controller"}


async def test_a_command_repeated_is_202_and_changes_nothing(plane: TestPlane) -> None:
    worker = await plane.create()
    for _ in range(3):
        response = await plane.ask("POST", f"/api/workers/{worker['id']}/stop")
        assert (response.status_code, response.json()["version"]) == (202, 2)


async def test_a_start_or_stop_counts_until_a_time(plane: TestPlane) -> None:
    """calendar.md#overrides"""
    worker = await plane.running()
    path, until = f"/api/workers/{worker['id']}", (clock.now() + timedelta(hours=2)).isoformat().replace("+00:00", "Z")
    preview = await plane.ask("POST", f"{path}/preview", json={"action": "stop", "until": until})
    assert "Policies will not change that until" in preview.json()["effect"]
    stopped = await plane.ask("POST", f"{path}/stop", json={"reason": "audit", "until": until})
    assert (stopped.status_code, stopped.json()["override"]) == (
        202,
        {
            "desired": "STOPPED",
            "until": until,
            "by": "operator",
            "since": stopped.json()["updated_at"],
            "reason": "audit",
        },
    )
    explained = (await plane.ask("GET", f"{path}/explain")).json()["summary"]
    assert "Policies do not change it: operator requested STOPPED until" in explained
    started = (await plane.ask("POST", f"{path}/start")).json()
    assert (started["desired_status"], started["override"]) == ("RUNNING", None)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "text"),
    [
        ("POST", "/api/workers/{id}/start", {"until": "2020-01-01T00:00:00Z"}, 422, "invalid", "until: 2020-01-01"),
        ("POST", "/api/workers/{id}/start", {"until": "18:00"}, 422, "invalid", "until"),
        ("POST", "/api/workers", {**NEW, "template_name": "nope"}, 404, "not_found", "no template nope"),
        ("POST", "/api/workers", {**NEW, "aws_region": "eu-north-1"}, 422, "invalid", "eu-west-1"),
        ("POST", "/api/workers", {**NEW, "status": "RUNNING"}, 422, "invalid", "status"),
        ("POST", "/api/workers", {**NEW, "name": "alpha"}, 409, "name_taken", "choose another"),
        ("POST", "/api/workers", {**NEW, "name": 7}, 422, "invalid", "name"),
        ("POST", "/api/workers", [1], 422, "invalid", "body"),
        ("GET", "/api/workers?status=asleep", None, 422, "invalid", "allowed values: PENDING"),
        ("GET", "/api/workers?sort=colour", None, 422, "invalid", "sort"),
        ("GET", "/api/workers?limit=0", None, 422, "invalid", "limit"),
        ("GET", "/api/workers?cursor=garbage", None, 422, "invalid", "cursor"),
        ("GET", "/api/workers/w-none", None, 404, "not_found", "w-none"),
        ("POST", "/api/workers/w-none/stop", None, 404, "not_found", "w-none"),
        ("POST", "/api/workers/{id}/cancel-drain", None, 409, "not_possible_now", "no drain"),
        ("POST", "/api/workers/{id}/retry", None, 409, "not_possible_now", "FAILED"),
        ("POST", "/api/workers/{id}/trust", None, 409, "not_possible_now", "no certificate to trust"),
        ("POST", "/api/workers/{id}/hold", {}, 422, "invalid", "reason"),
        ("POST", "/api/workers/{id}/license", {"operation": "register"}, 409, "not_possible_now", "token"),
        ("PATCH", "/api/workers/{id}", {"tags": {"aws:x": "y"}}, 422, "invalid", "reserved"),
        ("GET", "/nowhere", None, 404, "not_found", "/nowhere"),
    ],
)  # fmt: skip
async def test_invalid_input_is_rejected_and_changes_nothing(
    plane: TestPlane, method: str, path: str, body: Any, status: int, code: str, text: str
) -> None:
    worker = await plane.create()
    before = (await plane.ask("GET", "/api/workers")).content
    response = await plane.ask(method, path.replace("{id}", worker["id"]), json=body)
    problem = response.json()
    assert (response.status_code, problem["code"], problem["status"]) == (status, code, status), response.text
    assert text in problem["detail"]
    assert response.headers["content-type"] == "application/problem+json"
    assert (await plane.ask("GET", "/api/workers")).content == before


async def test_405_lists_every_method_of_the_path(plane: TestPlane) -> None:
    response = await plane.ask("PUT", "/api/workers/w-1")
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET, PATCH")


async def test_if_match_lets_one_of_two_win(plane: TestPlane) -> None:
    worker = await plane.create()
    path, headers = f"/api/workers/{worker['id']}", {"If-Match": '"1"'}
    requests = [plane.ask("PATCH", path, json={"tags": {"n": str(n)}}, headers=headers) for n in range(2)]
    responses = await asyncio.gather(*requests)
    assert sorted(response.status_code for response in responses) == [200, 412]
    loser = next(response for response in responses if response.status_code == 412)
    assert (loser.json()["code"], loser.json()["current"]) == ("version_conflict", {"version": 2})
    assert (await plane.ask("GET", path)).headers["etag"] == '"2"'


async def test_an_idempotency_key_returns_the_same_response_again(plane: TestPlane) -> None:
    body, headers = {"name": "alpha", "template_name": "small"}, {"Idempotency-Key": "k1"}
    first = await plane.ask("POST", "/api/workers", json=body, headers=headers)
    again = await plane.ask("POST", "/api/workers", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.content == again.content
    other = await plane.ask("POST", "/api/workers", json={**body, "name": "beta"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")
    assert len((await plane.ask("GET", "/api/workers")).json()["items"]) == 1


async def test_one_key_used_many_times_at_once_makes_one_worker(plane: TestPlane) -> None:
    body, headers = {"name": "alpha", "template_name": "small"}, {"Idempotency-Key": "k1"}
    responses = await asyncio.gather(
        *(plane.ask("POST", "/api/workers", json=body, headers=headers) for _ in range(8)),
    )
    assert {response.status_code for response in responses} == {201}
    assert len({response.content for response in responses}) == 1


async def test_pages_are_stable_while_workers_come_and_change(plane: TestPlane) -> None:
    names = [f"n{number:03}" for number in range(25)]
    for name in names:
        await plane.create(name)
    seen: list[str] = []
    cursor = ""
    while True:
        path = f"/api/workers?sort=name&limit=7&status=pending,running{cursor}"
        page = (await plane.ask("GET", path, role=VIEWER)).json()
        seen += [worker["name"] for worker in page["items"]]
        await plane.create(f"a{len(seen)}")  # before everything seen so far
        await plane.ask("PATCH", f"/api/workers/{page['items'][0]['id']}", json={"tags": {"x": str(len(seen))}})
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == names


async def test_filters(plane: TestPlane) -> None:
    await plane.create("alpha")
    await plane.create("beta", aws_region="us-east-1", template_name="large")
    for query, expected in (
        ("aws_region=us-east-1", ["beta"]),
        ("template=small", ["alpha"]),
        ("template=small,large&aws_region=eu-west-1", ["alpha"]),
        ("q=ALP", ["alpha"]),
        ("exclude_statuses=PENDING", []),
        ("status=Pending&sort=-name", ["beta", "alpha"]),
    ):
        items = (await plane.ask("GET", f"/api/workers?{query}")).json()["items"]
        assert [worker["name"] for worker in items] == expected, query


async def test_leader_headers_are_required_and_must_not_be_stale(plane: TestPlane) -> None:
    worker = await plane.create()
    path = f"/api/internal/workers/{worker['id']}/status"
    body = {"status": "PROVISIONING", "version": 1, "reason": "launched", "instance_id": "i-1"}
    missing = await plane.ask("POST", path, role=CONTROLLER, json=body, headers={"X-LCM-Leader-Term": ""})
    assert (missing.status_code, missing.json()["code"]) == (400, "leader_headers_missing")
    announce = {"term": 9}
    announced = await plane.ask(
        "POST", "/api/internal/leadership", role=CONTROLLER, json=announce, headers={"X-LCM-Leader-Term": "9"}
    )
    assert announced.json()["term"] == 9
    stale = await plane.ask("POST", path, role=CONTROLLER, json=body)
    assert (stale.status_code, stale.json()["code"], stale.json()["current"]) == (409, "stale_leader", {"term": 9})
    fresh = await plane.ask("POST", path, role=CONTROLLER, json=body, headers={"X-LCM-Leader-Term": "9"})
    assert fresh.json()["status"] == "PROVISIONING"
    illegal = {**body, "status": "DRAINING", "version": 2}
    rejected = await plane.ask("POST", path, role=CONTROLLER, json=illegal, headers={"X-LCM-Leader-Term": "9"})
    assert (rejected.status_code, rejected.json()["code"]) == (409, "illegal_transition")


async def test_secrets_are_for_the_controller_alone(plane: TestPlane) -> None:
    worker = await plane.create(license_token="CANARYTOKEN", cml_username="admin", cml_password="CANARYPASSWORD")
    internal = f"/api/internal/workers/{worker['id']}"
    token = await plane.ask("GET", f"{internal}/license-token", role=CONTROLLER)
    assert token.json() == {"token": "CANARYTOKEN"}
    credentials = await plane.ask("GET", f"{internal}/cml-credentials", role=CONTROLLER)
    assert credentials.json() == {"username": "admin", "password": "CANARYPASSWORD"}
    shown = [
        (await plane.ask("GET", path, role=ADMIN)).text
        for path in ("/api/workers", f"/api/workers/{worker['id']}", "/api/audit", "/api/fleet", "/api/plan")
    ]
    shown.append((await plane.ask("GET", internal, role=CONTROLLER)).text)
    wrong = await plane.ask(
        "POST", "/api/workers", json={"name": "b", "template_name": "small", "license_token": "CANARY TOKEN"}
    )
    assert wrong.status_code == 422
    assert not any("CANARY" in text for text in [*shown, wrong.text])
    gone = await plane.ask("POST", f"/api/workers/{worker['id']}/license", json={"operation": "deregister"})
    assert gone.json()["has_license_token"] is False
    assert (await plane.ask("GET", f"{internal}/license-token", role=CONTROLLER)).status_code == 404


async def test_a_change_of_secrets_alone_is_audited_without_them(plane: TestPlane) -> None:
    worker = await plane.create()
    await plane.ask("PATCH", f"/api/workers/{worker['id']}", json={"cml_username": "u", "cml_password": "CANARY"})
    lines = (await plane.ask("GET", f"/api/audit?subject={worker['id']}")).json()["items"]
    assert (lines[0]["action"], lines[0]["details"]) == ("patched", {"fields": ["cml_password", "cml_username"]})
    assert "CANARY" not in str(lines)


async def test_the_fleet_summary_counts_workers_and_cost(plane: TestPlane) -> None:
    await plane.running("alpha")
    await plane.create("beta", template_name="metal", aws_region="us-east-1")
    fleet = (await plane.ask("GET", "/api/fleet", role=VIEWER)).json()
    disks = 50 * 0.08 / 730  # a small worker has 50 GB
    assert (fleet["workers"], fleet["ready"], fleet["cost_per_hour_usd"]) == (2, 0, round(0.0208 + disks, 6))
    assert fleet["workers_without_price"] == 0
    assert fleet["by_status"] == {"RUNNING": 1, "PENDING": 1}
    assert fleet["by_region"] == {"eu-west-1": {"RUNNING": 1}, "us-east-1": {"PENDING": 1}}
    assert fleet["leaders"][0]["term"] == 5


async def test_savings_of_stopped_workers_add_up(plane: TestPlane) -> None:
    """One hour stopped, one hour running, then two hours stopped, at 3.9641 USD per hour."""
    worker = await plane.running("beta", template_name="metal")

    async def stopped() -> dict[str, Any]:
        desired = (await plane.ask("POST", f"/api/workers/{worker['id']}/stop")).json()
        return await plane.report(await plane.report(desired, "STOPPING"), "STOPPED")

    async def saved() -> tuple[float, float]:
        fleet = (await plane.ask("GET", "/api/fleet")).json()
        return fleet["saved_per_hour_usd"], fleet["saved_total_usd"]

    assert await saved() == (0.0, 0.0)
    await stopped()
    await asyncio.sleep(3600)
    assert await saved() == (3.9641, 3.96)
    desired = (await plane.ask("POST", f"/api/workers/{worker['id']}/start")).json()
    await plane.report(await plane.report(desired, "STARTING"), "RUNNING")
    await asyncio.sleep(3600)
    assert await saved() == (0.0, 3.96)
    await stopped()
    await asyncio.sleep(2 * 3600)
    assert await saved() == (3.9641, 11.89)


async def test_idempotent_responses_expire_after_a_day(plane: TestPlane) -> None:
    body, headers = {"name": "alpha", "template_name": "small"}, {"Idempotency-Key": "k1"}
    await plane.ask("POST", "/api/workers", json=body, headers=headers)
    store = plane.services.context.store
    assert await delete_expired_responses(store, clock.now() + timedelta(hours=23)) == 0
    assert await delete_expired_responses(store, clock.now() + timedelta(hours=25)) == 1
    again = await plane.ask("POST", "/api/workers", json=body, headers=headers)
    assert (again.status_code, again.json()["code"]) == (409, "name_taken")


async def test_the_fleet_is_held_and_released(plane: TestPlane) -> None:
    held = await plane.ask("POST", "/api/fleet/hold", json={"reason": "exam"})
    assert (held.status_code, held.json()["hold"]["by"]) == (202, "operator")
    scale = {"template": "small", "reason": "need"}
    rejected = await plane.ask("POST", "/api/internal/workers/scale-up", role=CONTROLLER, json=scale)
    assert (rejected.status_code, rejected.json()["code"]) == (409, "held")
    actions = [line["action"] for line in (await plane.ask("GET", "/api/audit")).json()["items"]]
    assert actions[0] == "scale_up_rejected"
    await plane.ask("POST", "/api/fleet/release")
    accepted = await plane.ask("POST", "/api/internal/workers/scale-up", role=CONTROLLER, json=scale)
    assert (accepted.status_code, accepted.json()["origin"]) == (202, "scale-up")


@pytest.mark.parametrize("affected", ["", "x" * 600, "w-1\n"])
async def test_a_breaker_is_only_reported_for_ids_of_workers(plane: TestPlane, affected: str) -> None:
    """Others would be stored, and the preview of the reset could never read them."""
    report = {"region": "eu-west-1", "open": True, "reason": "many are missing", "affected": ["w-1", affected]}
    response = await plane.ask("POST", "/api/internal/fleet/breaker", role=CONTROLLER, json=report)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "affected.1"
    assert (await plane.ask("POST", "/api/fleet/breaker/reset/preview", role=ADMIN)).status_code == 200


async def test_a_breaker_that_only_a_person_closes_stays_open(plane: TestPlane) -> None:
    report = {"region": "eu-west-1", "open": True, "reason": "another account", "only_a_person_closes": True}
    await plane.ask("POST", "/api/internal/fleet/breaker", role=CONTROLLER, json=report)
    closing = {**report, "open": False}
    state = await plane.ask("POST", "/api/internal/fleet/breaker", role=CONTROLLER, json=closing)
    assert state.json()["breakers"]["eu-west-1"]["open"] is True
    assert (await plane.ask("GET", "/api/fleet")).json()["breakers"][0]["reason"] == "another account"
    await plane.ask("POST", "/api/fleet/breaker/reset", role=ADMIN)
    assert (await plane.ask("GET", "/api/fleet")).json()["breakers"] == []


async def test_an_instance_is_imported_once(plane: TestPlane) -> None:
    body = {"instance_id": "i-77", "aws_region": "eu-west-1", "status": "RUNNING", "public_ip": "192.0.2.9"}
    requests = [plane.ask("POST", "/api/internal/workers/import", role=CONTROLLER, json=body) for _ in range(5)]
    responses = await asyncio.gather(*requests)
    assert sorted(response.status_code for response in responses) == [200, 200, 200, 200, 201]
    assert len({response.json()["id"] for response in responses}) == 1
    worker = responses[0].json()
    assert (worker["origin"], worker["desired_status"], worker["idle_detection_enabled"]) == (
        "imported",
        "RUNNING",
        False,
    )


async def test_tokens_are_made_listed_and_revoked(plane: TestPlane) -> None:
    made = (await plane.ask("POST", "/api/tokens", role=ADMIN, json={"name": "ci", "role": "viewer"})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    who = (await plane.ask("GET", "/api/whoami", role=None, headers=headers)).json()
    assert (who["name"], who["role"]) == ("ci", "viewer")
    listed = await plane.ask("GET", "/api/tokens", role=ADMIN)
    assert made["token"] not in listed.text
    await plane.ask("DELETE", f"/api/tokens/{made['info']['id']}", role=ADMIN)
    rejected = await plane.ask("GET", "/api/whoami", role=None, headers=headers)
    assert (rejected.status_code, rejected.headers["www-authenticate"]) == (401, "Bearer")
    past = {"name": "old", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}
    assert (await plane.ask("POST", "/api/tokens", role=ADMIN, json=past)).status_code == 422


async def test_a_browser_session_needs_a_csrf_token_for_changes(plane: TestPlane) -> None:
    token = {"token": plane.tokens[OPERATOR]}
    signed_in = await plane.ask("POST", "/api/session", role=None, json=token)
    cookie = signed_in.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    headers = {"Cookie": cookie.split(";")[0]}
    assert (await plane.ask("GET", "/api/whoami", role=None, headers=headers)).json()["name"] == "operator"
    body = {"name": "alpha", "template_name": "small"}
    forged = await plane.ask("POST", "/api/workers", role=None, headers=headers, json=body)
    assert (forged.status_code, forged.json()["code"]) == (403, "csrf")
    proven = {**headers, "X-LCM-CSRF": signed_in.json()["csrf"]}
    assert (await plane.ask("POST", "/api/workers", role=None, headers=proven, json=body)).status_code == 201
    assert (await plane.ask("DELETE", "/api/session", role=None, headers=proven)).status_code == 204
    assert (await plane.ask("GET", "/api/whoami", role=None, headers=headers)).status_code == 401


async def test_an_admin_lists_sessions_and_ends_one(plane: TestPlane) -> None:
    signed_in = await plane.ask("POST", "/api/session", role=None, json={"token": plane.tokens[OPERATOR]})
    cookie = {"Cookie": signed_in.headers["set-cookie"].partition(";")[0]}
    assert (await plane.ask("GET", "/api/whoami", role=None, headers=cookie)).status_code == 200
    [listed] = (await plane.ask("GET", "/api/sessions", role=ADMIN)).json()["items"]
    assert (listed["name"], listed["role"]) == ("operator", "operator")
    ended = await plane.ask("DELETE", f"/api/sessions/{listed['id']}", role=ADMIN)
    assert ended.json() == listed
    assert (await plane.ask("GET", "/api/whoami", role=None, headers=cookie)).status_code == 401
    assert (await plane.ask("GET", "/api/sessions", role=ADMIN)).json()["items"] == []
    assert (await plane.ask("DELETE", f"/api/sessions/{listed['id']}", role=ADMIN)).status_code == 404
    entries = (await plane.ask("GET", "/api/audit", role=ADMIN)).json()["items"]
    [entry] = [each for each in entries if each["action"] == "session_ended"]
    assert (entry["subject"], entry["actor"]["name"]) == ("operator", "admin")


async def test_guessing_tokens_is_slowed_down(plane: TestPlane) -> None:
    wrong = {"Authorization": "Bearer lcm_t-guess_0000"}
    responses = [await plane.ask("GET", "/api/whoami", role=None, headers=wrong) for _ in range(40)]
    assert responses[0].status_code == 401
    assert responses[-1].status_code == 429
    assert int(responses[-1].headers["retry-after"]) > 0


async def test_a_reset_accepts_the_low_terms_of_a_replaced_etcd(plane: TestPlane) -> None:
    term = {"X-LCM-Leader-Term": "700"}
    await plane.ask("POST", "/api/internal/leadership", role=CONTROLLER, json={"term": 700}, headers=term)
    assert (await plane.ask("POST", "/api/internal/leadership", role=CONTROLLER, json={"term": 5})).status_code == 409
    await plane.ask("POST", "/api/leadership/worker-controller/reset", role=ADMIN)
    assert (await plane.ask("POST", "/api/internal/leadership", role=CONTROLLER, json={"term": 5})).status_code == 200


@pytest.mark.parametrize("reset", [False, True])
async def test_term_0_is_no_term_of_a_leader(plane: TestPlane, reset: bool) -> None:
    """A reset stores 0 as the newest term. No election gives that term, so no write may carry it."""
    worker = await plane.create()
    if reset:
        await plane.ask("POST", "/api/internal/leadership", role=CONTROLLER, json={"term": 5})
        await plane.ask("POST", "/api/leadership/worker-controller/reset", role=ADMIN)
    path = f"/api/internal/workers/{worker['id']}/status"
    body = {"status": "PROVISIONING", "version": worker["version"], "reason": "launched", "instance_id": "i-1"}
    refused = await plane.ask("POST", path, role=CONTROLLER, json=body, headers={"X-LCM-Leader-Term": "0"})
    assert (refused.status_code, refused.json()["code"]) == (400, "leader_headers_missing")
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()["status"] == "PENDING"


async def test_settings_are_patched_and_read_by_controllers(plane: TestPlane) -> None:
    patched = await plane.ask("PATCH", "/api/settings", role=ADMIN, json={"scaling": {"min_workers": 3}})
    assert patched.json()["scaling"]["min_workers"] == 3
    read = await plane.ask("GET", "/api/internal/settings", role=CONTROLLER)
    assert read.json() == patched.json()


async def test_templates_are_replaced_enabled_and_disabled(plane: TestPlane) -> None:
    tiny = {
        "name": "tiny",
        "instance_type": "t3.nano",
        "capacity": {"cpu_cores": 1, "memory_gb": 0.5, "storage_gb": 8, "max_nodes": 1},
        "cost_per_hour_usd": 0.005,
    }
    assert (await plane.ask("PUT", "/api/worker-templates/tiny", role=ADMIN, json=tiny)).status_code == 200
    assert (await plane.ask("PUT", "/api/worker-templates/other", role=ADMIN, json=tiny)).status_code == 422
    await plane.ask("POST", "/api/worker-templates/tiny/disable", role=ADMIN)
    rejected = await plane.ask("POST", "/api/workers", json={"name": "a", "template_name": "tiny"})
    assert (rejected.status_code, rejected.json()["code"]) == (409, "not_possible_now")
    await plane.ask("POST", "/api/worker-templates/tiny/enable", role=ADMIN)
    assert (await plane.ask("POST", "/api/workers", json={"name": "a", "template_name": "tiny"})).status_code == 201


async def test_metrics_are_kept_beside_the_record(plane: TestPlane) -> None:
    worker = await plane.running()
    path = f"/api/workers/{worker['id']}/metrics"

    def sample(seconds: int, **changes: Any) -> dict[str, Any]:
        at = (clock.now() + timedelta(seconds=seconds)).isoformat()
        labels = {"worker_id": worker["id"], "instance_id": "i-alpha", "collected_at": at, "cpu_utilization": 12.5}
        return {**labels, **changes}

    batch = [
        sample(0),
        sample(0),
        sample(-60),
        sample(1, instance_id="i-former"),
        sample(2, worker_id="w-none"),
        sample(3),
    ]
    response = await plane.ask("POST", "/api/internal/workers/metrics", role=CONTROLLER, json={"items": batch})
    assert response.json() == {"kept": 2, "dropped": 4}
    items = (await plane.ask("GET", path, role=VIEWER)).json()["items"]
    assert [item["cpu_utilization"] for item in items] == [12.5, 12.5]
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()["version"] == worker["version"]
    wrong = {"items": [sample(4, cpu_utilization=101)]}
    rejected = await plane.ask("POST", "/api/internal/workers/metrics", role=CONTROLLER, json=wrong)
    assert (rejected.status_code, rejected.json()["errors"][0]["field"]) == (422, "items.0.cpu_utilization")


async def test_a_batch_of_metrics_reads_only_the_workers_it_names(
    plane: TestPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await plane.running()
    await plane.create(name="other")
    store, read = plane.services.context.store, list[str]()
    get_many = store.get_many

    async def recorded(kind: Kind, document_ids: Sequence[str]) -> Mapping[str, StoredDocument]:
        documents = await get_many(kind, document_ids)
        read.extend(documents)
        return documents

    monkeypatch.setattr(store, "get_many", recorded)
    monkeypatch.setattr(store, "find", None)
    ids = [f"w-none-{number}" for number in range(250)]
    ids.insert(240, worker["id"])
    at = clock.now().isoformat()
    items = [{"worker_id": one, "instance_id": "i-alpha", "collected_at": at} for one in ids]
    response = await plane.ask("POST", "/api/internal/workers/metrics", role=CONTROLLER, json={"items": items})
    assert response.json() == {"kept": 1, "dropped": 250}
    assert read == [worker["id"]]


async def test_old_metrics_are_downsampled_and_then_dropped(plane: TestPlane) -> None:
    worker = await plane.running()
    times = [clock.now() - timedelta(minutes=minute) for minute in reversed(range(60 * 5))]
    labels = {"worker_id": worker["id"], "instance_id": "i-alpha"}
    batch = {"items": [{**labels, "collected_at": at.isoformat()} for at in times]}
    await plane.ask("POST", "/api/internal/workers/metrics", role=CONTROLLER, json=batch)
    since = (clock.now() - timedelta(hours=100)).isoformat().replace("+", "%2B")
    path = f"/api/workers/{worker['id']}/metrics?since={since}"
    await plane.services.metrics.downsample()
    assert 120 + 3 * 12 - 2 <= len((await plane.ask("GET", path)).json()["items"]) <= 120 + 3 * 12 + 2
    await MetricsService(plane.services.context, retention_hours=1.0).downsample()
    assert 59 <= len((await plane.ask("GET", path)).json()["items"]) <= 61


async def test_explain_and_plan_show_the_last_decision(plane: TestPlane) -> None:
    worker = await plane.create()
    decision = {
        "rule": "pending.launch",
        "reason": "desired status is RUNNING and no instance exists",
        "actions": ["launch t3.small"],
        "decided_at": "2026-01-17T10:30:00Z",
    }
    await plane.report(worker, "PENDING", decision=decision)
    explained = (await plane.ask("GET", f"/api/workers/{worker['id']}/explain", role=VIEWER)).json()
    assert explained["decision"]["rule"] == "pending.launch"
    assert explained["last_transition"]["actor"]["name"] == "operator"
    assert explained["summary"].startswith("alpha has been PENDING for a moment (operator: created).")
    assert explained["summary"].endswith(explained["next"])
    await plane.ask("POST", "/api/fleet/hold", json={"reason": "exam"})
    held = (await plane.ask("GET", f"/api/workers/{worker['id']}/explain", role=VIEWER)).json()
    assert "The whole fleet was put on hold by operator" in held["summary"]
    assert held["next"].startswith(
        "No changes are made while the hold is active; after that, an instance will be launched"
    )
    plan = (await plane.ask("GET", "/api/plan", role=VIEWER)).json()
    assert [item["decision"]["actions"] for item in plan["items"]] == [["launch t3.small"]]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/workers?template=%00", "template"),
        ("/api/workers?aws_region=%00", "aws_region"),
        ("/api/lablets?definition=%00", "definition"),
        ("/api/lablets?owner=%00", "owner"),
        ("/api/lablets?worker=a,%00", "worker"),
    ],
)
async def test_a_filter_that_nothing_can_match_is_rejected_by_name(plane: TestPlane, path: str, field: str) -> None:
    response = await plane.ask("GET", path, role=Role.VIEWER)
    assert response.status_code == 422, response.text
    assert response.json()["detail"] == f"{field}: must not contain control characters"
