"""Health, readiness, info and metrics of a process."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter

from lcm.core.hosting import HostedService
from lcm.http.server import make_process_app, process_routes


class Service(HostedService):
    def __init__(self) -> None:
        super().__init__("toy")
        self.reasons: list[str] = []
        self.degraded: list[str] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def readiness(self) -> list[str]:
        return self.reasons

    def degradation(self) -> list[str]:
        return self.degraded

    def health(self) -> dict[str, object]:
        return {"is_leader": True}


def client(service: Service, registry: CollectorRegistry) -> httpx.AsyncClient:
    app = make_process_app([service], {"service": "toy", "version": "1.2.3"}, registry)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://toy")


async def test_ready_says_why_not(registry: CollectorRegistry) -> None:
    service = Service()
    async with client(service, registry) as http:
        response = await http.get("/ready")
        assert (response.status_code, response.json()) == (200, {"ready": True, "reasons": [], "degraded": []})
        service.reasons = ["toy: etcd 127.0.0.1:2379: connection refused"]
        response = await http.get("/ready")
        body = {"ready": False, "reasons": service.reasons, "degraded": []}
        assert (response.status_code, response.json()) == (503, body)


async def test_a_degraded_process_is_ready_and_says_what_is_degraded(registry: CollectorRegistry) -> None:
    service = Service()
    async with client(service, registry) as http:
        assert "\nlcm_degraded 0.0\n" in (await http.get("/metrics")).text
        service.degraded = ["toy: etcd 127.0.0.1:2379: connection refused"]
        response = await http.get("/ready")
        body = {"ready": True, "reasons": [], "degraded": service.degraded}
        assert (response.status_code, response.json()) == (200, body)
        assert "\nlcm_degraded 1.0\n" in (await http.get("/metrics")).text


async def test_health_info_and_metrics(registry: CollectorRegistry) -> None:
    """discovery.md, controllers.md#admin-routes: routes without a token."""
    Counter("things", "Things", registry=registry).inc(3)
    async with client(Service(), registry) as http:
        assert (await http.get("/health")).json() == {"status": "healthy", "is_leader": True}
        assert (await http.get("/info")).json() == {"service": "toy", "version": "1.2.3"}
        metrics = await http.get("/metrics")
        assert "things_total 3.0" in metrics.text
        assert metrics.headers["content-type"].startswith("text/plain")


async def test_whether_it_is_ready_is_a_metric_too(registry: CollectorRegistry) -> None:
    service, other = Service(), Service()
    async with client(service, registry) as http, client(other, registry) as neighbour:
        assert "\nlcm_ready 1.0\n" in (await http.get("/metrics")).text
        service.reasons = ["toy: the disk is full"]
        assert "\nlcm_ready 0.0\n" in (await http.get("/metrics")).text
        assert "\nlcm_ready 1.0\n" in (await neighbour.get("/metrics")).text


async def test_scrapes_at_once_are_one() -> None:
    """Nobody needs a token for them, and one of 5,000 workers takes more than a second."""
    scrapes = 0

    async def before() -> None:
        nonlocal scrapes
        scrapes += 1
        await asyncio.sleep(1)

    app = FastAPI()
    app.include_router(process_routes([Service()], {"service": "toy"}, CollectorRegistry(), before_scrape=before))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://toy") as http:
        answers = await asyncio.gather(*(http.get("/metrics") for _ in range(10)))
        assert ({each.status_code for each in answers}, scrapes) == ({200}, 1)
        await http.get("/metrics")
        assert scrapes == 2, "a later one reads again"
