"""The System page: the verdict in a sentence, and the metrics behind it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.web.admin.system_page import count_calls, frequent_calls, health_summary
from lcm.model.access import Role
from lcm.model.system import (
    ControllerHealth,
    ControllerReport,
    ControllerVerdict,
    ControlPlaneHealth,
    MirrorHealth,
    SystemHealth,
)
from tests.support.records.workers import NOW
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

HOSTILE = "<script>alert(1)</script>"
PATH = "/api/internal/controllers/worker-controller/report"


def a_report(**more: Any) -> dict[str, Any]:
    return {
        "instance_id": "one",
        "queue_depth": 1234,
        "calls": {"aws": {"DescribeInstances": {"ok": 9, "throttled": 2}, "StopInstances": {"ok": 1}}},
        "throttled": {"aws": 2},
        "counters": {"auto_pause_count": 7},
        "regions": [{"name": "eu-west-1", "breaker_open": True, "trouble": HOSTILE, "instances": 5}],
        "leaks": [{"instance_id": "i-9", "region": "eu-west-1", "since": NOW.isoformat(), "reason": HOSTILE}],
        "leaks_total": 1,
        **more,
    }


async def test_without_controllers_it_says_so(plane: TestPlane) -> None:
    page = await (await signed_in(plane, Role.VIEWER)).page("/system")
    assert "No controller has reported yet" in page
    assert "verdict-bad" in page
    assert "lcm worker-controller" in page


async def test_a_report_is_shown_and_goes_stale(plane: TestPlane) -> None:
    await plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json={"term": 5})
    sent = await plane.ask("POST", PATH, role=Role.CONTROLLER, json=a_report())
    assert sent.status_code == 200, sent.text
    visitor = await signed_in(plane, Role.VIEWER)
    page = await visitor.page("/system")
    for text in (
        "verdict-healthy",
        "1,234",
        "DescribeInstances",
        "2 throttled",
        "auto pause",
        "term 5",
        "i-9",
        "just reported by its controller",
    ):
        assert text in page, text
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    await asyncio.sleep(120)
    part = await visitor.part("/system")
    assert part.lstrip().startswith('<div id="system"')
    assert "verdict-late" in part
    assert "verdict-bad" in part


def leading(*, startup_sweep_done: bool = True, **report: Any) -> ControllerHealth:
    return ControllerHealth(
        name="worker-controller",
        verdict=ControllerVerdict.HEALTHY,
        said="fine",
        term=3,
        startup_sweep_done=startup_sweep_done,
        report=ControllerReport(instance_id="one", **report),
    )


def health(**more: Any) -> SystemHealth:
    controller = ControllerHealth(name="worker-controller", verdict=ControllerVerdict.HEALTHY, said="fine")
    facts: dict[str, Any] = {"plane": ControlPlaneHealth(started_at=NOW), "controllers": (controller,), **more}
    return SystemHealth(**facts)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, ("good", "All systems are healthy.")),
        (
            {"leaks_total": 2},
            ("warn", "All systems are healthy. 2 instances of this installation belong to no worker."),
        ),
        (
            {"hold": {"reason": "r", "by": "anna", "since": NOW}},
            ("warn", "All systems are healthy. The fleet is on hold, so no changes are made."),
        ),
        (
            {"breakers": [{"region": "eu-west-1", "open": True, "reason": "r", "since": NOW}]},
            ("warn", "A breaker is open. No worker in eu-west-1 is marked as lost."),
        ),
        (
            {"controllers": (leading(regions=[{"name": "eu-west-1", "breaker_open": True}]),)},
            ("warn", "A breaker is open. No worker in eu-west-1 is marked as lost."),
        ),
        (
            {
                "controllers": (leading(regions=[{"name": "eu-west-1", "breaker_open": True}]),),
                "breakers": [
                    {"region": region, "open": True, "reason": "r", "since": NOW}
                    for region in ("eu-west-1", "us-east-1")
                ],
            },
            ("warn", "A breaker is open. No worker in eu-west-1 and us-east-1 is marked as lost."),
        ),
        (
            {"controllers": (leading(regions=[{"name": "eu-west-1", "trouble": "no credentials."}]),)},
            ("warn", "eu-west-1 cannot be read: no credentials."),
        ),
        (
            {"controllers": (leading(startup_sweep_done=False),)},
            ("warn", "worker-controller has just become leader and has not completed its startup sweep yet."),
        ),
        ({"controllers": (leading(),)}, ("good", "All systems are healthy.")),
        (
            {"plane": ControlPlaneHealth(started_at=NOW, mirror=MirrorHealth(trouble="etcd is away"))},
            ("bad", "Degraded: etcd is away. Commands are recorded; controllers carry them out later."),
        ),
        (
            {
                "controllers": (),
                "plane": ControlPlaneHealth(started_at=NOW, mirror=MirrorHealth(trouble="etcd is away")),
            },
            ("bad", "Degraded: etcd is away. Commands are recorded; controllers carry them out later."),
        ),
        ({"controllers": ()}, ("bad", "No controller has reported yet: no worker is managed.")),
    ],
)
def test_the_most_severe_problem_is_shown(facts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert health_summary(health(**facts)) == expected


def test_calls_are_counted_with_what_failed() -> None:
    report = ControllerReport(
        instance_id="one",
        started_at=NOW - timedelta(hours=1),
        calls={"aws": {"A": {"ok": 1}, "B": {"ok": 3, "refused": 2}}},
    )
    assert frequent_calls(report, "aws") == [("B", 5, "2 refused"), ("A", 1, "")]
    assert frequent_calls(report, "cml") == []
    assert (count_calls(report, "aws"), count_calls(report, "cml")) == (6, 0)


async def test_an_admin_sees_the_sessions_and_ends_one(plane: TestPlane) -> None:
    viewer, admin = await signed_in(plane, Role.VIEWER), await signed_in(plane, Role.ADMIN)
    assert "sessions-title" not in await viewer.page("/system")
    page = await admin.page("/system")
    assert "sessions-title" in page
    sessions = plane.services.authenticator.sessions
    listed = {each.name: each.id for each in (await sessions.page()).items}
    assert "End the session of viewer?" in await admin.page(f"/system/sessions/{listed['viewer']}/confirm-end")
    ended = await admin.send(f"/system/sessions/{listed['viewer']}/end")
    assert (ended.status_code, "The session of viewer has ended" in ended.text) == (200, True)
    assert (await viewer.ask("GET", "/system")).status_code == 303, "to the sign-in page"
    assert (await admin.ask("GET", f"/system/sessions/{listed['viewer']}/confirm-end")).status_code == 404
    assert "viewer" not in await admin.page("/system/sessions")


async def test_only_admins_see_and_end_sessions(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    [listed] = (await plane.services.authenticator.sessions.page()).items
    for path in ("/system/sessions", f"/system/sessions/{listed.id}/confirm-end"):
        assert (await operator.ask("GET", path)).status_code == 403
    assert (await operator.send(f"/system/sessions/{listed.id}/end")).status_code == 403
    assert (await operator.ask("GET", "/system")).status_code == 200
