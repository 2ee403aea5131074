"""The plan is what then happens: under a hold, without a leader, and for lablets that wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.core.controller.config import ReconciliationConfig
from lcm.model.access import Role
from lcm.model.fleet.plan import DecisionState, FleetPlan
from lcm.model.lablet.record import LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.fleet import Fleet, a_fleet
from tests.support.virtual.full_platform import a_whole

if TYPE_CHECKING:
    from lcm.model.fleet.plan import PlannedWorker

HOLD = HoldRequest(reason="exam")


async def the_plan(fleet: Fleet) -> FleetPlan:
    return await fleet.people.fleet.plan_overview()


async def planned(fleet: Fleet, worker_id: str) -> PlannedWorker:
    return next(item for item in (await the_plan(fleet)).items if item.worker_id == worker_id)


async def until_planned(fleet: Fleet, worker_id: str) -> PlannedWorker:
    async def decided() -> bool:
        return bool((await planned(fleet, worker_id)).actions)

    await fleet.until(decided, "an action is planned", within=300)
    return await planned(fleet, worker_id)


async def page(fleet: Fleet, path: str) -> str:
    response = await fleet.plane.ask("GET", path, role=Role.ADMIN)
    assert response.status_code == 200, response.text
    return response.text


async def test_what_waits_for_the_release_of_the_fleet_is_listed_and_then_done() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        alpha, beta = await fleet.running("alpha"), await fleet.running("beta")
        await fleet.people.fleet.hold(HOLD)
        await fleet.people.workers.terminate(alpha.id)
        await fleet.people.workers.stop(beta.id)
        first = await until_planned(fleet, alpha.id)
        assert (first.state, first.on_hold, first.at) == (DecisionState.CURRENT, True, None)
        assert [(action.type, action.detail) for action in first.actions] == [("record_status", "TERMINATING")]
        assert first.summary.startswith(f"It will become TERMINATING; then instance {alpha.instance_id} will be")
        second = await until_planned(fleet, beta.id)
        assert second.summary == f"Instance {beta.instance_id} will be stopped."
        plan = await the_plan(fleet)
        assert (plan.hold is not None, plan.evaluation) == (True, "")
        await fleet.people.fleet.release()
        await fleet.until_status(alpha.id, WorkerStatus.TERMINATED)
        await fleet.until_status(beta.id, WorkerStatus.STOPPED)
        assert fleet.calls("TerminateInstances") == fleet.calls("StopInstances") == 1


async def test_without_a_leader_the_plan_does_not_call_a_termination_steady() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha")

        async def steady() -> bool:
            return (await planned(fleet, worker.id)).state is DecisionState.CURRENT

        await fleet.until(steady, "it is decided", within=120)
        await fleet.controllers.pop("one").stop()
        await fleet.people.workers.terminate(worker.id)
        item = await planned(fleet, worker.id)
        assert (item.state, item.actions) == (DecisionState.OUTDATED, ())
        assert item.note.endswith("before the last change")
        await asyncio.sleep(60)
        plan = await the_plan(fleet)
        assert plan.evaluation.startswith("no worker controller leads since")
        item = await planned(fleet, worker.id)
        assert (item.state, item.note) == (DecisionState.UNDECIDED, f"not decided yet: {plan.evaluation}")
        explained = await fleet.people.workers.explain(worker.id)
        assert "Not decided yet: no worker controller leads since" in explained.summary


async def test_a_new_leader_decides_again() -> None:
    async with a_fleet() as fleet:
        await fleet.start("one")
        worker = await fleet.running("alpha")
        await fleet.controllers.pop("one").stop()
        await fleet.start("two")

        async def current() -> bool:
            return (await planned(fleet, worker.id)).state is DecisionState.CURRENT

        await fleet.until(current, "the next leader has decided", within=300)


async def test_what_the_scheduler_will_do_is_planned_and_then_done() -> None:
    async with a_whole() as whole:
        fleet = whole.fleet
        await whole.define("small", LabletRequirements(cpu_cores=1, memory_gb=1, nodes=1, license=False))
        await whole.define("huge", LabletRequirements(cpu_cores=40, memory_gb=100, nodes=1, license=False))
        worker = await fleet.running("alpha")
        await fleet.people.fleet.hold(HOLD)
        small, huge = await whole.make("small"), await whole.make("huge")
        plan = (await the_plan(fleet)).lablets
        assert plan is not None
        assert plan.blocked.startswith("the fleet is on hold")
        assert [(each.lablet_id, each.worker_id) for each in plan.placements] == [(small.id, worker.id)]
        assert [(each.template, each.worker_id, each.lablets) for each in plan.scale_ups] == [("metal", None, 1)]
        await fleet.people.fleet.release()
        await whole.until_status(small, LabletStatus.RUNNING)
        await whole.until_status(huge, LabletStatus.RUNNING)
        assert (await whole.lablet(small.id)).worker_id == worker.id
        assert (await whole.worker_of(await whole.lablet(huge.id))).template_name == "metal"


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_startup_sweep_is_reported_also_if_it_is_switched_off(enabled: bool) -> None:
    config = ReconciliationConfig(startup_reconcile_enabled=enabled)
    async with a_fleet(config=config) as fleet:
        await fleet.start()

        async def reported() -> bool:
            leaders = (await fleet.people.fleet.summary()).leaders
            return any(each.controller == "worker-controller" and each.startup_sweep_done for each in leaders)

        await fleet.until(reported, "the sweep is reported as done", within=600)
