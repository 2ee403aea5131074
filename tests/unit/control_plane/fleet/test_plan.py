"""Reading the plan is bounded: one computation serves many callers, and not too many wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.fleet.plan import HeldWorkers
from lcm.control_plane.fleet.previews import describe_waiting
from lcm.control_plane.read_gate import MAX_RUNNING, MAX_SMALL_RUNNING, MAX_SMALL_WAITING, MAX_WAITING
from lcm.control_plane.records.kinds import WORKERS, worker_fields
from lcm.control_plane.store.port import Put
from lcm.control_plane.web.rendering import render_fragment
from lcm.model.access import Role
from lcm.model.audit import Actor, ActorKind
from lcm.model.fleet.plan import MAX_LISTED, FleetPlan, LabletPlan, PlannedBookingStep, PlannedLablet
from lcm.model.system import DiscoveryPlan, PlannedImport, PlannedLoss
from lcm.model.worker.record import Worker
from tests.support.virtual.control_plane import TestPlane, serving_plane
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.fleet.plan import PlanParts
    from lcm.control_plane.read_gate import ReadGate
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.fleet.plan import PlannedPause


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


async def test_who_asks_during_a_computation_gets_its_result_unless_something_changed(
    plane: TestPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.create()
    service, computed = plane.services.plan, 0
    original = service._read_parts

    async def counted() -> PlanParts:
        nonlocal computed
        computed += 1
        parts = await original()
        await asyncio.sleep(1)
        return parts

    monkeypatch.setattr(service, "_read_parts", counted)
    first = asyncio.create_task(service.page(None, 100))
    await asyncio.sleep(0.5)
    await asyncio.gather(first, *(service.page(None, 100) for _ in range(5)))
    assert computed == 1
    await asyncio.sleep(5)
    first = asyncio.create_task(service.page(None, 100))
    await asyncio.sleep(0.5)
    await plane.create("beta")
    await asyncio.gather(first, service.page(None, 100))
    assert computed == 3, "a change during the computation is in the next one"


async def test_a_page_is_complete_and_in_order(plane: TestPlane) -> None:
    names = [(await plane.create(f"w{number:03}"))["id"] for number in range(120)]
    plan = await plane.services.plan.page(None, 110)
    rest = await plane.services.plan.page(plan.next_cursor, 110)
    assert [item.worker_id for item in (*plan.items, *rest.items)] == sorted(names)


async def test_a_computed_plan_is_shared_until_something_changes(
    plane: TestPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, computed = plane.services.plan, 0
    original = service._read_parts

    async def counted() -> PlanParts:
        nonlocal computed
        computed += 1
        return await original()

    monkeypatch.setattr(service, "_read_parts", counted)
    worker = await plane.running("alpha")
    for _ in range(3):
        await service.page(None, 10)
    assert computed == 1
    await plane.create("beta")
    assert len((await service.page(None, 10)).items) == 2
    assert computed == 2
    await plane.ask("POST", f"/api/workers/{worker['id']}/license", json={"operation": "register", "token": "a-token"})
    assert (await service.page(None, 10)).license_operations_total == 1
    assert computed == 3
    await service.page(None, 10)
    assert computed == 3
    await asyncio.sleep(2)
    await service.page(None, 10)
    assert computed == 4


async def test_activity_that_is_recorded_without_an_event_moves_a_pause_at_once(plane: TestPlane) -> None:
    ready = {"type": "CmlReady", "status": "True", "since": "2026-01-17T10:30:00Z"}
    worker = await plane.report(await plane.running("alpha"), "RUNNING", conditions=[ready])
    settings = {"idle": {"worker_auto_pause_snooze_minutes": 0}}
    await plane.ask("PATCH", "/api/settings", role=Role.ADMIN, json=settings)
    pauses: list[PlannedPause] = []
    for minutes in (5, 10):

        async def used(tx: Transaction, minutes: int = minutes) -> None:
            found, at = await tx.worker(worker["id"]), tx.now + timedelta(minutes=minutes)
            tx.save_without_event(found.model_copy(update={"last_activity_at": at, "last_idle_check_at": at}))

        await plane.services.context.unit_of_work.run(Actor(kind=ActorKind.SYSTEM, name="test"), used)
        pauses += (await plane.services.plan.page(None, 10)).pauses
    assert pauses[1].at - pauses[0].at == timedelta(minutes=5)


async def test_the_hold_and_the_evaluation_are_read_for_each_request(plane: TestPlane) -> None:
    await plane.create("alpha")
    assert (await plane.services.plan.page(None, 10)).hold is None
    await plane.ask("POST", "/api/fleet/hold", json={"reason": "exam"})
    held = await plane.services.plan.page(None, 10)
    assert held.hold is not None
    assert held.evaluation.startswith("no worker controller has ")


@pytest.mark.parametrize("with_lablets", [False, True])
async def test_a_record_that_cannot_be_read_stops_no_other(plane: TestPlane, with_lablets: bool) -> None:
    for name in ("alpha", "beta"):
        await plane.create(name)
    store, broken = plane.services.context.store, await plane.create("broken")
    if with_lablets:
        topology = {"name": "ospf", "version": "1", "topology": "nodes:\n- id: n0\n"}
        assert (await plane.ask("POST", "/api/lablet-definitions", json=topology)).status_code == 201
        assert (await plane.ask("POST", "/api/lablets", json={"definition": "ospf"})).status_code == 201
    stored = await store.get(WORKERS, broken["id"])
    assert stored is not None
    fields = worker_fields(Worker.model_validate_json(stored.body))
    body = b'{"pending_license_operation":{},"name":"broken"}'
    await store.commit([Put(WORKERS, stored.id, body, stored.revision, fields, {"name": "broken"})])
    response = await plane.ask("GET", "/api/plan", role=Role.VIEWER)
    assert response.status_code == 200, response.text
    assert sorted(item["name"] for item in response.json()["items"]) == ["alpha", "beta"]


async def test_the_release_of_a_large_fleet_counts_all_that_schedules_then_do(plane: TestPlane) -> None:
    for number in range(MAX_LISTED + 5):
        await plane.create(f"w{number:03}")
    never = {"windows": ["daily 00:00-24:00"], "exceptions": ["1970-01-01..2999-12-31 closed"], "zone": "UTC"}
    schedule = {"name": "closed", "selector": {"templates": ["small"]}, **never}
    assert (await plane.ask("POST", "/api/schedules", json=schedule)).status_code == 201
    await plane.ask("POST", "/api/fleet/hold", json={"reason": "exam"})
    effect = (await plane.ask("POST", "/api/fleet/release/preview", role=Role.VIEWER)).json()["effect"]
    dialog = await (await signed_in(plane, Role.OPERATOR)).part("/fleet/confirm-release")
    for text in (effect, dialog):
        assert "85 more workers will be stopped or started by schedules." in text
    plan = (await plane.ask("GET", "/api/plan", role=Role.VIEWER)).json()
    assert (len(plan["schedule_changes"]), plan["schedule_changes_total"]) == (MAX_LISTED, MAX_LISTED + 5)


def test_the_dialog_and_the_preview_of_a_release_say_how_many_more_there_are() -> None:
    step = PlannedBookingStep(
        booking_id="b-1", name="ccna", number=1, launches=1, template="small", aws_region="eu-west-1"
    )
    plan = FleetPlan(
        items=(),
        booking_steps=(step,) * 22,
        booking_steps_total=130,
        lablets=LabletPlan(
            ending=(PlannedLablet(lablet_id="l", lablet_name="old", reason="expired"),) * 21, ending_total=30
        ),
        discovery=DiscoveryPlan(
            imports=(PlannedImport(instance_id="i-1", region="eu-west-1"),) * 21,
            imports_total=40,
            losses=(PlannedLoss(worker_id="w-1", name="lost"),) * 21,
            losses_total=50,
        ),
    )
    dialog = render_fragment("fleet/_confirm_release.html", plan=plan, held=HeldWorkers(), shown=20, user=None)
    text = bytes(dialog.body).decode()
    assert "<li>110 more classes will be given workers.</li>" in text
    assert "<li>10 more lablets will end.</li>" in text
    assert "<li>20 more instances will be imported.</li>" in text
    assert "<li>30 more workers will be marked as lost.</li>" in text
    assert "110 more classes will be given workers." in describe_waiting(HeldWorkers(), plan)


async def test_the_release_of_a_fleet_lists_what_schedules_then_do(plane: TestPlane) -> None:
    night, kept = await plane.create("night"), await plane.create("kept")
    never = {"windows": ["daily 00:00-24:00"], "exceptions": ["1970-01-01..2999-12-31 closed"], "zone": "UTC"}
    schedule = {"name": "closed", "selector": {"names": ["night", "kept"]}, **never}
    assert (await plane.ask("POST", "/api/schedules", json=schedule)).status_code == 201
    await plane.ask("POST", f"/api/workers/{kept['id']}/hold", json={"reason": "its own"})
    await plane.ask("POST", "/api/fleet/hold", json={"reason": "exam"})
    effect = (await plane.ask("POST", "/api/fleet/release/preview", role=Role.VIEWER)).json()["effect"]
    assert "night: It will be stopped: schedule closed is closed" in effect
    assert "kept" not in effect
    visitor = await signed_in(plane, Role.OPERATOR)
    dialog = await visitor.part("/fleet/confirm-release")
    assert "<strong>night</strong>: It will be stopped: schedule closed is closed" in dialog
    assert "kept" not in dialog
    assert night["desired_status"] == "RUNNING"
