"""The list of workers: its order, filters and views, and what each role sees."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from starlette.datastructures import QueryParams

from lcm.control_plane.records.backfill import backfill_fields
from lcm.control_plane.records.kinds import WORKERS, worker_fields
from lcm.control_plane.store.port import Put
from lcm.control_plane.web.list_query import PAGE_SIZE
from lcm.control_plane.web.rendering import sparkline, time_tag, usd
from lcm.control_plane.web.workers.list_page import WorkerListQuery
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.worker.record import Worker
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.store.port import JournalEntry
    from tests.support.virtual.control_plane import TestPlane

STUCK = {"type": "Stuck", "status": "True", "reason": "Slow", "message": "<b>slow</b>", "since": "2026-01-17T10:00:00Z"}


def names(page: str) -> list[str]:
    return re.findall(r'<a href="/workers/[^"]+">([^<]+)</a>', page)


async def test_problems_come_first_then_what_moves_then_the_rest(plane: TestPlane) -> None:
    await plane.create("asleep", desired_status="STOPPED")
    await plane.create("zznew")
    failed = await plane.create("zzfailed")
    await plane.report(failed, "FAILED", reason="no image is there")
    stuck = await plane.running("zzstuck")
    await plane.report(stuck, "RUNNING", conditions=[STUCK])
    page = await (await signed_in(plane, Role.VIEWER)).page("/fleet")
    assert names(page) == ["zzfailed", "zzstuck", "zznew", "asleep"]
    assert "&lt;b&gt;slow&lt;/b&gt;" in page
    assert "<b>slow</b>" not in page
    assert ">Failed: no image is there</div>" in page
    assert re.search(r'<dt>Problems</dt><dd><a class="bad-text" href="/fleet\?view=problems">2</a>', page)


async def test_the_reasons_of_fifty_failures_are_few_reads(plane: TestPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(PAGE_SIZE):
        failed = await plane.create(f"w-{number:02}")
        await plane.report(failed, "FAILED", reason=f"reason {number} of it")
    store, reads = plane.services.context.store, 0
    read_journal = store.read_journal

    async def counted(**query: Any) -> Sequence[JournalEntry]:
        nonlocal reads
        reads += 1
        return await read_journal(**query)

    visitor = await signed_in(plane, Role.VIEWER)
    monkeypatch.setattr(store, "read_journal", counted)
    page = await visitor.page("/fleet")
    assert [number for number in range(PAGE_SIZE) if f">Failed: reason {number} of it</div>" not in page] == []
    assert reads <= 5


async def test_the_reason_of_a_failure_is_found_behind_the_longer_histories_of_others(plane: TestPlane) -> None:
    old = await plane.create("old")
    await plane.report(old, "FAILED", reason="long ago")
    busy = await plane.create("busy")
    for _ in range(3):
        busy = await plane.report(busy, "PROVISIONING", reason="on its way")
        busy = await plane.report(busy, "FAILED", reason="just now")
        busy = (await plane.ask("POST", f"/api/workers/{busy['id']}/retry")).json()
    await plane.report(busy, "FAILED", reason="just now")
    page = await (await signed_in(plane, Role.VIEWER)).page("/fleet")
    assert ">Failed: long ago</div>" in page
    assert ">Failed: just now</div>" in page


async def test_filters_are_in_the_address_and_a_wrong_one_is_left_out(plane: TestPlane) -> None:
    await plane.create("one")
    await plane.create("two", aws_region="us-east-1", template_name="large")
    visitor = await signed_in(plane, Role.VIEWER)
    assert names(await visitor.page("/fleet?region=us-east-1")) == ["two"]
    assert names(await visitor.page("/fleet?template=small")) == ["one"]
    assert names(await visitor.page("/fleet?q=TW")) == ["two"]
    assert names(await visitor.page("/fleet?status=pending&sort=-name")) == ["two", "one"]
    assert names(await visitor.page("/fleet?status=nonsense&sort=nonsense&view=nonsense&page=x&after=x")) == [
        "one",
        "two",
    ]
    empty = await visitor.page("/fleet?q=no-such-name")
    assert "No matching workers" in empty
    assert 'href="/fleet"' in empty


async def test_views_count_and_narrow(plane: TestPlane) -> None:
    await plane.create("asleep", desired_status="STOPPED")
    held = await plane.create("held")
    await plane.ask("POST", f"/api/workers/{held['id']}/hold", json={"reason": "check"})
    gone = await plane.create("gone")
    await plane.ask("DELETE", f"/api/workers/{gone['id']}")
    await plane.report((await plane.ask("GET", f"/api/workers/{gone['id']}")).json(), "TERMINATED")
    visitor = await signed_in(plane, Role.VIEWER)
    page = await visitor.page("/fleet")
    counts = dict(re.findall(r'data-view="([a-z]*)".*?<span class="n">([0-9,]+)</span>', page))
    assert counts == {
        "": "2",
        "problems": "0",
        "moving": "0",
        "ready": "0",
        "stopped": "0",
        "unlaunched": "1",
        "held": "1",
        "ended": "1",
    }
    assert names(page) == ["held", "asleep"]
    assert names(await visitor.page("/fleet?view=ended")) == ["gone"]
    assert names(await visitor.page("/fleet?view=held")) == ["held"]
    assert names(await visitor.page("/fleet?view=unlaunched")) == ["asleep"]
    assert names(await visitor.page("/fleet?view=unlaunched&status=STOPPED")) == []
    assert names(await visitor.page("/fleet?view=stopped")) == []
    assert "No matching workers" in await visitor.page("/fleet?view=problems")


async def test_a_stopped_worker_is_not_one_that_was_never_launched(plane: TestPlane) -> None:
    await plane.create("never", desired_status="STOPPED")
    stopped = await plane.running("stopped")
    await plane.ask("POST", f"/api/workers/{stopped['id']}/stop")
    for status in ("STOPPING", "STOPPED"):
        await plane.report((await plane.ask("GET", f"/api/workers/{stopped['id']}")).json(), status)
    visitor = await signed_in(plane, Role.VIEWER)
    page = await visitor.page("/fleet?view=stopped")
    assert names(page) == ["stopped"]
    counts = dict(re.findall(r'data-view="([a-z]*)".*?<span class="n">([0-9,]+)</span>', page))
    assert (counts["stopped"], counts["unlaunched"], counts["moving"]) == ("1", "1", "0")
    assert names(await visitor.page("/fleet?view=unlaunched")) == ["never"]


async def test_the_cost_column_sorts_by_what_it_shows(plane: TestPlane) -> None:
    """A template is cheap or not, but what is shown is what a worker costs now; a cost that is not known is no zero."""
    await plane.running("cheap", template_name="micro")
    await plane.create("never", template_name="metal", desired_status="STOPPED")
    await plane.running("large", template_name="large")
    body = {"name": "foreign", "instance_id": "i-0abc", "instance_type": "x9.unheard", "aws_region": "eu-west-1"}
    imported = {**body, "status": "RUNNING"}
    response = await plane.ask("POST", "/api/internal/workers/import", role=Role.CONTROLLER, json=imported)
    assert response.status_code == 201, response.text
    visitor = await signed_in(plane, Role.VIEWER)
    page = await visitor.page("/fleet")
    assert 'hx-get="/fleet?sort=billed_usd"' in page
    assert names(await visitor.page("/fleet?sort=billed_usd")) == ["foreign", "never", "cheap", "large"]
    assert names(await visitor.page("/fleet?sort=-billed_usd")) == ["large", "cheap", "never", "foreign"]


async def test_a_cost_that_an_older_version_stored_as_zero_is_unknown_after_the_start(plane: TestPlane) -> None:
    worker = await plane.create("old")
    store = plane.services.context.store
    stored = await store.get(WORKERS, worker["id"])
    assert stored is not None
    record = Worker.model_validate_json(stored.body)
    fields = {**worker_fields(record), "price_unknown": 1, "billed_usd": 0.0}
    await store.commit([Put(WORKERS, stored.id, stored.body, stored.revision, fields, {"name": "old"})])
    assert await backfill_fields(store) == 1
    assert await backfill_fields(store) == 0


async def test_pages_go_on_where_the_last_one_ended(plane: TestPlane) -> None:
    for number in range(PAGE_SIZE + 3):
        await plane.create(f"w{number:03}")
    visitor = await signed_in(plane, Role.VIEWER)
    first = await visitor.page("/fleet?q=w")
    following = re.search(r'<a href="([^"]+)" rel="next"', first)
    assert following is not None
    address = following.group(1).replace("&amp;", "&")
    assert "q=w" in address
    second = await visitor.page(address)
    assert names(first) + names(second) == [f"w{number:03}" for number in range(PAGE_SIZE + 3)]
    assert "page 2 of 2" in second
    assert "First page" in second


async def test_an_empty_fleet_says_what_to_do(plane: TestPlane) -> None:
    assert "Create a worker" in await (await signed_in(plane, Role.OPERATOR)).page("/fleet")
    viewers = await (await signed_in(plane, Role.VIEWER)).page("/fleet")
    assert "No workers yet" in viewers
    assert "Create a worker" not in viewers


async def test_a_viewer_sees_no_way_to_change_anything(plane: TestPlane) -> None:
    worker = await plane.running()
    visitor = await signed_in(plane, Role.VIEWER)
    page = await visitor.page("/fleet")
    for word in ("hold-fleet", "bulk", 'type="checkbox"', "/confirm"):
        assert word not in page
    for path in (f"/workers/{worker['id']}/confirm/stop", "/fleet/confirm-hold", "/fleet/confirm?action=stop&ids=x"):
        assert "alert" in await visitor.part(path, 403)


async def test_rows_are_read_by_id_with_their_version(plane: TestPlane) -> None:
    one, two = await plane.create("one"), await plane.create("two")
    visitor = await signed_in(plane, Role.VIEWER)
    part = await visitor.part(f"/fleet/rows?ids={two['id']},{one['id']},w-none")
    assert names(part) == ["two", "one"]
    assert f'hx-target="#w-{one["id"]}"' in part
    assert f'data-version="{one["version"]}"' in part
    changed = (await plane.ask("POST", f"/api/workers/{one['id']}/stop")).json()
    assert f'data-version="{changed["version"]}"' in await visitor.part(f"/fleet/rows?ids={one['id']}")


async def test_metrics_fill_in_load_and_labs(plane: TestPlane) -> None:
    worker = await plane.running()
    begin = clock.now() - timedelta(minutes=40)
    items = [
        {
            "worker_id": worker["id"],
            "instance_id": worker["instance_id"],
            "labs_count": 3,
            "running_nodes": 7,
            "collected_at": (begin + timedelta(seconds=20 * step)).isoformat(),
            "cpu_utilization": float(step),
        }
        for step in range(90)
    ]
    response = await plane.ask("POST", "/api/internal/workers/metrics", role=Role.CONTROLLER, json={"items": items[:1]})
    for item in items[1:]:
        response = await plane.ask(
            "POST", "/api/internal/workers/metrics", role=Role.CONTROLLER, json={"items": [item]}
        )
    assert response.json()["kept"] == 1
    part = await (await signed_in(plane, Role.VIEWER)).part(f"/fleet/figures?ids={worker['id']},w-none")
    assert "now 89 percent" in part
    assert len(re.search(r'points="([^"]+)"', part).group(1).split()) == 24  # type: ignore[union-attr]
    assert '<span title="7 running nodes">3</span>' in part
    assert "w-none" not in part


async def test_the_summary_is_refreshed_with_the_views_of_the_address(plane: TestPlane) -> None:
    await plane.create("one")
    visitor = await signed_in(plane, Role.OPERATOR)
    part = await visitor.part("/fleet/summary", at="http://lcm.test/fleet?q=on")
    assert 'hx-target="#summary"' in part
    assert 'href="/fleet?view=problems&amp;q=on"' in part
    elsewhere = await visitor.part("/fleet/summary", at="http://lcm.test/system")
    assert 'hx-target="#views"' not in elsewhere


async def test_records_of_an_older_version_get_the_fields_that_are_new(plane: TestPlane) -> None:
    worker = await plane.create("old")
    store = plane.services.context.store
    stored = await store.get(WORKERS, worker["id"])
    assert stored is not None
    fields = {
        **worker_fields(Worker.model_validate_json(stored.body)),
        "urgency": None,
        "attention": None,
        "storage_price": None,
        "search_text": None,
    }
    await store.commit([Put(WORKERS, stored.id, stored.body, stored.revision, fields, {"name": "old"})])
    visitor = await signed_in(plane, Role.VIEWER)
    assert names(await visitor.page("/fleet?view=moving")) == []
    assert await backfill_fields(store) == 1
    assert names(await visitor.page("/fleet?view=moving")) == ["old"]
    after = await store.get(WORKERS, worker["id"])
    assert after is not None
    assert after.body == stored.body
    assert await backfill_fields(store) == 0


def test_a_query_and_its_url_are_equivalent() -> None:
    query = WorkerListQuery(
        view="problems", q="a b&c", status=("RUNNING",), region=("eu-west-1",), sort="-name", after="x", page=3
    )
    url = query.url(after="x", page=3)
    assert WorkerListQuery.from_query(QueryParams(url.partition("?")[2])) == query
    assert WorkerListQuery().url() == "/fleet"
    assert query.url(q="z") == "/fleet?view=problems&q=z&status=RUNNING&region=eu-west-1&sort=-name"


@pytest.mark.parametrize(
    ("amount", "text"),
    [(None, "\N{EN DASH}"), (0.0, "$0.00"), (0.0208, "$0.0208"), (3.9641, "$3.96"), (12345.6, "$12,345.60")],
)
def test_money(amount: float | None, text: str) -> None:
    assert usd(amount) == text


def test_times_are_relative_with_the_exact_time_as_title() -> None:
    tag = time_tag(clock.now() - timedelta(minutes=5))
    assert "5 minutes ago" in tag
    assert 'title="' in tag
    assert "in 2 hours" in time_tag(clock.now() + timedelta(hours=2, seconds=30))


def test_a_sparkline_stays_in_its_box() -> None:
    assert 'points="0.0,23.0 96.0,1.0"' in sparkline([-5, 500])
    assert "svg" not in sparkline([])


@pytest.mark.parametrize("hidden", ["q=%00", "q=a%00b&sort=name", "region=%00", "status=%00", "page=99999", "after=x"])
async def test_a_query_inside_a_parameter_is_no_way_around_the_validation(plane: TestPlane, hidden: str) -> None:
    await plane.running("alpha")
    visitor = await signed_in(plane, Role.OPERATOR)
    response = await visitor.ask(
        "GET", "/fleet/confirm", params={"action": "stop", "matching": hidden}, headers={"HX-Request": "true"}
    )
    assert response.status_code < 500, response.text
