"""Reading the plan is bounded: one computation serves many callers, and not too many wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.read_gate import MAX_RUNNING, MAX_SMALL_RUNNING, MAX_SMALL_WAITING, MAX_WAITING
from lcm.model.access import Role
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.read_gate import ReadGate


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


async def status_while_full(
    plane: TestPlane, gate: ReadGate, size: int, requests: list[tuple[str, str, object]]
) -> set[int]:
    """The status codes of requests while the gate is full of reads that do not end."""
    done = asyncio.Event()
    reads = [asyncio.create_task(gate.run(f"read-{number}", done.wait)) for number in range(size)]
    await asyncio.sleep(0)
    try:
        return {
            (await plane.ask(method, path, role=Role.VIEWER, json=body)).status_code for method, path, body in requests
        }
    finally:
        done.set()
        await asyncio.gather(*reads)


async def test_plan_and_release_preview_are_refused_while_too_many_expensive_reads_wait(plane: TestPlane) -> None:
    await plane.create()
    await plane.ask("POST", "/api/fleet/hold", json={"reason": "exam"})
    requests: list[tuple[str, str, object]] = [
        ("GET", "/api/plan", None),
        ("POST", "/api/fleet/release/preview", None),
    ]
    full = await status_while_full(plane, plane.services.context.reads, MAX_RUNNING + MAX_WAITING, requests)
    assert full == {503}
    for method, path, _ in requests:
        assert (await plane.ask(method, path, role=Role.VIEWER)).status_code == 200


async def test_explanations_and_previews_of_workers_have_a_bound_of_their_own(plane: TestPlane) -> None:
    worker = await plane.create()
    path = f"/api/workers/{worker['id']}"
    requests: list[tuple[str, str, object]] = [
        ("GET", f"{path}/explain", None),
        ("POST", f"{path}/preview", {"action": "stop"}),
    ]
    context = plane.services.context
    full = await status_while_full(plane, context.small_reads, MAX_SMALL_RUNNING + MAX_SMALL_WAITING, requests)
    assert full == {503}
    large = await status_while_full(plane, context.reads, MAX_RUNNING + MAX_WAITING, requests)
    assert large == {200}, "they do not wait for the large reads"


async def test_many_who_look_at_once_share_one_computation(plane: TestPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    await plane.create()
    service, count = plane.services.plan, 0
    original = service._lablets

    async def counted(*arguments: object) -> object:
        nonlocal count
        count += 1
        await asyncio.sleep(1)
        return await original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(service, "_lablets", counted)
    plans = await asyncio.gather(*(service.page(None, 100) for _ in range(30)))
    assert {len(plan.items) for plan in plans} == {1}
    assert count <= 3, "the first, one for those who came while it ran, and at most one more"


async def test_a_page_is_complete_and_in_order(plane: TestPlane) -> None:
    names = [(await plane.create(f"w{number:03}"))["id"] for number in range(120)]
    plan = await plane.services.plan.page(None, 110)
    rest = await plane.services.plan.page(plan.next_cursor, 110)
    assert [item.worker_id for item in (*plan.items, *rest.items)] == sorted(names)
