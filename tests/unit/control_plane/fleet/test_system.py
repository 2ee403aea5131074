"""System health: the reports of controllers, and the verdicts on them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.control_plane.fleet.system import ControlPlaneProcess, SystemService
from lcm.control_plane.journal.mirror import MirrorCounters
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.system import (
    ControllerReport,
    ControllerVerdict,
    ReceivedControllerReport,
    SystemHealth,
    assess_controller,
)
from lcm.model.worker.status import WorkerStatus
from tests.support.records.workers import NOW, a_worker
from tests.support.virtual.control_plane import LEADER, SYSTEM, TestPlane, serving_plane
from tests.support.virtual.fleet import a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from lcm.control_plane.records.unit_of_work import Transaction

PATH = "/api/internal/controllers/worker-controller/report"
REPORT = {"instance_id": "one", "queue_depth": 3, "in_progress": 2, "counters": {"started_count": 7}}


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


async def send(plane: TestPlane, body: dict[str, Any], path: str = PATH, **headers: str) -> httpx.Response:
    return await plane.ask("POST", path, role=Role.CONTROLLER, json=body, headers=headers)


async def system(plane: TestPlane) -> SystemHealth:
    response = await plane.ask("GET", "/api/system", role=Role.VIEWER)
    assert response.status_code == 200, response.text
    return SystemHealth.model_validate(response.json())


async def test_without_controllers_there_is_the_control_plane_alone(plane: TestPlane) -> None:
    await asyncio.sleep(90)
    seen = await system(plane)
    assert (seen.controllers, seen.leaks, seen.hold) == ((), (), None)
    assert seen.plane.uptime_seconds == pytest.approx(90, abs=1)
    assert (seen.plane.mirror, seen.plane.stream.clients) == (None, 0)


async def test_the_last_report_is_stored_with_its_age_and_a_verdict(plane: TestPlane) -> None:
    await plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json={"term": 5})
    (silent,) = (await system(plane)).controllers
    assert (silent.verdict, silent.term, silent.report) == ("none", 5, None)
    for depth in (3, 4):
        assert (await send(plane, {**REPORT, "queue_depth": depth})).status_code == 200
    await asyncio.sleep(20)
    (known,) = (await system(plane)).controllers
    assert known.report is not None
    assert (known.verdict, known.report.queue_depth) == ("healthy", 4)
    assert known.age_seconds == pytest.approx(20)
    assert known.report.counters == {"started_count": 7}
    await asyncio.sleep(40)
    (late,) = (await system(plane)).controllers
    assert (late.verdict, late.said) == ("late", "it last reported 60 s ago; expected every 15 seconds")


async def test_reports_write_no_journal_entry_and_wake_no_watcher(plane: TestPlane) -> None:
    await send(plane, REPORT)
    store = plane.services.context.store
    before = await store.read_journal(newest_first=True, limit=1)
    for _ in range(3):
        await send(plane, REPORT)
    assert await store.read_journal(newest_first=True, limit=1) == before


async def test_a_stale_leader_and_a_wrong_name_are_rejected(plane: TestPlane) -> None:
    await send(plane, REPORT)
    stale = await send(plane, {**REPORT, "queue_depth": 99}, **{"X-LCM-Leader-Term": "4"})
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_leader")
    other = await send(plane, REPORT, "/api/internal/controllers/lablet-controller/report")
    assert other.status_code == 409
    assert [each.report.queue_depth for each in (await system(plane)).controllers if each.report] == [3]


async def test_what_a_newer_controller_reports_beyond_ours_is_ignored(plane: TestPlane) -> None:
    """operations.md#upgrading. It is not stored: it has no bounds here."""
    response = await send(plane, {**REPORT, "added_by_newer": 1})
    assert response.status_code == 200, response.text
    assert "added_by_newer" not in response.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue_depth": -1},
        {"instance_id": ""},
        {"counters": {f"c{number}": 1 for number in range(101)}},
        {"calls": {"aws": {"op": {f"o{number}": 1 for number in range(51)}}}},
        {"leaks": [{"instance_id": "i-1", "region": "eu-west-1", "since": "2026-01-17T10:30:00Z"}] * 101},
    ],
)
async def test_a_report_is_bounded(plane: TestPlane, wrong: dict[str, Any]) -> None:
    assert (await send(plane, {**REPORT, **wrong})).status_code == 422


async def test_several_controllers_and_their_leaks_are_listed(plane: TestPlane) -> None:
    leak = {"instance_id": "i-9", "region": "eu-west-1", "since": "2026-01-17T10:30:00Z", "reason": "unknown worker"}
    await send(plane, {**REPORT, "leaks": [leak], "leaks_total": 3})
    path = "/api/internal/controllers/resource-scheduler/report"
    await send(plane, {"instance_id": "two"}, path, **{**LEADER, "X-LCM-Controller": "resource-scheduler"})
    seen = await system(plane)
    assert [each.name for each in seen.controllers] == ["resource-scheduler", "worker-controller"]
    assert ([each.instance_id for each in seen.leaks], seen.leaks_total) == (["i-9"], 3)


async def test_leaked_instances_stay_in_the_cost_when_their_controller_is_gone(plane: TestPlane) -> None:
    """worker-lifecycle.md#cost: unknown is not gone, and a next leader's report replaces that of the last one."""
    regions = [{"name": "eu-west-1"}, {"name": "us-east-1"}]
    leaks = [
        {"instance_id": f"i-{region}", "region": region, "since": "2026-01-17T10:30:00Z"}
        for region in ("eu-west-1", "us-east-1")
    ]
    both = {**REPORT, "regions": regions, "leaks": leaks, "leaks_total": 2}
    await send(plane, {**both, "scanned_regions": ["eu-west-1", "us-east-1"]})
    await asyncio.sleep(86_400)
    assert [each.verdict for each in (await system(plane)).controllers] == ["late"]
    assert await unknown_costs(plane) == 2
    successor = {"instance_id": "two", "regions": regions}
    term = {"X-LCM-Leader-Term": "9"}
    await plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json={"term": 9}, headers=term)
    for scanned, count in (([], 2), (["us-east-1"], 1)):
        assert (await send(plane, {**successor, "scanned_regions": scanned}, **term)).status_code == 200
        assert await unknown_costs(plane) == count


async def test_an_instance_that_was_imported_is_counted_as_a_worker_only(plane: TestPlane) -> None:
    """The next report comes seconds later."""
    leak = {"instance_id": "i-9", "region": "eu-west-1", "since": "2026-01-17T10:30:00Z"}
    await send(plane, {**REPORT, "leaks": [leak], "leaks_total": 2})
    worker = a_worker(status=WorkerStatus.RUNNING, instance_id="i-9")

    async def add(tx: Transaction) -> None:
        tx.save_worker(worker, "imported")

    await plane.services.context.unit_of_work.run(SYSTEM, add)
    summary, health = await plane.services.fleet.summary(), await system(plane)
    assert (summary.workers_without_price, summary.leaked_instances) == (1, 1)
    assert (health.leaks, health.leaks_total) == ((), 1)


async def test_a_leak_that_two_controllers_report_is_counted_once(plane: TestPlane) -> None:
    """A controller that was renamed leaves its last report."""
    leak = {"instance_id": "i-9", "region": "eu-west-1", "since": "2026-01-17T10:30:00Z"}
    body: dict[str, Any] = {**REPORT, "leaks": [leak], "leaks_total": 1}
    other = {"X-LCM-Controller": "worker-controller-b"}
    await send(plane, body)
    path, term = PATH.replace("worker-controller", "worker-controller-b"), {"term": 1}
    await plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json=term, headers=other)
    sent = await plane.ask("POST", path, role=Role.CONTROLLER, json=body, headers={**other, "X-LCM-Leader-Term": "1"})
    assert sent.status_code == 200, sent.text
    health = await system(plane)
    assert ([each.instance_id for each in health.leaks], health.leaks_total) == (["i-9"], 1)
    assert await unknown_costs(plane) == 1


async def unknown_costs(plane: TestPlane) -> int:
    return (await plane.services.fleet.summary()).cost.unknown


async def test_holds_and_breakers_are_reported(plane: TestPlane) -> None:
    await plane.ask("POST", "/api/fleet/hold", json={"reason": "check first"})
    body = {"region": "eu-west-1", "open": True, "reason": "ten are missing", "affected": ["w-1"]}
    await plane.ask("POST", "/api/internal/fleet/breaker", role=Role.CONTROLLER, json=body)
    seen = await system(plane)
    assert seen.hold is not None
    assert (seen.hold.reason, [each.region for each in seen.breakers]) == ("check first", ["eu-west-1"])


class StillMirror:
    """A mirror that makes no progress."""

    counters = MirrorCounters(written=5, failed=2)
    lag = 45.0
    pending = 3

    def degradation(self) -> list[str]:
        return ["coordination: gone"]


async def test_the_process_and_its_mirror_are_reported(plane: TestPlane) -> None:
    parts = plane.services
    about: dict[str, object] = {"version": "1.2.3", "installation_id": "lcm-abc"}
    own = SystemService(
        parts.context, parts.fleet, parts.stream, ControlPlaneProcess(about, "SQLite, lcm.db", [StillMirror()])
    )
    health = await own.health()
    assert health.plane.mirror is not None
    assert (health.plane.mirror.lag_seconds, health.plane.mirror.trouble) == (45, "coordination: gone")
    assert (health.plane.version, health.plane.installation_id) == ("1.2.3", "lcm-abc")


def seen(**report: Any) -> ReceivedControllerReport:
    known = ControllerReport(instance_id="one", **report)
    return ReceivedControllerReport(controller="c", term=1, received_at=NOW, report=known)


def test_a_controller_that_no_longer_lists_is_late() -> None:
    old = seen(last_resync_at=NOW - timedelta(minutes=10), resync_every_seconds=30.0)
    assert assess_controller(old, NOW) == (
        ControllerVerdict.LATE,
        "its last full resync was 10 min ago; expected every 30 s",
    )
    assert (
        assess_controller(seen(last_resync_at=NOW - timedelta(seconds=40), resync_every_seconds=30.0), NOW)[0]
        == "healthy"
    )
    assert assess_controller(seen(last_resync_at=NOW - timedelta(days=1)), NOW)[0] == "healthy"
    assert "polls" in assess_controller(seen(watching=False), NOW)[1]
    assert assess_controller(None, NOW)[0] == "none"


async def test_a_worker_controller_reports_while_it_leads_and_another_takes_over() -> None:
    async with a_fleet() as fleet:
        await fleet.start("one")
        worker = await fleet.create()
        await fleet.until(lambda: _is(fleet, worker.id, "RUNNING"), "it runs")
        await asyncio.sleep(30)
        (known,) = (await system(fleet.plane)).controllers
        assert known.report is not None
        assert (known.verdict, known.startup_sweep_done, known.report.instance_id) == ("healthy", True, "one")
        assert known.report.resources == 1
        assert known.report.counters["provisioned_count"] == 1
        assert known.report.last_resync_at is not None
        assert clock.now() - known.report.last_resync_at < timedelta(seconds=60)
        assert {each.name for each in known.report.regions} == {"eu-west-1", "us-east-1"}
        assert known.report.calls["aws"]
        fleet.wires["one"].dead = True  # it still leads, but its reports are lost
        with capture_logs() as logs:
            await asyncio.sleep(90)
        levels = [line["log_level"] for line in logs if "status report cannot be sent" in line["event"]]
        assert levels == ["info"]  # once, and nothing else happens
        assert not [line for line in logs if str(line.get("loop", "")).endswith(":report")]
        assert [each.verdict for each in (await system(fleet.plane)).controllers] == ["late"]
        fleet.wires["one"].dead = False
        await asyncio.sleep(60)
        assert [each.verdict for each in (await system(fleet.plane)).controllers] == ["healthy"]
        await fleet.start("two")
        await fleet.controllers["one"].stop()
        await asyncio.sleep(60)
        (next_one,) = (await system(fleet.plane)).controllers
        assert next_one.report is not None
        assert (next_one.verdict, next_one.report.instance_id) == ("healthy", "two")


async def _is(fleet: Any, worker_id: str, status: str) -> bool:
    return bool((await fleet.worker(worker_id)).status == status)
