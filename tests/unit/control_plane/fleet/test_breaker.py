"""The control plane counts losses in the commit that writes them, and opens the breaker instead of one too many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.model.access import Role
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from tests.support.virtual.time import VirtualClock

REGION = "eu-west-1"


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


async def fleet_of(plane: TestPlane, count: int, **body: Any) -> list[dict[str, Any]]:
    return [await plane.running(f"n{number}", **body) for number in range(count)]


async def lose(plane: TestPlane, worker: dict[str, Any], status: str = "TERMINATED", **body: Any) -> httpx.Response:
    """A controller reports that the instance is gone."""
    now = (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()
    update = {"status": status, "version": now["version"], "reason": "gone", **body}
    return await plane.ask("POST", f"/api/internal/workers/{worker['id']}/status", role=Role.CONTROLLER, json=update)


async def status_of(plane: TestPlane, worker: dict[str, Any]) -> str:
    return str((await plane.ask("GET", f"/api/workers/{worker['id']}")).json()["status"])


async def breaker(plane: TestPlane) -> dict[str, Any] | None:
    breakers = (await plane.ask("GET", "/api/fleet")).json()["breakers"]
    return breakers[0] if breakers else None


async def reset(plane: TestPlane) -> None:
    assert (await plane.ask("POST", "/api/fleet/breaker/reset", role=Role.ADMIN)).status_code == 202


@pytest.mark.parametrize(("workers", "allowed"), [(1, 1), (2, 1), (6, 1), (10, 2), (13, 2), (15, 3)])
async def test_one_or_a_fifth_may_be_lost_within_half_an_hour(plane: TestPlane, workers: int, allowed: int) -> None:
    """worker-lifecycle.md#breaker: live plus lost, so that the limit does not shrink with the fleet."""
    everybody = await fleet_of(plane, workers)
    for worker in everybody[:allowed]:
        assert (await lose(plane, worker)).status_code == 200
        await asyncio.sleep(300)
    assert await breaker(plane) is None
    for worker in everybody[allowed:]:
        refusal = await lose(plane, worker)
        assert (refusal.status_code, refusal.json()["code"]) == (409, "breaker_open")
        assert await status_of(plane, worker) == "RUNNING"
    if workers > allowed:
        opened = await breaker(plane)
        assert opened is not None
        assert f"{allowed + 1} of {workers} workers lost within 30 minutes" in opened["reason"]
        audit = (await plane.ask("GET", "/api/audit", role=Role.ADMIN, params={"limit": 500})).json()["items"]
        assert [entry["action"] for entry in audit].count("breaker_opened") == 1


async def test_later_losses_do_not_add_up(plane: TestPlane) -> None:
    for worker in await fleet_of(plane, 5):
        assert (await lose(plane, worker)).status_code == 200
        await asyncio.sleep(1801)
    assert await breaker(plane) is None


@pytest.mark.parametrize("opens", ["the control plane", "a controller"])
async def test_a_clock_that_jumps_ahead_does_not_make_it_forget(
    plane: TestPlane, virtual_clock: VirtualClock, opens: str
) -> None:
    first, second, third, *_ = await fleet_of(plane, 5)
    assert (await lose(plane, first)).status_code == 200
    virtual_clock.jumped = 7500.0
    if opens == "a controller":
        report = {"region": REGION, "open": True, "reason": "none", "affected": [third["id"]]}
        await plane.ask("POST", "/api/internal/fleet/breaker", role=Role.CONTROLLER, json=report)
    assert (await lose(plane, second)).status_code == 409
    assert await status_of(plane, second) == "RUNNING"
    state = (await plane.ask("GET", "/api/internal/fleet", role=Role.CONTROLLER)).json()
    assert [loss["worker_id"] for loss in state["losses"][REGION]["counted"]] == [first["id"]]


async def test_a_replaced_worker_is_lost_too_and_counts_once(plane: TestPlane) -> None:
    first, second, *_ = await fleet_of(plane, 5)
    gone = {"instance_id": None, "public_ip": None, "private_ip": None}
    assert (await lose(plane, first, "PENDING", **gone)).status_code == 200
    again = await plane.report(
        (await plane.ask("GET", f"/api/workers/{first['id']}")).json(), "PROVISIONING", instance_id="i-again"
    )
    assert (await lose(plane, again, "FAILED", **gone)).status_code == 200
    assert (await lose(plane, second, "PENDING", **gone)).status_code == 409


async def test_what_people_terminate_is_no_loss(plane: TestPlane) -> None:
    for worker in await fleet_of(plane, 5):
        await plane.ask("DELETE", f"/api/workers/{worker['id']}")
        assert (await lose(plane, worker)).status_code == 200
    assert await breaker(plane) is None


@pytest.mark.parametrize("absent", [True, False])
async def test_a_controller_closes_it_only_if_ec2_shows_the_instances_as_terminated(
    plane: TestPlane, absent: bool
) -> None:
    first, second = await fleet_of(plane, 2)
    await lose(plane, first, instance_absent=absent)
    await lose(plane, second, instance_absent=absent)
    opened = await breaker(plane)
    assert opened is not None
    assert opened["only_a_person_closes"] is absent
    closing = {"region": REGION, "open": False, "reason": "two scans agree"}
    await plane.ask("POST", "/api/internal/fleet/breaker", role=Role.CONTROLLER, json=closing)
    assert (await breaker(plane) is not None) is absent
    assert (await lose(plane, second)).status_code == (409 if absent else 200)


async def test_accepted_losses_do_not_count_again_and_others_do(plane: TestPlane) -> None:
    first, second, third, fourth = await fleet_of(plane, 4)
    await lose(plane, first)
    await lose(plane, second)
    await reset(plane)
    assert (await lose(plane, second)).status_code == 200
    assert (await lose(plane, third)).status_code == 200
    assert (await lose(plane, fourth)).status_code == 409


async def test_a_worker_whose_instance_was_seen_again_counts_again(plane: TestPlane) -> None:
    first, second, third, _ = await fleet_of(plane, 4)
    missing = {"type": "InstanceReady", "status": "Unknown", "reason": "NotVisible", "since": "2026-01-17T10:00:00Z"}
    second = await plane.report(second, "RUNNING", conditions=[missing])
    await lose(plane, first)
    await lose(plane, second)
    await reset(plane)
    back = {**missing, "status": "True", "reason": "Running"}
    await plane.report(second, "RUNNING", conditions=[back])
    assert (await lose(plane, third)).status_code == 200
    assert (await lose(plane, second)).status_code == 409


async def test_a_report_of_a_controller_withholds_and_a_reset_accepts(plane: TestPlane) -> None:
    """A sweep that shows none of the instances names them; a person's reset is about these."""
    workers = await fleet_of(plane, 6)
    affected = [worker["id"] for worker in workers[:5]]
    report = {"region": REGION, "open": True, "reason": "none", "affected": affected, "only_a_person_closes": True}
    await plane.ask("POST", "/api/internal/fleet/breaker", role=Role.CONTROLLER, json=report)
    assert (await lose(plane, workers[0])).status_code == 409
    await reset(plane)
    state = (await plane.ask("GET", "/api/internal/fleet", role=Role.CONTROLLER)).json()
    assert state["losses"][REGION]["accepted"] == sorted(affected)
    for worker in workers:
        assert (await lose(plane, worker)).status_code == 200
    state = (await plane.ask("GET", "/api/internal/fleet", role=Role.CONTROLLER)).json()
    assert state["losses"][REGION]["accepted"] == []


async def test_losses_at_the_same_moment_are_counted_one_after_the_other(plane: TestPlane) -> None:
    workers = await fleet_of(plane, 10)
    answers = await asyncio.gather(*(lose(plane, worker) for worker in workers))
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [409] * 8


async def test_switched_off_nothing_is_counted(plane: TestPlane) -> None:
    await plane.ask("PATCH", "/api/settings", role=Role.ADMIN, json={"discovery": {"breaker_enabled": False}})
    for worker in await fleet_of(plane, 5):
        assert (await lose(plane, worker)).status_code == 200
    assert await breaker(plane) is None
