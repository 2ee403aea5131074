"""The two steps of maintenance by policy: what must hold is checked in the commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers.lifecycle import start, stop
from lcm.control_plane.workers.scaling import change_host
from lcm.model.fleet.settings import FleetSettings, MaintenancePolicy, MaintenanceSettings, ScalingSettings
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Hold, Override, Worker
from lcm.model.worker.requests import MaintenanceRequest
from lcm.model.worker.status import DesiredStatus
from lcm.model.worker.template import Allocation
from tests.support.records.worker_records import CONTROLLER, Desk
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction

PLAN = FleetSettings(maintenance=MaintenanceSettings(maintenance_policy=MaintenancePolicy.PLAN))


def request(step: Literal["stop", "start"], version: int = 1) -> MaintenanceRequest:
    return MaintenanceRequest(step=step, version=version, reason="a retirement is announced")


async def add(desk: Desk, number: int = 1, **facts: Any) -> None:
    facts = {"status": "RUNNING", "desired_status": "RUNNING", "instance_id": f"i-{number}", **facts}
    await desk.add(a_worker(id=f"w-{number}", name=f"n{number}", **facts))


async def take(
    desk: Desk, step: Literal["stop", "start"], number: int = 1, version: int = 1, settings: FleetSettings = PLAN
) -> Worker:
    async def attempt(tx: Transaction) -> Worker:
        return await change_host(tx, f"w-{number}", request(step, version), settings)

    return await desk.unit_of_work.run(CONTROLLER, attempt)


async def test_a_worker_is_stopped_and_started_again(desk: Desk) -> None:
    await add(desk)
    stopped = await take(desk, "stop")
    assert (stopped.desired_status, stopped.pause_reason) == (DesiredStatus.STOPPED, "maintenance")
    assert (stopped.paused_by_policy, len(stopped.maintenance_restarts)) == (True, 1)
    assert stopped.generation == 2
    started = await take(desk, "start", version=stopped.version)
    assert (started.desired_status, started.pause_reason) == (DesiredStatus.RUNNING, None)
    assert len(started.maintenance_restarts) == 1, "until EC2 reports that it is healthy"


@pytest.mark.parametrize(
    ("facts", "settings", "code"),
    [
        ({"allocation": Allocation(lablets=1)}, PLAN, ProblemCode.NOT_POSSIBLE_NOW),
        ({"hold": Hold(reason="look", by="kim", since=NOW)}, PLAN, ProblemCode.HELD),
        ({"status": "DRAINING", "desired_status": "STOPPED"}, PLAN, ProblemCode.NOT_POSSIBLE_NOW),
        ({"maintenance_restarts": (NOW, NOW)}, PLAN, ProblemCode.NOT_POSSIBLE_NOW),
        (
            {"override": Override(desired=DesiredStatus.RUNNING, by="kim", since=NOW)},
            PLAN,
            ProblemCode.NOT_POSSIBLE_NOW,
        ),
        ({}, FleetSettings(), ProblemCode.NOT_POSSIBLE_NOW),
        ({}, PLAN.model_copy(update={"scaling": ScalingSettings(min_workers=1)}), ProblemCode.MIN_WORKERS),
    ],
)
async def test_what_forbids_a_stop(
    desk: Desk, facts: dict[str, Any], settings: FleetSettings, code: ProblemCode
) -> None:
    await add(desk, **facts)
    with pytest.raises(ProblemError) as refusal:
        await take(desk, "stop", settings=settings)
    assert refusal.value.code is code


async def test_an_outdated_decision_changes_nothing(desk: Desk) -> None:
    await add(desk, version=3)
    with pytest.raises(ProblemError) as refusal:
        await take(desk, "stop", version=2)
    assert refusal.value.code is ProblemCode.VERSION_CONFLICT


async def test_of_a_region_one_moves_at_a_time_also_at_the_same_moment(desk: Desk) -> None:
    for number in range(5):
        await add(desk, number)
    await add(desk, 9, aws_region="us-east-1")
    tries = await asyncio.gather(*(take(desk, "stop", number) for number in (*range(5), 9)), return_exceptions=True)
    stopped = [each for each in tries if isinstance(each, Worker)]
    assert sorted(each.aws_region for each in stopped) == ["eu-west-1", "us-east-1"]
    assert all("workers move one at a time" in each.detail for each in tries if isinstance(each, ProblemError))


async def test_a_worker_that_does_not_start_again_keeps_the_others(desk: Desk) -> None:
    await add(desk, 1, status="STOPPED", maintenance_restarts=(NOW,))
    await add(desk, 2)
    with pytest.raises(ProblemError, match="n1 is moving to another host"):
        await take(desk, "stop", 2)


async def test_only_a_worker_in_maintenance_is_started(desk: Desk) -> None:
    await add(desk, status="STOPPED", desired_status="STOPPED", pause_reason="manual")
    with pytest.raises(ProblemError, match="not stopped for maintenance"):
        await take(desk, "start")


async def test_a_person_goes_first(desk: Desk) -> None:
    await add(desk)
    moving = await take(desk, "stop")
    kept = stop(moving, NOW, "exam over")
    assert (kept.desired_status, kept.pause_reason, kept.is_in_maintenance) == ("STOPPED", "exam over", False)
    assert kept.generation == moving.generation + 1
    back = start(moving, NOW)
    assert (back.desired_status, back.pause_reason, back.maintenance_restarts) == ("RUNNING", None, ())
