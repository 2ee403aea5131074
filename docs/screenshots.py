"""Creates docs/images: every page of a demo fleet, light, dark and on a phone. `make screenshots` runs it."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from lcm.control_plane.fleet.history import SAMPLE_INTERVAL, sample_put
from lcm.control_plane.records.kinds import ALL_KINDS, FLEET_HISTORY, find_all
from lcm.control_plane.store.port import Delete, Sample
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.control_plane.workers.metrics import METRICS_SERIES
from lcm.core import clock
from lcm.model.fleet.history import FleetSample, FleetUse
from lcm.model.fleet.state import FleetCapacity
from lcm.model.worker.metrics import MetricsSample
from tests.support.servers.chromium import launch
from tests.support.servers.lcm_up import TOKEN, LcmUpProcess, ready
from tests.support.servers.processes import wait_until
from tests.support.web.pages import DESKTOP, PHONE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.support.web.pages import Scheme

IMAGES = Path(__file__).with_name("images")
VARIANTS: dict[str, tuple[Scheme, tuple[int, int]]] = {
    "light": ("light", DESKTOP),
    "dark": ("dark", DESKTOP),
    "phone": ("light", PHONE),
}
DETAIL_WORKER = "charlie"  # the worker whose page is shown
TIMEOUT_SECONDS = 180.0

_MINUTES = 60
_SPEED = "30"


def run_demo_fleet(folder: Path) -> dict[str, dict[str, Any]]:
    """Run a fleet until it has something to show: ready, failed, held and stopped workers; returns them."""
    up = LcmUpProcess(folder, "first", "--speed", _SPEED).start()
    try:
        up.until(ready("alpha", "bravo", "charlie", "echo"), "the demo's workers are ready")
        _create_lablets(up)
        doomed = up.ask("GET", "/api/worker-templates/medium") | {
            "name": "preview",
            "description": "The next release, once its image exists",
            "ami_name_pattern": "cml-3.0-*",
        }
        up.ask("PUT", "/api/worker-templates/preview", doomed)
        up.ask("POST", "/api/workers", {"name": "golf", "template_name": "preview"})
        # Disabled: pictures are taken without sending anything to anybody.
        chat = {"name": "on-call", "target": "slack", "url": "https://hooks.example.com/lcm", "enabled": False}
        up.ask("POST", "/api/subscriptions", chat)
        up.ask("POST", "/api/workers", {"name": "hotel", "template_name": "small", "tags": {"course": "security-201"}})
        workers = up.until(ready("hotel"), "one more worker is ready")
        _command(up, workers["bravo"], "hold", "Ada inspects its disks")
        _command(up, workers["hotel"], "stop", "the course is over")
        up.until(lambda now: now["golf"]["status"] == "FAILED", "a worker has failed")
        up.until(lambda now: now["hotel"]["status"] == "STOPPED", "a worker is stopped")
        wait_until(lambda: _drifted(up), "a worker was stopped outside LCM", TIMEOUT_SECONDS)
        return up.workers()
    finally:
        up.process.signal(signal.SIGINT)
        up.process.wait()


def _create_lablets(up: LcmUpProcess) -> None:
    """Create lablets: most run, one does not fit any worker, and one starts tomorrow."""
    topology = "lab: {title: OSPF, version: 0.2.2}\nnodes:\n- {id: n0, label: R1, node_definition: iosv}\n"
    for name, version, cores in (("ospf-basics", "1.0", 0.5), ("ospf-basics", "1.1", 0.5), ("spine-leaf", "7", 500)):
        requirements = {"cpu_cores": cores, "license": False, "ports": ["SSH_PORT"]}
        body = {"name": name, "version": version, "topology": topology, "requirements": requirements}
        up.ask("POST", "/api/lablet-definitions", {**body, "time_to_live_minutes": 240})
    owners = ("ada", "grace", "hedy")
    for owner in owners:
        up.ask("POST", "/api/lablets", {"definition": "ospf-basics", "name": f"ospf-{owner}", "owner": owner})
    tomorrow = (clock.now() + timedelta(hours=20)).isoformat()
    planned = {"name": "ospf-joan", "owner": "joan", "starts_at": tomorrow}
    up.ask("POST", "/api/lablets", {"definition": "ospf-basics", **planned})
    up.ask("POST", "/api/lablets", {"definition": "spine-leaf", "name": "fabric-hedy", "owner": "hedy"})
    expected = {f"ospf-{owner}" for owner in owners}
    wait_until(lambda: expected <= {each["name"] for each in _lablets(up, "RUNNING")}, "lablets run", TIMEOUT_SECONDS)


def _lablets(up: LcmUpProcess, *statuses: str) -> list[dict[str, Any]]:
    query = f"?status={','.join(statuses)}" if statuses else ""
    items: list[dict[str, Any]] = up.ask("GET", f"/api/lablets{query}")["items"]
    return items


def _command(up: LcmUpProcess, worker: dict[str, Any], command: str, reason: str) -> None:
    up.ask("POST", f"/api/workers/{worker['id']}/{command}", {"reason": reason})


def _drifted(up: LcmUpProcess) -> bool:
    return any(worker["drifted_at"] for worker in up.workers().values())


async def add_past_metrics(path: Path, workers: dict[str, dict[str, Any]]) -> None:
    """Add metrics of the past hour and day: the charts of a fleet that is minutes old would be empty."""
    store = SqliteStore(path)
    await store.open(list(ALL_KINDS))
    now = clock.now()
    samples: list[Sample] = []
    for number, worker in enumerate(sorted(workers.values(), key=lambda each: each["name"])):
        existing = await store.read_samples(METRICS_SERIES, worker["id"], since=now - timedelta(hours=2))
        if not existing:
            continue
        for minute in range(_MINUTES, 0, -1):
            at = existing[0].at - timedelta(minutes=minute)
            first = MetricsSample.model_validate_json(existing[0].body)
            sample = _sample(worker, at, number, minute, first)
            samples.append(Sample(worker["id"], at, sample.model_dump_json().encode()))
    await store.append_samples(METRICS_SERIES, samples)
    # The samples that were taken when the first process started have no workers.
    empty = [stored async for stored in find_all(store, FLEET_HISTORY)]
    await store.commit([Delete(FLEET_HISTORY, stored.id, stored.revision) for stored in empty])
    await store.commit([sample_put(SAMPLE_INTERVAL, each) for each in _past_day(now)])
    await store.close()


def _past_day(now: datetime) -> list[FleetSample]:
    """The fleet during the past day: courses run in the daytime."""
    step = SAMPLE_INTERVAL.total_seconds()
    last = now.timestamp() // step * step
    samples = []
    for number in range(288):
        at = datetime.fromtimestamp(last - number * step, UTC)
        busy = max(0.0, math.sin(math.pi * (at.hour + at.minute / 60 - 6) / 14)) if 6 <= at.hour < 20 else 0.0
        ready_workers = 2 + round(5 * busy)
        capacity = FleetCapacity(cpu_cores=2 * ready_workers + 48, memory_gb=4.0 * ready_workers + 192)
        used = FleetUse(cpu_cores=round(0.5 + 40 * busy, 1), memory_gb=round(2 + 150 * busy, 1))
        samples.append(
            FleetSample(
                at=at,
                workers=9,
                ready=ready_workers,
                problems=int(at.hour in (9, 14)),
                cost_per_hour_usd=4.07 + 0.06 * ready_workers,
                capacity=capacity,
                used=used,
            )
        )
    return samples


def _sample(worker: dict[str, Any], at: datetime, number: int, minute: int, first: MetricsSample) -> MetricsSample:
    """The metrics of one minute: the variation of a working day, which approaches the first real sample."""

    def towards(value: float, end: float | None) -> float:
        share = min(1.0, minute / 15)
        return round(min(97.0, max(2.0, share * value + (1 - share) * (end or value))), 1)

    wave = math.sin((minute + 17 * number) / 9) + 0.4 * math.sin((minute + number) * 1.7)
    labs = max(0, round(1.5 + 1.6 * math.sin((minute + 11 * number) / 14)))
    return MetricsSample(
        worker_id=worker["id"],
        instance_id=worker["instance_id"],
        collected_at=at,
        cpu_utilization=towards(12 + 14 * labs + 9 * wave, first.cpu_utilization),
        memory_utilization=towards(14 + 9 * labs + 2 * wave, first.memory_utilization),
        disk_utilization=towards(31 + number + (_MINUTES - minute) / 20, first.disk_utilization),
        labs_count=labs + 2,
        nodes_count=4 * labs + 3,
        running_nodes=4 * labs,
    )


def pages(up: LcmUpProcess, workers: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Name and URL of every page."""
    names = ("lablets", "definitions", "templates", "activity", "notifications", "system", "settings")
    lablet = next(each for each in _lablets(up) if each["name"] == "ospf-ada")
    single = {"worker": f"/workers/{workers[DETAIL_WORKER]['id']}", "lablet": f"/lablets/{lablet['id']}"}
    return {"overview": "/", "fleet": "/fleet", **single, **{name: f"/{name}" for name in names}}


def wait_until_loaded(page: Page) -> None:
    """Wait until everything that the page loads later is there."""
    page.locator("#connection[data-state=live]").wait_for()
    page.wait_for_function("() => !document.querySelector('[aria-busy=true]')")
    if page.locator("#charts").count():
        page.locator("[data-chart=cost] canvas").wait_for()
    if page.locator("#plots").count():
        page.locator("#plot-used canvas").wait_for()
    if page.locator("#system").count():
        # Controllers report periodically: wait for a report after the first complete sweep.
        page.wait_for_function("() => !document.querySelector('#system .controller').textContent.includes('never')")
    if page.locator("tr[data-worker]").count():
        page.locator("svg.spark").first.wait_for(state="attached")


def take_screenshots(browser: Browser, up: LcmUpProcess, workers: dict[str, dict[str, Any]]) -> None:
    """One image of each page in each variant."""
    for variant, (scheme, (width, height)) in VARIANTS.items():
        context = browser.new_context(
            base_url=up.url, color_scheme=scheme, viewport={"width": width, "height": height}, reduced_motion="reduce"
        )
        context.set_default_timeout(TIMEOUT_SECONDS * 1000)
        page = context.new_page()
        page.goto("/sign-in")
        page.screenshot(path=IMAGES / f"sign-in-{variant}.png")
        response = context.request.post("/api/session", data={"token": TOKEN})
        assert response.status == 201, response.text()
        for name, url in pages(up, workers).items():
            page.goto(url)
            wait_until_loaded(page)
            full_page = name in ("overview", "worker", "lablet") and variant != "phone"
            page.screenshot(path=IMAGES / f"{name}-{variant}.png", full_page=full_page)
            if name == "worker":
                page.locator("#act-terminate").click()
                page.locator("#dialog[open]").wait_for()
                page.screenshot(path=IMAGES / f"terminate-{variant}.png")
        context.close()


def main() -> int:
    """Create all images and print how many."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workers = run_demo_fleet(folder)
        asyncio.run(add_past_metrics(folder / "data" / "lcm.db", workers))
        up = LcmUpProcess(folder, "second", "--speed", _SPEED).start()
        try:
            up.until(ready(DETAIL_WORKER), "the worker is ready again")
            with sync_playwright() as playwright:
                browser = launch(playwright)
                take_screenshots(browser, up, workers)
                browser.close()
        finally:
            up.process.end()
    written = sorted(IMAGES.glob("*.png"))
    size = sum(image.stat().st_size for image in written)
    sys.stdout.write(f"{len(written)} images, {size / 1e6:.1f} MB, in {IMAGES}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
