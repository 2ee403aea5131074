"""Whether the manager itself is well: reports of controllers, and what is made of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.control_plane.fleet.system import ProcessDetails, SystemService
from lcm.control_plane.journal.mirror import MirrorCounters
from lcm.control_plane.records.kinds import CONTROLLER_REPORTS
from lcm.control_plane.store.port import StoreUnavailableError
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.system import (
    ControllerReport,
    ControllerVerdict,
    ReceivedControllerReport,
    SystemHealth,
    assess_controller,
)
from tests.support.records.workers import NOW
from tests.support.virtual.control_plane import LEADER, TestPlane, serving_plane
from tests.support.virtual.fleet import a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

PATH = "/api/internal/controllers/worker-controller/report"
REPORT = {"instance_id": "one", "queue_depth": 3, "in_progress": 2, "counters": {"started_count": 7}}


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


async def send(plane: TestPlane, body: dict[str, Any], path: str = PATH, **headers: str) -> httpx.Response:
    return await plane.ask("POST", path, role=Role.CONTROLLER, json=body, headers=headers)


async def system(plane: TestPlane) -> SystemHealth:
    answer = await plane.ask("GET", "/api/system", role=Role.VIEWER)
    assert answer.status_code == 200, answer.text
    return SystemHealth.model_validate(answer.json())


async def test_without_controllers_there_is_the_control_plane_alone(plane: TestPlane) -> None:
    await asyncio.sleep(90)
    seen = await system(plane)
    assert (seen.controllers, seen.leaks, seen.hold) == ((), (), None)
    assert seen.plane.uptime_seconds == pytest.approx(90, abs=1)
    assert (seen.plane.mirror, seen.plane.stream.clients) == (None, 0)


async def test_the_last_report_is_kept_with_its_age_and_a_verdict(plane: TestPlane) -> None:
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
    assert (late.verdict, late.said) == ("late", "it last reported 60 s ago; it should every 15 seconds")


async def test_reports_leave_no_line_and_wake_nobody(plane: TestPlane) -> None:
    await send(plane, REPORT)
    store = plane.parts.plane.store
    before = await store.journal(newest_first=True, limit=1)
    for _ in range(3):
        await send(plane, REPORT)
    assert await store.journal(newest_first=True, limit=1) == before


async def test_an_overtaken_leader_and_a_false_name_are_refused(plane: TestPlane) -> None:
    await send(plane, REPORT)
    stale = await send(plane, {**REPORT, "queue_depth": 99}, **{"X-LCM-Leader-Term": "4"})
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_leader")
    other = await send(plane, REPORT, "/api/internal/controllers/lablet-controller/report")
    assert other.status_code == 409
    assert [each.report.queue_depth for each in (await system(plane)).controllers if each.report] == [3]


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue_depth": -1},
        {"instance_id": ""},
        {"counters": {f"c{number}": 1 for number in range(101)}},
        {"calls": {"aws": {"op": {f"o{number}": 1 for number in range(51)}}}},
        {"leaks": [{"instance_id": "i-1", "region": "eu-west-1", "since": "2026-01-17T10:30:00Z"}] * 101},
        {"surprise": 1},
    ],
)
async def test_a_report_is_bounded(plane: TestPlane, wrong: dict[str, Any]) -> None:
    assert (await send(plane, {**REPORT, **wrong})).status_code == 422


async def test_several_controllers_and_their_leaks_stand_side_by_side(plane: TestPlane) -> None:
    leak = {"instance_id": "i-9", "region": "eu-west-1", "since": "2026-01-17T10:30:00Z", "reason": "unknown worker"}
    await send(plane, {**REPORT, "leaks": [leak], "leaks_total": 3})
    path = "/api/internal/controllers/resource-scheduler/report"
    await send(plane, {"instance_id": "two"}, path, **{**LEADER, "X-LCM-Controller": "resource-scheduler"})
    seen = await system(plane)
    assert [each.name for each in seen.controllers] == ["resource-scheduler", "worker-controller"]
    assert ([each.instance_id for each in seen.leaks], seen.leaks_total) == (["i-9"], 3)


async def test_holds_and_breakers_are_told(plane: TestPlane) -> None:
    await plane.ask("POST", "/api/fleet/hold", json={"reason": "look first"})
    body = {"region": "eu-west-1", "open": True, "reason": "ten are missing", "affected": ["w-1"]}
    await plane.ask("POST", "/api/internal/fleet/breaker", role=Role.CONTROLLER, json=body)
    seen = await system(plane)
    assert seen.hold is not None
    assert (seen.hold.reason, [each.region for each in seen.breakers]) == ("look first", ["eu-west-1"])


class StillMirror:
    """A mirror that stands still."""

    figures = MirrorCounters(written=5, failed=2)
    lag = 45.0
    pending = 3

    def readiness(self) -> list[str]:
        return ["coordination: gone"]


async def test_the_mirror_is_told_and_a_report_outlives_a_store_that_is_away(
    plane: TestPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = plane.parts
    about: dict[str, object] = {"version": "1.2.3", "installation_id": "lcm-abc"}
    own = SystemService(
        parts.plane, parts.fleet, parts.stream, ProcessDetails(about, "SQLite, lcm.db", [StillMirror()])
    )
    health = await own.health()
    assert health.plane.mirror is not None
    assert (health.plane.mirror.lag_seconds, health.plane.mirror.trouble) == (45, "coordination: gone")
    assert (health.plane.version, health.plane.installation_id) == ("1.2.3", "lcm-abc")
    await send(plane, REPORT)
    find = type(parts.plane.store).find

    async def away(store: Any, kind: Any, *rest: Any, **more: Any) -> Any:
        if kind is CONTROLLER_REPORTS:
            raise StoreUnavailableError("away")
        return await find(store, kind, *rest, **more)

    monkeypatch.setattr(type(parts.plane.store), "find", away)
    assert [each.report.instance_id for each in (await system(plane)).controllers if each.report] == ["one"]


def seen(**report: Any) -> ReceivedControllerReport:
    known = ControllerReport(instance_id="one", **report)
    return ReceivedControllerReport(controller="c", term=1, received_at=NOW, report=known)


def test_a_controller_that_does_not_list_any_more_is_late() -> None:
    old = seen(last_resync_at=NOW - timedelta(minutes=10), resync_every_seconds=30.0)
    assert assess_controller(old, NOW) == (
        ControllerVerdict.LATE,
        "it last listed what it looks after 10 min ago; it should every 30 s",
    )
    assert (
        assess_controller(seen(last_resync_at=NOW - timedelta(seconds=40), resync_every_seconds=30.0), NOW)[0]
        == "healthy"
    )
    assert assess_controller(seen(last_resync_at=NOW - timedelta(days=1)), NOW)[0] == "healthy"
    assert "polling" in assess_controller(seen(watching=False), NOW)[1]
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
        fleet.wires["one"].dead = True  # it leads on, but its reports are lost
        with capture_logs() as logs:
            await asyncio.sleep(90)
        told = [line["log_level"] for line in logs if "report on this controller" in line["event"]]
        assert told == ["info"]  # once, and nothing else comes of it
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
