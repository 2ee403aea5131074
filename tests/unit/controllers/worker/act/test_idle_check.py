"""Idle checks read a worker's activity beside the passes, and say when they cannot."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.cml.errors import CMLNotReadyError
from lcm.cml.types import CMLActivityEvent
from lcm.controllers.worker.deps import Policy
from lcm.core import clock
from lcm.core.controller.reconciliation import ReconciliationConfig
from lcm.model.worker.conditions import ConditionStatus, ConditionType, find_condition
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.urgency import worker_problem
from tests.support.virtual.fleet import a_fleet

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker
    from tests.support.virtual.fleet import Fleet

HOUR = 3600.0
DETECTION = 300.0
NO_PAUSE = {"worker_auto_pause_enabled": False, "idle_detection_interval": DETECTION}


def used(hours: float = 0.0) -> tuple[CMLActivityEvent, ...]:
    """A user just did something on a server this far from UTC, which does not say so; None: it says UTC."""
    return (CMLActivityEvent("start_lab", (clock.now() + timedelta(hours=hours)).replace(tzinfo=None)),)


async def has_condition(fleet: Fleet, worker: Worker, kind: ConditionType, status: ConditionStatus | None) -> bool:
    found = find_condition((await fleet.worker(worker.id)).conditions, kind)
    return (found.status if found else None) is status


async def until_checked(
    fleet: Fleet, worker: Worker, kind: ConditionType, status: ConditionStatus | None, *, within: float
) -> None:
    """Look as often as idle checks happen: each look costs as much as the checks themselves."""
    until = clock.after(within)
    while not await has_condition(fleet, worker, kind, status):
        assert clock.now() < until, f"{kind} is not {status} within {within:g} s"
        await asyncio.sleep(DETECTION / 10)


async def test_telemetry_that_is_missing_is_a_problem_until_it_is_back() -> None:
    """idle-and-scaling.md#idle-detection: auto-pause never switches itself off silently."""
    async with a_fleet(policy=Policy(telemetry_missing_after=HOUR)) as fleet:
        await fleet.change_settings(idle=NO_PAUSE)
        await fleet.start()
        worker = await fleet.running()
        server = fleet.cml_of(worker)
        server.failures["activity"] = CMLNotReadyError("here", "HTTP 500")
        await until_checked(fleet, worker, ConditionType.TELEMETRY_MISSING, ConditionStatus.TRUE, within=2 * HOUR)
        problem = worker_problem(await fleet.worker(worker.id))
        assert problem is not None
        assert "HTTP 500" in problem
        assert await has_condition(fleet, worker, ConditionType.IDLE, ConditionStatus.UNKNOWN)
        server.failures.clear()
        server.events = used()
        await until_checked(fleet, worker, ConditionType.TELEMETRY_MISSING, None, within=HOUR)
        assert await has_condition(fleet, worker, ConditionType.IDLE, ConditionStatus.FALSE)


async def test_a_slow_server_is_checked_all_the_same() -> None:
    """Its answers take 29 s each: a limit of 10 s for all of them was "no telemetry" for ever."""
    async with a_fleet() as fleet:
        await fleet.change_settings(idle=NO_PAUSE)
        await fleet.start()
        worker = await fleet.running()
        fleet.cml_of(worker).seconds = 29.0
        fleet.cml_of(worker).events = used()
        await until_checked(fleet, worker, ConditionType.IDLE, ConditionStatus.FALSE, within=HOUR)


async def test_slow_servers_delay_no_other_worker() -> None:
    """Reads of activity use no slot of the reconciler: two of them took both slots for ten seconds each."""
    async with a_fleet(config=ReconciliationConfig(interval_seconds=30, max_concurrent=2)) as fleet:
        await fleet.change_settings(idle=NO_PAUSE)
        await fleet.start()
        sick = [await fleet.running(f"sick-{number}") for number in range(4)]
        healthy = await fleet.running("healthy")
        for worker in sick:
            fleet.cml_of(worker).hanging.add("activity")
        longest = 0.0
        for _ in range(10):
            await asyncio.sleep(17)
            await fleet.people.workers.stop(healthy.id)
            longest = max(longest, await fleet.until(lambda: fleet.machine(healthy).state.value != "running", "a stop"))
            await fleet.until_status(healthy.id, WorkerStatus.STOPPED)
            await fleet.people.workers.start(healthy.id)
            await fleet.until_ready(healthy.id)
        assert longest < 5


async def test_a_worker_in_use_whose_clock_has_another_zone_is_not_paused() -> None:
    """A CML host at UTC-5 that does not say so looked five hours idle."""
    async with a_fleet() as fleet:
        await fleet.change_settings(
            idle={
                "idle_detection_interval": DETECTION,
                "worker_idle_timeout_minutes": 30.0,
                "worker_auto_pause_snooze_minutes": 0.0,
            }
        )
        await fleet.start()
        worker = await fleet.running()
        for _ in range(9):  # half as long again as the idle timeout
            fleet.cml_of(worker).events = used(hours=-5)
            await asyncio.sleep(DETECTION)
            assert (await fleet.worker(worker.id)).desired_status == "RUNNING"
        await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=2 * HOUR)
