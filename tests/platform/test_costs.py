"""What the fleet costs, read by every way while it changes: never two numbers. The whole platform, in virtual time."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from prometheus_client import CollectorRegistry

from lcm.cli.commands.fleet import show_summary
from lcm.cli.live.board import Board
from lcm.cli.live.screen import headline
from lcm.cli.live.watch import read_all
from lcm.cli.output.printer import Printer
from lcm.cli.output.worker_views import worker_columns
from lcm.cloud.simulated.faults import ExternalAction, ExternalChange
from lcm.cloud.types import INSTALLATION_TAG, WORKER_TAG
from lcm.control_plane.fleet.system import FleetCostCollector
from lcm.core import clock
from lcm.core.controller.config import ReconciliationConfig
from lcm.http.exposition import render_metrics
from lcm.model.access import Role
from lcm.model.worker.cost import MICRO, HourlyCost, fleet_cost
from tests.support.virtual.fleet import Fleet, a_fleet
from tests.support.virtual.running_workers import launched_by_hand
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    from lcm.cli.runtime.session import Session
    from lcm.model.worker.record import Worker
    from lcm.model.worker.status import WorkerStatus

REGION = "eu-west-1"
STEPS, STEP, SOON = 14, 3_090, 11


async def test_the_cost_is_the_same_number_by_every_way_while_the_fleet_changes() -> None:
    """worker-lifecycle.md#cost: leaked instances too, while they are known."""
    async with a_fleet(report_interval=600.0, config=ReconciliationConfig(interval_seconds=60.0)) as fleet:
        await fleet.start()
        visitor = await signed_in(fleet.plane, Role.VIEWER)
        seen: set[HourlyCost] = set()
        statuses: set[WorkerStatus] = set()
        leaked: list[int] = []
        plan = _events(fleet)
        for _ in range(STEPS):
            await next(plan, _nothing)()
            for seconds in (SOON, STEP - SOON):
                await asyncio.sleep(seconds)
                cost, workers, leaks = await _read_by_every_way(fleet, visitor)
                seen.add(cost)
                if leaked[-1:] != [leaks]:
                    leaked.append(leaks)
                statuses |= {worker.status for worker in workers}
        assert len(seen) > 5
        assert len((await fleet.people.fleet.history("24h")).items) >= STEPS
        assert any(cost.unknown for cost in seen)
        assert leaked == [0, 1, 0]
        assert {"RUNNING", "STOPPED", "FAILED", "TERMINATED"} <= {status.value for status in statuses}


async def _nothing() -> None:
    pass


def _events(fleet: Fleet) -> Any:
    """What happens, one step at a time."""

    async def create() -> None:
        for name, template in (("one", "small"), ("two", "metal"), ("three", "medium")):
            await fleet.plane.create(name, template_name=template)

    async def leave_an_instance_behind() -> None:
        launched_by_hand(fleet, "foreign", {"cml-managed": "true"}, instance_type="c7a.large")

    async def never_start() -> None:
        region = fleet.world.regions[REGION]
        region.timing = replace(region.timing, pending=(1e6, 1e6))
        await fleet.plane.create("never", template_name="large")

    async def leak() -> None:
        installation = await fleet.plane.ask("GET", "/api/internal/installation", role=Role.CONTROLLER)
        tags = {WORKER_TAG: "w-gone", INSTALLATION_TAG: installation.json()["installation_id"]}
        leaked.append(launched_by_hand(fleet, "left", tags).id)

    async def end_the_leak() -> None:
        fleet.world.inject_fault(REGION, ExternalChange(ExternalAction.TERMINATE, leaked[0]))

    leaked: list[str] = []

    async def act(name: str, action: str) -> None:
        [worker] = [each async for each in fleet.people.workers.list() if each.name == name]
        response = await fleet.plane.ask("POST", f"/api/workers/{worker.id}/{action}", json={})
        assert response.status_code == 202, response.text

    yield create
    yield _nothing
    yield leave_an_instance_behind
    yield lambda: act("two", "stop")
    yield _nothing
    yield never_start
    yield leak
    yield _nothing
    yield end_the_leak
    yield _nothing
    yield lambda: act("three", "terminate")
    yield lambda: act("never", "terminate")


async def _read_by_every_way(fleet: Fleet, visitor: WebVisitor) -> tuple[HourlyCost, list[Worker], int]:
    """Read the cost by all ways while nothing changes, and compare it with workers and leaked instances."""
    while True:
        before, leaks = await _workers(fleet), await _leaks(fleet)
        summary = await fleet.people.fleet.summary()
        answers = {
            "GET /api/fleet": str(summary.cost),
            "worker JSON": str(_sum(await fleet.plane.ask("GET", "/api/workers?limit=500"), leaks)),
            "lcm fleet": _lcm_fleet(summary),
            "lcm watch": await _lcm_watch(fleet),
            "overview": _on_page(await visitor.page("/")),
            "list of workers": _on_page(await visitor.page("/fleet")),
            **await _newest_of_history(fleet),
            "Prometheus": await _scraped(fleet),
        }
        after = await _workers(fleet)
        versions, versions_after = ([worker.version for worker in workers] for workers in (before, after))
        if (versions, leaks) == (versions_after, await _leaks(fleet)):
            break
    cost = fleet_cost(before, leaks)
    assert set(answers.values()) == {str(cost)}, answers
    pages = (await visitor.page("/"), await visitor.page("/fleet"), _printed_summary(summary))
    assert ["leaked" in page.lower() for page in pages] == [bool(leaks)] * 3
    cells = {column.title: column.cell for column in worker_columns(clock.now())}
    for worker in before:
        usd = worker.current_cost_per_hour_usd
        assert cells["$/H"](worker) == ("unknown" if usd is None else str(HourlyCost(round(usd * MICRO)))[1:-9])
    return cost, before, leaks


async def _workers(fleet: Fleet) -> list[Worker]:
    return [worker async for worker in fleet.people.workers.list(page_size=500)]


async def _leaks(fleet: Fleet) -> int:
    """How many leaked instances the controllers report."""
    return (await fleet.people.fleet.system()).leaks_total


def _sum(response: Any, leaks: int) -> HourlyCost:
    costs = [worker["current_cost_per_hour_usd"] for worker in response.json()["items"]]
    return HourlyCost(sum(round(cost * MICRO) for cost in costs if cost is not None), costs.count(None) + leaks)


async def _newest_of_history(fleet: Fleet) -> dict[str, str]:
    """The sample that is taken now; none if this interval has one, from before the last change."""
    if not await fleet.plane.services.fleet_history.record():
        return {}
    sample = (await fleet.people.fleet.history("24h")).items[-1]
    unknown = sample.workers_without_price + sample.leaked_instances
    return {"GET /api/fleet/history": str(HourlyCost(round(sample.cost_per_hour_usd * MICRO), unknown))}


def _lcm_fleet(summary: Any) -> str:
    [line] = [line for line in _printed_summary(summary).splitlines() if line.startswith("cost")]
    return line.removeprefix("cost").strip().removesuffix(" now")


def _printed_summary(summary: Any) -> str:
    printer = Printer()
    with printer.console.capture() as page:
        show_summary(cast("Session", SimpleNamespace(printer=printer)), summary)
    return page.get()


async def _lcm_watch(fleet: Fleet) -> str:
    board = Board()
    await read_all(cast("Session", SimpleNamespace(client=fleet.people)), board)
    return headline("", board).partition(" lablets, ")[2].rstrip()


def _on_page(page: str) -> str:
    shown = re.search(r"<dt>Cost now</dt><dd>(.*?)<small>/h</small>(.*?)</dd>", page)
    assert shown is not None
    unknown = re.search(r">(plus .*?)</", shown[2])
    return f"{shown[1]} per hour{f', {unknown[1]}' if unknown else ''}"


async def _scraped(fleet: Fleet) -> str:
    registry = CollectorRegistry()
    collector = FleetCostCollector(fleet.plane.services.fleet.summary)
    registry.register(collector)
    await collector.refresh()
    lines = (await render_metrics(registry)).decode().splitlines()
    values = dict(line.split() for line in lines if not line.startswith("#"))
    unknown = float(values["lcm_fleet_workers_without_price"]) + float(values["lcm_fleet_leaked_instances"])
    return str(HourlyCost(round(float(values["lcm_fleet_cost_per_hour_usd"]) * MICRO), int(unknown)))
