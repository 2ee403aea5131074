"""Idle workers are paused or drained, busy and unobserved ones are not: on the whole platform, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cml.errors import CMLNotReadyError
from lcm.cml.types import CMLActivityEvent
from lcm.core import clock
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.fleet import Fleet, a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.worker.record import Worker


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet(report_interval=600.0) as fleet:
        await fleet.start()
        yield fleet


def somebody_works(fleet: Fleet, worker: Worker, minutes_ago: float = 0.0) -> None:
    """A user starts a lab on the worker."""
    at = clock.now() - timedelta(minutes=minutes_ago)
    server = fleet.cml_of(worker)
    server.events = (*server.events, CMLActivityEvent("start_lab", at, "somebody"))


async def nobody_runs_nodes(fleet: Fleet, worker: Worker) -> None:
    """The worker's CML has no running node."""
    server = fleet.cml_of(worker)
    server.stats = replace(server.stats, running_nodes=0)


async def test_an_idle_worker_is_paused_and_can_be_resumed(fleet: Fleet) -> None:
    """More than WORKER_IDLE_TIMEOUT_MINUTES without activity; after a resume it is snoozed.

    Reference: worker-lifecycle.md#running, idle-and-scaling.md.
    """
    worker = await fleet.running()
    somebody_works(fleet, worker)
    began = asyncio.get_running_loop().time()
    paused = await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=3 * 3600)
    assert 3600 <= asyncio.get_running_loop().time() - began <= 3600 + 600
    assert (paused.pause_reason, paused.auto_pause_count, paused.paused_by_policy) == ("idle_timeout", 1, True)
    assert fleet.controllers["one"].stats()["auto_pause_count"] == 1
    await fleet.people.workers.start(worker.id)
    await fleet.until_ready(worker.id, within=300)
    await asyncio.sleep(3000)
    assert (await fleet.worker(worker.id)).ready


async def test_a_worker_that_is_used_is_not_paused(fleet: Fleet) -> None:
    """idle-and-scaling.md: events of user intent keep it running."""
    worker = await fleet.running()
    for _ in range(6):
        somebody_works(fleet, worker)
        await asyncio.sleep(1800)
    assert (await fleet.worker(worker.id)).ready


@pytest.mark.parametrize("failing", ["failing", "empty", "hanging"])
async def test_no_worker_is_paused_when_activity_events_are_missing(fleet: Fleet, failing: str) -> None:
    """idle-and-scaling.md: missing activity events are not idleness, however long."""
    worker = await fleet.running()
    server = fleet.cml_of(worker)
    if failing == "failing":
        server.failures["activity"] = CMLNotReadyError("198.18.0.1", "no connection")
    elif failing == "hanging":
        server.hanging.add("activity")
    await asyncio.sleep(3 * 3600)
    held = await fleet.worker(worker.id)
    assert (held.status, held.desired_status, held.auto_pause_count) == ("RUNNING", "RUNNING", 0)


async def test_events_of_a_dedicated_account_keep_no_worker_running() -> None:
    """idle-and-scaling.md: CML_DEDICATED_ACCOUNT=true."""
    async with a_fleet(dedicated_account=True) as fleet:
        await fleet.start()
        worker = await fleet.running()
        server = fleet.cml_of(worker)
        for _ in range(16):
            server.events = (*server.events, CMLActivityEvent("start_lab", clock.now(), "id-of-admin"))
            await asyncio.sleep(300)
        assert (await fleet.worker(worker.id)).status is WorkerStatus.STOPPED


async def test_scale_down_drains_down_to_the_floor_and_keeps_its_cooldown(fleet: Fleet) -> None:
    """Five guards in order, each skip under its label; MIN_WORKERS holds inside one pass.

    Reference: worker-lifecycle.md#running, idle-and-scaling.md.
    """
    await fleet.change_settings(
        idle={"worker_auto_pause_enabled": False},
        scaling={"scale_down_enabled": True, "min_workers": 1, "scale_down_cooldown_seconds": 1200},
    )
    workers = [await fleet.running(f"w{number}") for number in range(3)]
    for worker in workers:
        somebody_works(fleet, worker)
        await nobody_runs_nodes(fleet, worker)
    await asyncio.sleep(3 * 3600)
    after = [await fleet.worker(worker.id) for worker in workers]
    assert sorted(worker.status.value for worker in after) == ["RUNNING", "STOPPED", "STOPPED"]
    labels = {label for worker in workers for label in await fleet.audits(worker.id)}
    assert {"skipped_not_idle", "skipped_min_workers", "skipped_cooldown"} <= labels
    assert {"scale_down_initiated", "drained"} <= labels
    assert fleet.controllers["one"].stats()["scale_down_drain_count"] == 2


async def test_with_both_switched_on_auto_pause_acts_and_scale_down_says_that_it_stood_back(fleet: Fleet) -> None:
    """idle-and-scaling.md: IDLE_ACTION=pause is the default."""
    await fleet.change_settings(scaling={"scale_down_enabled": True})
    worker = await fleet.running()
    somebody_works(fleet, worker)
    await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=3 * 3600)
    labels = await fleet.audits(worker.id)
    assert "skipped_auto_pause" in labels
    assert "auto_paused" in labels
    assert "scale_down_initiated" not in labels


async def test_the_other_way_round_scale_down_drains_and_auto_pause_stands_back(fleet: Fleet) -> None:
    """idle-and-scaling.md: IDLE_ACTION=drain."""
    await fleet.change_settings(idle={"idle_action": "drain"}, scaling={"scale_down_enabled": True})
    worker = await fleet.running()
    somebody_works(fleet, worker)
    await nobody_runs_nodes(fleet, worker)
    stopped = await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=3 * 3600)
    assert stopped.auto_pause_count == 1
    assert "DRAINING" in await fleet.steps(worker.id)
    assert "scale_down_initiated" in await fleet.audits(worker.id)


async def test_the_cooldown_holds_after_a_change_of_leader(fleet: Fleet) -> None:
    """idle-and-scaling.md: after a change of leader the cooldown still holds, and so does the floor."""
    await fleet.change_settings(
        idle={"worker_auto_pause_enabled": False},
        scaling={"scale_down_enabled": True, "scale_down_cooldown_seconds": 7200},
    )
    workers = [await fleet.running(f"w{number}") for number in range(2)]
    for worker in workers:
        somebody_works(fleet, worker)
        await nobody_runs_nodes(fleet, worker)
    await fleet.start("two")

    async def one_left() -> bool:
        statuses = {(await fleet.worker(worker.id)).status for worker in workers}
        return statuses == {WorkerStatus.RUNNING, WorkerStatus.STOPPED}

    await fleet.until(one_left, "one is drained", within=3 * 3600)
    assert fleet.controllers["one"].resign()
    await fleet.until(lambda: fleet.controllers["two"].is_leader, "handed over", within=60)
    await asyncio.sleep(5400)
    assert await one_left()
    await asyncio.sleep(3600)
    assert not await one_left()
