"""The page of one worker: what it shows, which actions it offers to which role, and that text is escaped."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.web.timeline import JOURNAL_ENTRIES_PER_PAGE
from lcm.model.access import Role
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.virtual.control_plane import TestPlane

EVIL = '"><script>window.evil=1</script><b onclick="x">&'
SINCE = "2026-01-17T10:00:00Z"


def offered_actions(page: str) -> list[str]:
    return re.findall(r'id="act-([a-z-]+)"', page)


def condition(kind: str, status: str = "True", **texts: str) -> dict[str, str]:
    return {"type": kind, "status": status, "since": SINCE, **texts}


async def failed(plane: TestPlane) -> dict[str, Any]:
    return await plane.report(await plane.create(), "FAILED", reason="no capacity")


async def stopped(plane: TestPlane) -> dict[str, Any]:
    worker = await plane.running()
    stopping = (await plane.ask("POST", f"/api/workers/{worker['id']}/stop")).json()
    return await plane.report(await plane.report(stopping, "STOPPING"), "STOPPED")


async def commanded(plane: TestPlane, command: str, **body: str) -> dict[str, Any]:
    worker = await plane.running()
    response = await plane.ask("POST", f"/api/workers/{worker['id']}/{command}", json=body or None)
    assert response.status_code == 202, response.text
    commanded_worker: dict[str, Any] = response.json()
    return commanded_worker


async def ended(plane: TestPlane) -> dict[str, Any]:
    worker = await commanded(plane, "terminate")
    return await plane.report(await plane.report(worker, "TERMINATING"), "TERMINATED")


STATES: dict[str, tuple[Callable[[TestPlane], Awaitable[dict[str, Any]]], list[str]]] = {
    "PENDING": (lambda plane: plane.create(), ["stop", "hold", "edit", "terminate"]),
    "RUNNING": (lambda plane: plane.running(), ["stop", "drain", "hold", "edit", "terminate"]),
    "DRAINING": (
        lambda plane: commanded(plane, "drain"),
        ["start", "stop", "cancel-drain", "hold", "edit", "terminate"],
    ),
    "STOPPED": (stopped, ["start", "hold", "edit", "terminate"]),
    "FAILED": (failed, ["retry", "hold", "edit", "terminate"]),
    "held": (
        lambda plane: commanded(plane, "hold", reason="exam"),
        ["stop", "drain", "hold", "release", "edit", "terminate"],
    ),
    "TERMINATING": (lambda plane: commanded(plane, "terminate"), ["hold", "edit"]),
    "TERMINATED": (ended, []),
}


@pytest.mark.parametrize("state", STATES)
async def test_actions_depend_on_the_status_and_the_role(plane: TestPlane, state: str) -> None:
    make, expected = STATES[state]
    worker = await make(plane)
    for role in (Role.OPERATOR, Role.ADMIN):
        assert offered_actions(await (await signed_in(plane, role)).page(f"/workers/{worker['id']}")) == expected
    viewer = await signed_in(plane, Role.VIEWER)
    page = await viewer.page(f"/workers/{worker['id']}")
    assert offered_actions(page) == []
    assert "license-register" not in page
    assert f"/workers/{worker['id']}/confirm" not in page + await viewer.part(f"/workers/{worker['id']}/now")


async def test_the_page_shows_all_details(plane: TestPlane) -> None:
    worker = await plane.running(
        tags={"course": "routing-101"}, license_token="a-token", lost_instance_policy="replace"
    )
    decision = {
        "rule": "running.steady",
        "reason": "the worker runs and CML responds",
        "inputs": {"cml_ready": True, "instance": "running"},
        "actions": ["check again"],
        "decided_at": SINCE,
    }
    conditions = [condition("InstanceReady", reason="Running"), condition("Stuck", "False", message="all is well")]
    await plane.report(worker, "RUNNING", conditions=conditions, decision=decision, private_ip="10.0.0.9")
    page = await (await signed_in(plane, Role.VIEWER)).page(f"/workers/{worker['id']}")
    for text in (
        "<h1>alpha</h1>", "s-running", "192.0.2.7", "10.0.0.9", "i-alpha", "t3.small", "eu-west-1", "routing-101",
        "alpha has been RUNNING", "running.steady", "check again", "cml ready", "Instance ready", "all is well",
        "<dt>On instance loss</dt><dd>replace</dd>", "$0.0263", "unregistered",
        "<strong>operator</strong> created it", "not ready",
    ):  # fmt: skip
        assert text in page, text
    assert "a-token" not in page
    assert f'data-worker-id="{worker["id"]}"' in page
    assert 'data-topics="worker,history,audit"' in page
    assert "uplot.min.js" in page
    assert "uplot" not in await (await signed_in(plane, Role.VIEWER)).page("/fleet")


async def test_the_next_step_is_shown_once(plane: TestPlane) -> None:
    worker = await plane.create()
    following = (await plane.ask("GET", f"/api/workers/{worker['id']}/explain")).json()["next"]
    page = await (await signed_in(plane, Role.VIEWER)).page(f"/workers/{worker['id']}")
    assert page.count(escape(following)) == 1


async def test_text_of_users_is_escaped(plane: TestPlane) -> None:
    worker = await plane.running(tags={"owner": EVIL, EVIL: "key"})
    decision = {
        "rule": "x",
        "reason": EVIL,
        "inputs": {EVIL: EVIL, "n": [EVIL]},
        "actions": [EVIL],
        "decided_at": SINCE,
    }
    conditions = [
        condition("CmlReady", "False", reason=EVIL, message=EVIL),
        condition("Stuck", reason=EVIL, message=EVIL),
    ]
    facts = {"instance_type": EVIL, "ami_id": EVIL}
    worker = await plane.report(worker, "RUNNING", reason=EVIL, conditions=conditions, decision=decision, **facts)
    await plane.report(worker, "RUNNING", reason=EVIL, public_ip="192.0.2.8")
    await plane.ask("POST", f"/api/workers/{worker['id']}/hold", json={"reason": EVIL})
    visitor = await signed_in(plane, Role.ADMIN)
    address = f"/workers/{worker['id']}"
    shown = [
        await visitor.page(address),
        await visitor.part(f"{address}/now"),
        await visitor.part(f"{address}/timeline"),
        await visitor.part(f"{address}/edit"),
        await visitor.part(f"{address}/license/register"),
        await visitor.part(f"{address}/confirm/stop"),
    ]
    for text in shown:
        assert "<script>window" not in text
        assert '<b onclick="x">' not in text
    assert "&lt;script&gt;window.evil" in shown[0]
    assert "&lt;script&gt;window.evil" in shown[2]


async def test_a_part_carries_its_version_and_no_frame(plane: TestPlane) -> None:
    worker = await plane.running()
    visitor = await signed_in(plane, Role.OPERATOR)
    part = await visitor.part(f"/workers/{worker['id']}/now")
    assert f'data-version="{worker["version"]}"' in part
    assert f'data-refresh="/workers/{worker["id"]}/now"' in part
    assert "<html" not in part
    before = re.search(r'data-version="(\d+)"', await visitor.part(f"/workers/{worker['id']}/timeline"))
    await plane.report(worker, "RUNNING", public_ip="192.0.2.8")
    after = re.search(r'data-version="(\d+)"', await visitor.part(f"/workers/{worker['id']}/timeline"))
    assert before is not None
    assert after is not None
    assert int(after.group(1)) > int(before.group(1))


async def test_a_held_worker_shows_its_hold(plane: TestPlane) -> None:
    worker = await commanded(plane, "hold", reason="exam", until="2100-01-01T00:00:00Z")
    page = await (await signed_in(plane, Role.OPERATOR)).page(f"/workers/{worker['id']}")
    assert "On hold</strong> by operator" in page
    assert "“exam”" in page
    assert '<time datetime="2100-01-01T00:00:00+00:00"' in page
    assert "Change the hold…" in page


def timeline_texts(page: str) -> list[str]:
    found = re.findall(r'<div class="what">(.*?)</div>', page, flags=re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", each).split()) for each in found]


async def test_the_timeline_goes_back_to_the_beginning(plane: TestPlane) -> None:
    worker = await plane.running()
    for number in range(JOURNAL_ENTRIES_PER_PAGE):
        worker = await plane.report(worker, "RUNNING", reason=f"check {number}", public_ip=f"192.0.2.{number}")
    await plane.ask("POST", f"/api/workers/{worker['id']}/stop", json={"reason": "enough"})
    visitor = await signed_in(plane, Role.VIEWER)
    address, page = f"/workers/{worker['id']}", ""
    texts: list[str] = []
    for _ in range(10):
        page = await visitor.page(address)
        texts += timeline_texts(page)
        following = re.search(r'href="([^"]+)#timeline" rel="next"', page)
        if following is None:
            break
        address = following.group(1)
    assert texts[0] == "operator requested a stop “enough”"
    assert texts[-1] == "operator created it PENDING"
    assert [text for text in texts if "check" in text] == [
        f"worker-controller reported: check {number}" for number in reversed(range(JOURNAL_ENTRIES_PER_PAGE))
    ]
    assert "« Newest" in page
    assert len(texts) == 1 + JOURNAL_ENTRIES_PER_PAGE + 4


async def test_an_invalid_cursor_shows_the_newest_entries(plane: TestPlane) -> None:
    worker = await plane.running()
    visitor = await signed_in(plane, Role.VIEWER)
    assert "created it" in await visitor.page(f"/workers/{worker['id']}?before=nonsense")


async def test_a_worker_that_does_not_exist_has_a_page_that_says_so(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    page = await visitor.page("/workers/w-none", 404)
    assert "There is no worker w-none" in page
    assert 'href="/fleet?view=ended"' in page
    assert "Hold the fleet" not in page
    assert "data-worker-id" not in page
    assert "<script>" not in await visitor.page("/workers/%3Cscript%3Ealert(1)%3C%2Fscript%3E", 404)
    for part in ("now", "timeline", "edit", "license/register"):
        role = Role.OPERATOR if part in ("edit", "license/register") else Role.VIEWER
        text = await (await signed_in(plane, role)).part(f"/workers/w-none/{part}", 404)
        assert "there is no worker w-none" in text


async def test_the_page_requires_a_sign_in(plane: TestPlane) -> None:
    worker = await plane.running()
    for path in ("", "/now", "/timeline", "/plots", "/edit", "/license/register"):
        response = await WebVisitor(plane).ask("GET", f"/workers/{worker['id']}{path}")
        assert (response.status_code, response.headers["location"].partition("?")[0]) == (303, "/sign-in")
