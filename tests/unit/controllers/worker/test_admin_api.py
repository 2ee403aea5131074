"""The admin API of a worker controller: health, readiness with reasons, metrics, and the routes for admins."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.controllers.worker.admin_api import make_worker_admin_app
from lcm.core.hosting import HostedService
from lcm.model.access import Role
from tests.support.virtual.fleet import Fleet, a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COUNTERS = (
    "provisioned_count",
    "started_count",
    "stopped_count",
    "terminated_count",
    "metrics_collected_count",
    "idle_detection_count",
    "auto_pause_count",
    "license_registered_count",
    "license_deregistered_count",
    "scale_down_drain_count",
    "running_worker_count",
    "orphans_terminated_count",
)
HEALTH = ["status", "is_leader", "instance_id", "last_reconciliation", "workers_managed", "workers_with_drift"]
INFO = {"service": "worker-controller", "version": "1.2.3"}
ADMIN_ROUTES = [("GET", "/admin/stats"), ("POST", "/admin/trigger-reconcile"), ("POST", "/admin/resign-leadership")]


class Grumpy(HostedService):
    """Not ready, with a reason."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def readiness(self) -> list[str]:
        return ["control plane: gone fishing"]


class Surface:
    """Requests to the admin API of one controller."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet = fleet
        self.wire = fleet.wires[name]
        control = fleet.connect(Role.CONTROLLER, self.wire)
        reconciler = fleet.controllers[name]
        self.app = make_worker_admin_app(
            reconciler,
            AdminAuthenticator(control.access.whoami),
            [reconciler],
            INFO,
            fleet.registries[name],
        )

    async def ask(self, method: str, path: str, role: Role | None = None, **options: Any) -> httpx.Response:
        headers = {} if role is None else {"Authorization": f"Bearer {self.fleet.plane.tokens[role]}"}
        return await self.send(method, path, headers, **options)

    async def send(self, method: str, path: str, headers: dict[str, str], **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://controller") as client:
            return await client.request(method, path, headers=headers, **options)


@asynccontextmanager
async def leading() -> AsyncIterator[tuple[Fleet, Surface]]:
    async with a_fleet() as fleet:
        await fleet.start("one")
        await fleet.until(lambda: fleet.controllers["one"].is_leader, "it leads")
        yield fleet, Surface(fleet, "one")


async def test_health_has_exactly_these_keys() -> None:
    async with leading() as (fleet, surface):
        await fleet.running()
        response = await surface.ask("GET", "/health")
        assert response.status_code == 200
        health = response.json()
        assert list(health) == HEALTH
        last = health.pop("last_reconciliation")
        assert last.endswith("Z")
        assert health == {
            "status": "healthy",
            "is_leader": True,
            "instance_id": "one",
            "workers_managed": 1,
            "workers_with_drift": 0,
        }


async def test_a_standby_manages_no_worker_and_is_ready() -> None:
    async with leading() as (fleet, _):
        await fleet.start("two")
        second = Surface(fleet, "two")
        await fleet.running()
        health = (await second.ask("GET", "/health")).json()
        assert list(health) == HEALTH
        assert (health["is_leader"], health["workers_managed"], health["last_reconciliation"]) == (False, 0, None)
        ready = await second.ask("GET", "/ready")
        assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": [], "degraded": []})


async def test_not_ready_says_why() -> None:
    async with a_fleet() as fleet:
        await fleet.start("one")
        reconciler = fleet.controllers["one"]
        app = make_worker_admin_app(
            reconciler, AdminAuthenticator(fleet.people.access.whoami), [reconciler, Grumpy("x")], INFO
        )
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://controller") as client:
            response = await client.get("/ready")
        assert response.status_code == 503
        reasons = response.json()["reasons"]
        assert reasons == ["worker-controller: has not reached coordination yet", "control plane: gone fishing"]


async def test_the_metrics_of_the_seeds_are_exported() -> None:
    async with leading() as (fleet, surface):
        worker = await fleet.running()
        await asyncio.sleep(90)  # a list, and a round of metrics
        text = (await surface.ask("GET", "/metrics")).text
        for counter in COUNTERS:
            assert f"\nlcm_worker_controller_{counter} " in text
        assert f'worker_reconciliation_duration_seconds_count{{worker_id="{worker.id}"}}' in text
        assert f'worker_ec2_state{{state="running",worker_id="{worker.id}"}} 1.0' in text
        assert f'worker_cml_license_status{{tier="CML_Enterprise",worker_id="{worker.id}"}} 0.0' in text
        assert "# TYPE worker_drift_detected_total counter" in text
        assert 'reconciliation_reconcile_total{controller="worker-controller",result="success"}' in text


async def test_statistics() -> None:
    async with leading() as (fleet, surface):
        await fleet.running()
        await asyncio.sleep(90)  # a list, and a round of metrics
        response = await surface.ask("GET", "/admin/stats", Role.ADMIN)
        assert response.status_code == 200
        stats = response.json()
        assert [name for name in stats if name.endswith("_count")] == list(COUNTERS)
        assert (stats["provisioned_count"], stats["running_worker_count"]) == (1, 1)
        leadership = stats["leadership"]
        assert (leadership["is_leader"], leadership["leader"], leadership["watching"]) == (True, "one", True)
        assert leadership["term"] > 0
        assert set(stats["queue"]) == {"depth", "busy", "delayed"}
        region = stats["regions"]["eu-west-1"]
        assert (region["last_sweep"]["complete"], region["last_sweep"]["calls"]) == (True, 1)
        assert region["breaker"] == {"open": False, "reason": "", "only_a_person_closes": False}
        assert stats["discovery"]["leaked_instances"] == 0
        assert stats["metrics"]["rounds"] >= 1


async def test_statistics_of_a_standby() -> None:
    async with leading() as (fleet, _):
        await fleet.start("two")
        await fleet.until(lambda: fleet.controllers["two"].known_leader == "one", "it knows who leads")
        stats = (await Surface(fleet, "two").ask("GET", "/admin/stats", Role.ADMIN)).json()
        assert stats["leadership"] == {
            "is_leader": False,
            "term": 0,
            "instance_id": "two",
            "leader": "one",
            "watching": False,
        }
        assert stats["discovery"] is None
        assert stats["regions"]["eu-west-1"]["last_sweep"] is None


@pytest.mark.parametrize(("method", "path"), ADMIN_ROUTES)
async def test_only_admins(method: str, path: str) -> None:
    async with leading() as (fleet, surface):
        unknown = await surface.ask(method, path)
        assert (unknown.status_code, unknown.headers["www-authenticate"]) == (401, "Bearer")
        assert unknown.headers["content-type"] == "application/problem+json"
        problem = unknown.json()
        assert (problem["code"], problem["status"], problem["title"]) == ("unauthenticated", 401, "Not signed in")
        assert problem["instance"] == path
        for role in (Role.VIEWER, Role.OPERATOR, Role.CONTROLLER):
            refused = await surface.ask(method, path, role)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            assert "needs the role admin" in refused.json()["detail"]
        assert fleet.controllers["one"].is_leader


async def test_an_unauthenticated_body_is_not_read_beyond_the_limit() -> None:
    async with leading() as (_, surface):
        read = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal read
            while True:
                read += 1000
                assert read < 10**9, "the body was read"
                yield bytes(1000)
                await asyncio.sleep(0.1)

        response = await surface.send("POST", "/admin/trigger-reconcile", {}, content=endless())
        assert response.status_code == 413
        assert read < 20_000


async def test_a_control_plane_that_is_away_is_503() -> None:
    async with leading() as (fleet, surface):
        surface.wire.dead = True
        response = await surface.ask("GET", "/admin/stats", Role.ADMIN)
        assert (response.status_code, response.json()["code"]) == (503, "unavailable")
        assert "control plane cannot verify the token" in response.json()["detail"]
        assert response.headers["retry-after"]
        assert fleet.plane.tokens[Role.ADMIN] not in response.text


@pytest.mark.parametrize("body", [{}, {"json": {}}, {"json": {"worker_id": None}}, {"json": {"worker_id": "one"}}])
async def test_trigger_one_or_all(body: dict[str, Any]) -> None:
    async with leading() as (fleet, surface):
        worker = await fleet.running()
        expected = "all"
        if body.get("json", {}).get("worker_id"):
            body, expected = {"json": {"worker_id": worker.id}}, worker.id
        reconciler = fleet.controllers["one"]
        await fleet.until(lambda: not len(reconciler.queue) and not reconciler.queue.busy, "it is calm")
        before = reconciler.last_reconciliation
        response = await surface.ask("POST", "/admin/trigger-reconcile", Role.ADMIN, **body)
        assert (response.status_code, response.json()) == (202, {"triggered": expected})
        await fleet.until(lambda: reconciler.last_reconciliation != before, "a pass", within=1.0)


async def test_trigger_of_an_unknown_worker() -> None:
    async with leading() as (_, surface):
        response = await surface.ask("POST", "/admin/trigger-reconcile", Role.ADMIN, json={"worker_id": "worker-none"})
        assert (response.status_code, response.json()["code"]) == (404, "not_found")
        assert "worker-none" in response.json()["detail"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 422),
        (b"[]", 422),
        (b'{"worker": "x"}', 422),
        (b'{"worker_id": "../fleet"}', 422),
        (b'{"worker_id": 7}', 422),
        (b" " * 5000, 413),
    ],
)
async def test_trigger_with_a_body_that_is_wrong(content: bytes, status: int) -> None:
    async with leading() as (_, surface):
        response = await surface.ask("POST", "/admin/trigger-reconcile", Role.ADMIN, content=content)
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"


async def test_a_standby_names_the_leader() -> None:
    async with leading() as (fleet, _):
        await fleet.start("two")
        await fleet.until(lambda: fleet.controllers["two"].known_leader == "one", "it knows who leads")
        second = Surface(fleet, "two")
        for path in ("/admin/trigger-reconcile", "/admin/resign-leadership"):
            response = await second.ask("POST", path, Role.ADMIN)
            assert (response.status_code, response.json()["code"]) == (409, "not_possible_now")
            assert response.json()["detail"] == "two is not the leader; send the request to the leader, one"
            assert response.json()["current"] == {"leader": "one"}


async def test_resigning_hands_over() -> None:
    async with leading() as (fleet, surface):
        await fleet.start("two")
        term = fleet.controllers["one"].term
        response = await surface.ask("POST", "/admin/resign-leadership", Role.ADMIN)
        assert (response.status_code, response.json()) == (202, {"resigned": "one", "term": term})
        await fleet.until(lambda: fleet.controllers["two"].is_leader, "the other leads", within=3.0)
        assert fleet.controllers["two"].term > term
        again = await surface.ask("POST", "/admin/resign-leadership", Role.ADMIN)
        assert again.status_code == 409


async def test_errors_of_the_framework_are_problems_too() -> None:
    async with leading() as (_, surface):
        nothing = await surface.ask("GET", "/nothing")
        assert (nothing.status_code, nothing.json()["code"]) == (404, "not_found")
        wrong = await surface.ask("GET", "/admin/resign-leadership", Role.ADMIN)
        assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
        assert wrong.headers["allow"] == "POST"


async def test_an_internal_error_is_reported_without_details(monkeypatch: pytest.MonkeyPatch) -> None:
    async with leading() as (fleet, surface):

        def fail() -> dict[str, int]:
            raise RuntimeError("secret detail")

        monkeypatch.setattr(fleet.controllers["one"], "stats", fail)
        response = await surface.ask("GET", "/admin/stats", Role.ADMIN)
        assert (response.status_code, response.json()["code"]) == (500, "internal")
        assert "secret detail" not in response.text
