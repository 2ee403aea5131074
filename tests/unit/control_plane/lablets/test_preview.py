"""A dry run says what the scheduler would do, and changes nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.settings import patch_fleet_settings
from lcm.control_plane.fleet.templates import seed_templates
from lcm.control_plane.lablets.preview import preview_lablet
from lcm.control_plane.records.kinds import ALL_KINDS, WORKERS, worker_fields
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.fleet.settings import FleetSettingsPatch
from lcm.model.fleet.state import FleetState
from lcm.model.lablet.placement import PreviewOutcome
from lcm.model.lablet.record import CreateLabletRequest
from lcm.model.worker.record import Hold
from lcm.model.worker.template import Allocation
from tests.support.records.lablet_records import ANNA, LabletDesk, a_ready_worker
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.lablet.placement import LabletPreview
    from lcm.model.worker.record import Worker

TAKEN = Allocation(cpu_cores=2, lablets=2)


def worker(number: int, **changes: Any) -> Worker:
    return a_ready_worker(**{"id": f"w-{number}", "name": f"lab-{number}", "instance_id": f"i-{number}", **changes})


async def preview(*workers: Worker, needs: dict[str, Any] | None = None, **fields: Any) -> LabletPreview:
    desk = await LabletDesk().open(*workers)
    await desk.unit_of_work.run(ANNA.actor, lambda tx: seed_templates(tx, None))
    await desk.define(**(needs or {}))
    before = [await desk.store.find(kind, limit=1000) for kind in ALL_KINDS]
    result = await preview_lablet(desk.plane, desk.directory, ANNA, CreateLabletRequest(definition="ospf", **fields))
    assert [await desk.store.find(kind, limit=1000) for kind in ALL_KINDS] == before
    return result


async def test_the_fullest_matching_worker_is_chosen_and_ties_go_by_id() -> None:
    full = worker(1, allocation=TAKEN)
    half = [worker(number, allocation=Allocation(cpu_cores=1, lablets=1)) for number in (4, 3)]
    result = await preview(full, worker(2), *half)
    assert (result.outcome, result.worker_id, result.cost_per_hour_usd) == (PreviewOutcome.PLACE, "w-3", 0)
    assert [(each.worker_id, round(each.score, 3)) for each in result.candidates] == [
        ("w-3", 0.26), ("w-4", 0.26), ("w-2", 0),
    ]  # fmt: skip
    assert [(each.worker_id, each.reason) for each in result.rejections] == [
        ("w-1", "needs 1 CPU core, but 0 are available")
    ]
    assert (result.candidates_in_all, result.rejected) == (3, 1)


async def test_without_a_matching_worker_the_cheapest_matching_template_is_launched() -> None:
    result = await preview(worker(1, conditions=(), desired_status="STOPPED"), needs={"memory_gb": 3.0})
    assert (result.outcome, result.template, result.aws_region) == (PreviewOutcome.LAUNCH, "medium", "eu-west-1")
    assert result.cost_per_hour_usd == 0.0416
    assert result.reason == "no matching worker now; a medium would be launched in eu-west-1"
    assert result.rejected == 1


async def test_it_is_launched_in_the_requested_region() -> None:
    result = await preview(worker(1), aws_region="us-east-1")
    assert (result.outcome, result.aws_region) == (PreviewOutcome.LAUNCH, "us-east-1")
    assert "it is in eu-west-1" in result.rejections[0].reason


async def test_capacity_on_its_way_is_waited_for() -> None:
    coming = worker(1, status="STARTING", conditions=())
    result = await preview(coming)
    assert (result.outcome, result.worker_id, result.cost_per_hour_usd) == (PreviewOutcome.WAIT, "w-1", 0)
    assert "lab-1, which is STARTING" in result.reason
    assert (await preview(coming, needs={"cpu_cores": 3})).outcome is PreviewOutcome.LAUNCH


async def test_one_that_a_policy_stopped_would_be_resumed() -> None:
    stopped = {"status": "STOPPED", "desired_status": "STOPPED", "conditions": (), "template_name": "micro"}
    result = await preview(worker(1, **stopped), worker(2, **stopped, paused_by_policy=True))
    assert (result.outcome, result.worker_id, result.template) == (PreviewOutcome.RESUME, "w-2", "micro")
    assert result.cost_per_hour_usd == 0.0104


async def test_requirements_above_every_template_would_fail() -> None:
    result = await preview(needs={"cpu_cores": 99})
    assert (result.outcome, result.template) == (PreviewOutcome.REFUSE, None)
    assert "no worker template is large enough" in result.reason
    assert "it would fail" in result.reason


async def test_a_full_region_or_a_fleet_on_hold_lets_it_wait() -> None:
    desk = await LabletDesk().open(a_worker(status="FAILED"))
    await desk.define()

    async def prepare(tx: Transaction) -> None:
        await seed_templates(tx, None)
        await patch_fleet_settings(
            tx, desk.plane.base_settings, FleetSettingsPatch(scaling={"max_workers_per_region": 1})
        )

    await desk.unit_of_work.run(ANNA.actor, prepare)
    result = await preview_lablet(desk.plane, desk.directory, ANNA, CreateLabletRequest(definition="ospf"))
    assert (result.outcome, result.template) == (PreviewOutcome.WAIT, None)
    assert "1 worker is in eu-west-1 and MAX_WORKERS_PER_REGION is 1" in result.reason

    async def hold(tx: Transaction) -> None:
        await tx.fleet()
        tx.save_fleet(FleetState(hold=Hold(reason="outage", by="bob", since=NOW)))

    await desk.unit_of_work.run(ANNA.actor, hold)
    result = await preview_lablet(desk.plane, desk.directory, ANNA, CreateLabletRequest(definition="ospf"))
    assert (result.outcome, result.reason) == (PreviewOutcome.WAIT, "the fleet is on hold by bob: outage")


async def test_an_invalid_request_has_no_preview() -> None:
    with pytest.raises(ProblemError, match="ends_at"):
        await preview(ends_at=NOW)
    with pytest.raises(ProblemError, match="aws_region"):
        await preview(aws_region="mars-1")


async def test_lablets_that_wait_already_take_their_share_first() -> None:
    desk = await LabletDesk().open(worker(1))
    await desk.unit_of_work.run(ANNA.actor, lambda tx: seed_templates(tx, None))
    await desk.define(cpu_cores=2)
    request = CreateLabletRequest(definition="ospf")
    assert (await preview_lablet(desk.plane, desk.directory, ANNA, request)).outcome is PreviewOutcome.PLACE
    await desk.people.create(ANNA, request)
    await asyncio.sleep(1)  # of two that came at the same moment, the id decides
    result = await preview_lablet(desk.plane, desk.directory, ANNA, request)
    assert (result.outcome, result.candidates) == (PreviewOutcome.LAUNCH, ())
    assert [each.reason for each in result.rejections] == ["needs 2 CPU cores, but 0 are available"]


async def test_no_worker_is_promised_whose_template_has_just_failed() -> None:
    failed = worker(
        1, status="FAILED", status_since=clock.now(), conditions=(), origin="scale-up", template_name="micro"
    )
    result = await preview(failed)
    assert (result.outcome, result.template) == (PreviewOutcome.WAIT, None)
    assert "worker lab-1 of template micro was launched and failed" in result.reason


async def test_a_later_start_waits_for_its_time() -> None:
    result = await preview(worker(1), starts_at=clock.now() + timedelta(hours=2))
    assert result.outcome is PreviewOutcome.WAIT
    assert "it starts later; the search for a worker begins at" in result.reason


async def test_placement_that_waits_for_the_worker_controller_is_mentioned() -> None:
    desk = await LabletDesk().open(worker(1), swept=False)
    await desk.define()
    result = await preview_lablet(desk.plane, desk.directory, ANNA, CreateLabletRequest(definition="ospf"))
    assert result.outcome is PreviewOutcome.PLACE
    assert result.blocked == "placement waits until the worker controller has verified all workers"


async def test_a_record_that_cannot_be_read_is_skipped_and_counted() -> None:
    desk = await LabletDesk().open(worker(1), worker(2))
    await desk.define()
    stored = await desk.store.get(WORKERS, "w-1")
    assert stored is not None
    broken = stored.body.replace(b'"max_nodes":', b'"max_knots":')
    assert broken != stored.body
    await desk.store.commit([Put(WORKERS, "w-1", broken, stored.revision, worker_fields(worker(1)))])
    result = await preview_lablet(desk.plane, desk.directory, ANNA, CreateLabletRequest(definition="ospf"))
    assert (result.outcome, result.worker_id, result.skipped) == (PreviewOutcome.PLACE, "w-2", 1)
