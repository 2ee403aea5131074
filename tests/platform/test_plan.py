"""The plan is what then happens: under a hold, without a leader, and for lablets that wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lcm.cli.commands import plan as plan_command
from lcm.cli.runtime.options import OutputFormat
from lcm.cml.types import CMLActivityEvent
from lcm.core import clock
from lcm.core.controller.config import ReconciliationConfig
from lcm.model.access import Role
from lcm.model.fleet.plan import DecisionState, FleetPlan
from lcm.model.lablet.record import LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import WorkerStatus
from tests.platform.test_dry_runs import a_session
from tests.support.virtual.fleet import Fleet, a_fleet
from tests.support.virtual.full_platform import a_whole
from tests.support.virtual.running_workers import launched_by_hand
from tests.support.web.visitor import signed_in

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
        visitor = await signed_in(fleet.plane, Role.ADMIN)
        dialog = unescape(await visitor.part("/fleet/confirm-release"))
        assert f"<strong>alpha</strong>: {first.summary}" in dialog
        assert f"<strong>beta</strong>: {second.summary}" in dialog
        await fleet.people.fleet.release()
        await fleet.until_status(alpha.id, WorkerStatus.TERMINATED)
        await fleet.until_status(beta.id, WorkerStatus.STOPPED)
        assert fleet.calls("TerminateInstances") == fleet.calls("StopInstances") == 1


async def test_the_command_prints_the_whole_plan_for_programs_if_it_is_asked_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        await fleet.running("alpha")
        await fleet.people.fleet.hold(HOLD)

        async def printed(output: OutputFormat, *, full: bool) -> Any:
            capsys.readouterr()
            await plan_command.plan(a_session(fleet, dry_run=False, output=output), full=full)
            return yaml.safe_load(capsys.readouterr().out)

        whole = FleetPlan.model_validate(await printed(OutputFormat.YAML, full=True))
        served = await the_plan(fleet)
        assert whole.model_copy(update={"discovery": served.discovery, "pauses": served.pauses}) == served
        assert whole.hold is not None
        assert await printed(OutputFormat.JSON, full=False) == [each.model_dump(mode="json") for each in whole.items]


async def test_the_release_of_a_worker_says_what_waits_for_it() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha")
        await fleet.people.workers.hold(worker.id, HOLD)
        await fleet.people.workers.stop(worker.id)
        await until_planned(fleet, worker.id)
        visitor = await signed_in(fleet.plane, Role.ADMIN)
        path = f"/workers/{worker.id}/confirm/release"
        assert f"Instance {worker.instance_id} will be stopped." in unescape(await visitor.part(path))
        await fleet.people.fleet.hold(HOLD)
        assert "The fleet stays on hold. After its release: Instance" in unescape(await visitor.part(path))
        # The hold of the worker goes on after the release of the fleet, so nothing waits for that.
        assert "Nothing is waiting for the release." in await visitor.part("/fleet/confirm-release")


async def test_pauses_are_planned_with_their_time() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        await fleet.change_settings(idle={"worker_idle_timeout_minutes": 10, "worker_auto_pause_snooze_minutes": 0})
        worker = await fleet.running("alpha")
        used = CMLActivityEvent("start_lab", clock.now(), None)
        fleet.cml_of(worker).events = (used,)

        async def checked() -> bool:
            return (await fleet.worker(worker.id)).last_activity_at is not None

        await fleet.until(checked, "its activity was read", within=900)
        (pause,) = (await the_plan(fleet)).pauses
        assert (pause.worker_id, pause.drain) == (worker.id, False)
        assert used.at + timedelta(minutes=10) <= pause.at <= used.at + timedelta(minutes=16)

        async def paused() -> bool:
            return (await fleet.worker(worker.id)).paused_by_policy

        await fleet.until(paused, "it is paused", within=1800)
        assert abs(clock.now() - pause.at) <= timedelta(seconds=60)


async def test_an_instance_that_the_next_scan_will_import_is_planned() -> None:
    async with a_fleet() as fleet:
        fleet.cml.boot = 0.0  # its CML responds to the first probe
        controller = await fleet.start()

        async def scanned() -> bool:
            return controller.discovery is not None and controller.discovery.scans_count > 0

        await fleet.until(scanned, "the first scan is done", within=300)
        instance = launched_by_hand(fleet, "stranger", {"cml-managed": "true"}).id

        async def listed() -> bool:
            plan = (await the_plan(fleet)).discovery
            return plan is not None and [each.instance_id for each in plan.imports] == [instance]

        await fleet.until(listed, "its import is planned", within=120)
        plan = (await the_plan(fleet)).discovery
        assert plan is not None
        assert (plan.imports_total, plan.imports[0].name) == (1, "stranger")
        assert plan.next_scan_at is not None

        async def imported() -> bool:
            return any([each.instance_id == instance async for each in fleet.people.workers.list()])

        await fleet.until(imported, "it is imported", within=600)
        assert clock.now() - plan.next_scan_at <= timedelta(seconds=60)


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
        assert plan.evaluation.startswith("no worker controller has led since")
        item = await planned(fleet, worker.id)
        assert (item.state, item.note) == (DecisionState.UNDECIDED, f"not decided yet: {plan.evaluation}")
        explained = await fleet.people.workers.explain(worker.id)
        assert "Not decided yet: no worker controller has led since" in explained.summary


async def test_the_release_of_the_fleet_does_not_deny_what_is_not_decided_yet() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker, other = await fleet.running("alpha"), await fleet.running("beta")
        await fleet.people.fleet.hold(HOLD)
        visitor = await signed_in(fleet.plane, Role.ADMIN)

        async def answers() -> tuple[str, str]:
            preview = await fleet.people.fleet.preview_release()
            return unescape(await visitor.part("/fleet/confirm-release")), preview.effect

        async def nothing_waits() -> bool:
            return "Nothing is waiting for the release." in (await answers())[0]

        await fleet.until(nothing_waits, "all is decided, and nothing waits", within=300)
        await fleet.controllers.pop("one").stop()
        await fleet.people.workers.terminate(worker.id)
        assert (await planned(fleet, worker.id)).state is DecisionState.OUTDATED
        for answer in await answers():
            assert "What will happen to 1 worker is not decided yet." in answer
            assert "Nothing is waiting" not in answer
        await fleet.people.workers.hold(other.id, HOLD)
        for answer in await answers():  # its own hold goes on, whatever is decided
            assert "What will happen to 1 worker is not decided yet." in answer


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
