"""The HTTP API of a resource scheduler: health, statistics, trigger and resign."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from lcm.controllers.common.admin_api import make_admin_app
from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.model.access import Role
from tests.support.records.placement import needs
from tests.support.virtual.scheduling import SchedulingScene, start_scheduling_scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INFO = {"service": "resource-scheduler", "version": "1.2.3"}
ADMIN_ROUTES = [("GET", "/admin/stats"), ("POST", "/admin/trigger-reconcile"), ("POST", "/admin/resign-leadership")]


class Surface:
    """Sends requests to the API of one scheduler."""

    def __init__(self, scene: SchedulingScene, name: str) -> None:
        self.scene = scene
        scheduler = scene.schedulers[name]
        door = AdminAuthenticator(scene.controller.access.whoami)
        self.app = make_admin_app(scheduler, door, [scheduler], INFO, scheduler.admin_info(), scene.registries[name])

    async def ask(self, method: str, path: str, role: Role | None = None, **options: Any) -> httpx.Response:
        headers = {} if role is None else {"Authorization": f"Bearer {self.scene.plane.tokens[role]}"}
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://scheduler") as client:
            return await client.request(method, path, headers=headers, **options)


@asynccontextmanager
async def leading() -> AsyncIterator[tuple[SchedulingScene, Surface]]:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(1)
        await scene.define(requirements=needs(cpu=5))
        await scene.start()
        await asyncio.sleep(10)
        yield scene, Surface(scene, "one")


async def test_health_readiness_info_and_metrics() -> None:
    async with leading() as (scene, surface):
        await scene.make(2)
        await asyncio.sleep(10)
        health = (await surface.ask("GET", "/health")).json()
        last = health.pop("last_reconciliation")
        assert last.endswith("Z")
        assert health == {
            "status": "healthy",
            "is_leader": True,
            "instance_id": "one",
            "lablets_pending": 1,
            "lablets_placed": 1,
        }
        assert (await surface.ask("GET", "/ready")).json() == {"ready": True, "reasons": [], "degraded": []}
        assert (await surface.ask("GET", "/info")).json() == INFO
        metrics = (await surface.ask("GET", "/metrics")).text
        assert "lcm_resource_scheduler_placed_count 1.0" in metrics
        assert 'controller="resource-scheduler"' in metrics


async def test_a_standby_counts_nothing() -> None:
    async with leading() as (scene, _):
        await scene.start("two")
        await scene.make(2)
        await asyncio.sleep(10)
        health = (await Surface(scene, "two").ask("GET", "/health")).json()
        assert (health["is_leader"], health["lablets_pending"]) == (False, 0)


@pytest.mark.parametrize(("method", "path"), ADMIN_ROUTES)
async def test_admin_routes_require_the_admin_role(method: str, path: str) -> None:
    async with leading() as (scene, surface):
        scheduler = scene.schedulers["one"]
        for role in (None, Role.VIEWER, Role.OPERATOR, Role.CONTROLLER):
            assert (await surface.ask(method, path, role)).status_code == (401 if role is None else 403)
        assert scheduler.is_leader


async def test_statistics() -> None:
    async with leading() as (scene, surface):
        await scene.make(1)
        await asyncio.sleep(2)
        stats = (await surface.ask("GET", "/admin/stats", Role.ADMIN)).json()
        assert stats["placed_count"] == 1
        assert stats["pending_lablet_count"] == 0
        assert stats["leadership"]["is_leader"] is True
        assert stats["standing_still"] is None
        await scene.verified(term=9, done=False)
        await scene.make(1)
        await asyncio.sleep(2)
        stats = (await surface.ask("GET", "/admin/stats", Role.ADMIN)).json()
        assert "verified all workers" in stats["standing_still"]


async def test_a_cycle_can_be_triggered_for_one_lablet_or_all() -> None:
    async with leading() as (scene, surface):
        [lablet] = await scene.make(1)
        await asyncio.sleep(2)
        rounds = scene.schedulers["one"].counters.rounds_count
        for body, named in (({"lablet_id": lablet.id}, lablet.id), (None, "all")):
            response = await surface.ask("POST", "/admin/trigger-reconcile", Role.ADMIN, json=body)
            assert (response.status_code, response.json()) == (202, {"triggered": named})
            await asyncio.sleep(0.5)
        assert scene.schedulers["one"].counters.rounds_count == rounds + 2


@pytest.mark.parametrize(
    ("content", "status", "word"),
    [
        (b'{"lablet_id": "l-unknown"}', 404, "there is no lablet l-unknown"),
        (b'{"worker_id": "w-1"}', 422, "the only field is lablet_id"),
        (b'{"lablet_id": 7}', 422, "lablet_id: must be an id"),
        (b"[]", 422, "must be an object"),
        (b"{", 422, "must be JSON"),
        (b"x" * 5000, 413, "at most 4096 bytes"),
    ],
)
async def test_invalid_trigger_requests_are_rejected(content: bytes, status: int, word: str) -> None:
    async with leading() as (_, surface):
        response = await surface.ask("POST", "/admin/trigger-reconcile", Role.ADMIN, content=content)
        assert response.status_code == status
        assert word in response.json()["detail"]


async def test_leadership_is_handed_over() -> None:
    async with leading() as (scene, surface):
        await scene.start("two")
        await asyncio.sleep(5)
        response = await surface.ask("POST", "/admin/resign-leadership", Role.ADMIN)
        assert response.status_code == 202
        await asyncio.sleep(10)
        assert scene.schedulers["two"].is_leader
        refused = await surface.ask("POST", "/admin/trigger-reconcile", Role.ADMIN)
        assert refused.status_code == 409
        assert refused.json()["current"] == {"leader": "two"}
