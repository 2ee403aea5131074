"""The overview: problems first, regions and statuses, costs, and the data of its charts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.fleet.history import FleetHistoryRecorder
from lcm.control_plane.web.overview_page import chart_data, region_heatmap
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.fleet.history import FleetHistory, FleetSample
from lcm.model.fleet.state import FleetSummary
from tests.support.web.lablets import LabletWorld
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    from datetime import datetime

    from tests.support.virtual.control_plane import TestPlane

EVIL = "<script>alert(1)</script>"


async def test_an_empty_fleet_says_so(plane: TestPlane) -> None:
    page = await (await signed_in(plane, Role.VIEWER)).page("/")
    for text in (
        "No problems: all workers and lablets are as they should be.",
        "There are no workers yet.",
        "No worker has a known cost",
    ):
        assert text in page
    assert 'aria-current="page">Overview' in page
    assert "No workers yet" in page
    assert "Create a worker" not in page
    assert "Create a worker" in await (await signed_in(plane, Role.OPERATOR)).page("/")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/?status=FAILED&q=a%26b", "/fleet?status=FAILED&q=a%26b"),
        ("/?view=problems", "/fleet?view=problems"),
        ("/?sort=-name&page=2&region=eu-west-1,us-east-1", "/fleet?sort=-name&page=2&region=eu-west-1,us-east-1"),
        ("/?template=small&utm=1", "/fleet?template=small&utm=1"),
        ("/?after=x", "/fleet?after=x"),
        ("/overview", "/"),
    ],
)
async def test_old_addresses_lead_to_the_present_ones(plane: TestPlane, old: str, new: str) -> None:
    response = await (await signed_in(plane, Role.VIEWER)).ask("GET", old)
    assert (response.status_code, response.headers["location"]) == (307, new)


async def test_other_parameters_do_not_lead_away_and_strangers_sign_in_first(plane: TestPlane) -> None:
    assert 'aria-current="page">Overview' in await (await signed_in(plane, Role.VIEWER)).page("/?from=mail")
    response = await WebVisitor(plane).ask("GET", "/?q=alpha")
    assert (response.status_code, response.headers["location"]) == (303, "/sign-in?next=%2F%3Fq%3Dalpha")


async def test_a_list_that_was_open_during_the_upgrade_goes_on(plane: TestPlane) -> None:
    """Its table refreshes itself from the address that the list had."""
    await plane.create("alpha")
    visitor = await signed_in(plane, Role.VIEWER)
    headers = {"HX-Request": "true", "HX-Current-URL": "http://lcm.test/"}
    for old, new in (("/", "/fleet"), ("/?q=al", "/fleet?q=al")):
        response = await visitor.ask("GET", old, headers=headers)
        assert (response.status_code, response.headers["location"]) == (307, new)
        assert 'id="fleet-table"' in await visitor.part(new)


async def test_problems_come_first_then_regions_costs_and_savings(plane: TestPlane) -> None:
    world = await LabletWorld(plane).open()
    await world.define()
    worker = await world.worker("alpha")
    failed = await plane.report(await plane.create("bravo"), "FAILED", reason=f"no image {EVIL}")
    await world.report(await world.make("first"), "FAILED", reason="no template can hold it")
    visitor = await signed_in(plane, Role.VIEWER)
    page = await visitor.page("/")
    assert EVIL not in page
    order = [page.index(text) for text in (">bravo<", ">first<", "Workers by region and status", "Highest costs now")]
    assert order == sorted(order)
    assert "no image" in page
    assert f'href="/workers/{failed["id"]}"' in page
    assert f'href="/fleet?region={worker["aws_region"]}&amp;status=RUNNING"' in page
    assert "/workers/" + worker["id"] in page.partition("Highest costs now")[2]
    assert "No workers yet" not in page
    part = await visitor.part("/overview")
    assert "<html" not in part
    assert 'data-refresh="/overview"' in part


async def test_the_charts_have_the_history(plane: TestPlane) -> None:
    await plane.running("alpha")
    visitor = await signed_in(plane, Role.VIEWER)
    empty = (await visitor.ask("GET", "/overview/history")).json()
    assert empty["times"] == []
    recorder = FleetHistoryRecorder(plane.services.fleet_history)
    await recorder.start()
    await asyncio.sleep(3600)
    await recorder.stop()
    data = (await visitor.ask("GET", "/overview/history?range=24h")).json()
    assert len(data["times"]) >= 12
    assert data["values"]["workers"] == [1] * len(data["times"])
    assert set(map(len, data["values"].values())) == {len(data["times"])}
    assert len((await visitor.ask("GET", "/overview/history?range=30d")).json()["times"]) <= 3
    assert (await visitor.ask("GET", "/overview/history?range=99y")).status_code == 422


def test_a_time_without_samples_is_a_gap() -> None:
    now = clock.now()
    base = now.timestamp() // 300 * 300

    def at(minutes: int) -> datetime:
        return type(now).fromtimestamp(base + 60 * minutes, now.tzinfo)

    items = tuple(FleetSample(at=at(minutes), workers=minutes) for minutes in (0, 5, 30, 35))
    data = chart_data(FleetHistory(range="24h", since=at(0), until=at(40), interval_seconds=300, items=items))
    assert data["values"]["workers"] == [0, 5, None, 30, 35]
    assert data["times"] == sorted(data["times"])


def test_the_heatmap_leaves_out_what_has_ended_and_shades_by_number() -> None:
    by_region = {"us-east-1": {"RUNNING": 100, "TERMINATED": 900}, "eu-west-1": {"FAILED": 1}, "old": {"TERMINATED": 3}}
    summary = FleetSummary.model_validate({"workers": 101, "ready": 100, "by_region": by_region})
    heatmap = region_heatmap(summary)
    assert [str(status) for status in heatmap["statuses"]] == ["RUNNING", "FAILED"]
    shades = {region: [(count, shade) for (_, count), shade in cells] for region, cells, _ in heatmap["rows"]}
    assert shades == {"eu-west-1": [(0, 0), (1, 1)], "us-east-1": [(100, 10), (0, 0)]}
