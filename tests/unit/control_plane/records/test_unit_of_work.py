"""Transactions: all or nothing, with history, audit and fence in the same commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import ALL_KINDS, AUDIT, LEADERSHIPS, WORKER_CHANGED, WORKER_HISTORY
from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.control_plane.store.port import Put
from lcm.control_plane.workers.lifecycle import start, stop, terminate
from lcm.control_plane.workers.status_writes import apply_status
from lcm.model.fleet.settings import DriftPolicy
from lcm.model.problems import ProblemCode
from lcm.model.worker.requests import WorkerStatusUpdate
from lcm.model.worker.status import DesiredStatus
from tests.support.records.worker_records import ANNA, CONTROLLER, Desk
from tests.support.records.workers import a_worker

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker


async def stop_it(tx: Transaction) -> Worker:
    worker = await tx.worker("w-1")
    return tx.save_worker(stop(worker, tx.now), "stop", "evening")


async def test_record_history_audit_and_event_are_one_commit(desk: Desk) -> None:
    await desk.add(a_worker())
    assert desk.commits == 1
    (step,), (line,), (event,) = (
        await desk.entries(WORKER_HISTORY),
        await desk.entries(AUDIT),
        await desk.entries(WORKER_CHANGED),
    )
    assert (step["from_status"], step["to_status"], step["actor"]["name"]) == (None, "PENDING", "anna")
    assert (line["action"], line["subject"]) == ("created", "w-1")
    assert (event["id"], event["status"]) == ("w-1", "PENDING")


async def test_fields_change_without_a_step_in_the_history(desk: Desk) -> None:
    await desk.add(a_worker())
    await desk.unit_of_work.run(ANNA, stop_it)
    assert len(await desk.entries(WORKER_HISTORY)) == 1
    assert [line["action"] for line in await desk.entries(AUDIT)] == ["created", "stop"]
    assert (await desk.worker()).desired_status is DesiredStatus.STOPPED


async def test_a_command_that_changes_nothing_writes_nothing(desk: Desk) -> None:
    await desk.add(a_worker())
    await desk.unit_of_work.run(ANNA, stop_it)
    await desk.unit_of_work.run(ANNA, stop_it)
    assert desk.commits == 2
    assert (await desk.worker()).version == 2


async def test_no_concurrent_change_is_lost(desk: Desk) -> None:
    await desk.add(a_worker(status="RUNNING"))

    async def toggle(tx: Transaction) -> None:
        worker = await tx.worker("w-1")
        wants = stop if worker.desired_status is DesiredStatus.RUNNING else start
        tx.save_worker(wants(worker, tx.now), "toggle")

    await asyncio.gather(*(desk.unit_of_work.run(ANNA, toggle) for _ in range(10)))
    worker = await desk.worker()
    assert worker.version == 11
    assert (worker.manual_pause_count, worker.manual_resume_count) == (5, 5)


async def test_a_rejected_request_changes_nothing(desk: Desk) -> None:
    await desk.add(a_worker(status="TERMINATED"))
    with pytest.raises(ProblemError):
        await desk.unit_of_work.run(ANNA, stop_it)
    assert desk.commits == 1


async def test_an_unknown_worker_is_not_found(desk: Desk) -> None:
    with pytest.raises(ProblemError) as caught:
        await desk.unit_of_work.run(ANNA, stop_it)
    assert caught.value.code is ProblemCode.NOT_FOUND


async def test_names_are_unique_among_workers_that_are_not_terminated(desk: Desk) -> None:
    await desk.add(a_worker())
    with pytest.raises(ProblemError) as caught:
        await desk.add(a_worker(id="w-2"))
    assert (caught.value.code, caught.value.current) == (ProblemCode.NAME_TAKEN, {"worker_id": "w-1"})

    async def end(tx: Transaction) -> None:
        worker = terminate(await tx.worker("w-1"), tx.now)
        write = WorkerStatusUpdate.model_validate(
            {"status": "TERMINATED", "version": worker.version, "reason": "none launched"}
        )
        tx.save_worker(apply_status(worker, write, DriftPolicy.RESTORE, tx.now), "status")

    await desk.unit_of_work.run(ANNA, end)
    await desk.add(a_worker(id="w-2"))


async def test_one_instance_is_one_worker_even_when_two_imports_race(desk: Desk) -> None:
    imports = [desk.add(a_worker(id=f"w-{n}", name=f"n{n}", instance_id="i-1", status="RUNNING")) for n in range(5)]
    results = await asyncio.gather(*imports, return_exceptions=True)
    assert sum(result is None for result in results) == 1
    assert all(result is None or isinstance(result, ProblemError) for result in results)


# Fencing


def report(term: int, status: str = "PROVISIONING", **body: Any) -> Any:
    async def attempt(tx: Transaction) -> None:
        await tx.fence("worker-controller", term)
        worker = await tx.worker("w-1")
        write = WorkerStatusUpdate.model_validate(
            {"status": status, "version": worker.version, "reason": "seen", **body}
        )
        tx.save_worker(apply_status(worker, write, DriftPolicy.RESTORE, tx.now), "status", term=term)

    return attempt


async def announce(desk: Desk, term: int, *, swept: bool = False) -> None:
    async def attempt(tx: Transaction) -> None:
        await tx.fence("worker-controller", term, announce=True, swept=swept)

    await desk.unit_of_work.run(CONTROLLER, attempt)


async def test_an_older_term_is_rejected_and_changes_nothing(desk: Desk) -> None:
    await desk.add(a_worker())
    await announce(desk, 7)
    with pytest.raises(ProblemError, match="lcm leadership reset worker-controller") as caught:
        await desk.unit_of_work.run(CONTROLLER, report(6))
    assert (caught.value.code, caught.value.current) == (ProblemCode.STALE_LEADER, {"term": 7})
    assert (await desk.worker()).status == "PENDING"
    await desk.unit_of_work.run(CONTROLLER, report(7))
    assert (await desk.worker()).status == "PROVISIONING"


async def test_the_highest_term_survives_a_restart(desk: Desk) -> None:
    await announce(desk, 7)
    again = MemoryStore(desk.store.disk)
    await again.open(ALL_KINDS)
    desk.store, desk.unit_of_work = again, UnitOfWork(again)
    with pytest.raises(ProblemError):
        await announce(desk, 6)


async def test_a_newer_term_is_stored_with_its_first_write(desk: Desk) -> None:
    await desk.add(a_worker())
    await desk.unit_of_work.run(CONTROLLER, report(9))
    with pytest.raises(ProblemError):
        await announce(desk, 8)


async def test_an_old_leader_cannot_slip_in_while_the_new_one_announces_itself(desk: Desk) -> None:
    """The old leader's write was checked before the announcement was committed, and is committed after it."""
    await desk.add(a_worker())
    await announce(desk, 7)
    outcomes: list[str] = []

    async def old() -> None:
        async def attempt(tx: Transaction) -> None:
            await tx.fence("worker-controller", 7)
            worker = await tx.worker("w-1")
            if not outcomes:
                outcomes.append("checked")
                await announce(desk, 8)  # exactly between the check and the commit
            write = WorkerStatusUpdate.model_validate({"status": "FAILED", "version": worker.version, "reason": "late"})
            tx.save_worker(apply_status(worker, write, DriftPolicy.RESTORE, tx.now), "status")

        await desk.unit_of_work.run(CONTROLLER, attempt)

    with pytest.raises(ProblemError) as caught:
        await old()
    assert caught.value.code is ProblemCode.STALE_LEADER
    assert (await desk.worker()).status == "PENDING"


async def test_the_sweep_is_reported_for_the_present_term_only(desk: Desk) -> None:
    """worker-lifecycle.md#startup-sweep: who waits for it relies on the present leader."""
    await announce(desk, 7)
    await announce(desk, 7, swept=True)
    await announce(desk, 7)
    await announce(desk, 8)
    lines = [(line["action"], line["details"]["term"]) for line in await desk.entries(AUDIT)]
    assert lines == [("leadership_announced", 7), ("leadership_swept", 7), ("leadership_announced", 8)]


async def test_term_0_is_rejected_before_and_after_a_reset(desk: Desk) -> None:
    await desk.add(a_worker())
    with pytest.raises(ProblemError) as caught:
        await announce(desk, 0)
    assert caught.value.code is ProblemCode.STALE_LEADER
    await announce(desk, 7)
    await desk.unit_of_work.run(ANNA, lambda tx: tx.reset_leadership("worker-controller"))
    with pytest.raises(ProblemError):
        await desk.unit_of_work.run(CONTROLLER, report(0))
    assert (await desk.worker()).status == "PENDING"


async def test_after_a_reset_a_leader_announces_itself_before_it_writes(desk: Desk) -> None:
    """Otherwise nobody would know that it has to verify all workers again, and lablets would wait for that for ever."""
    await desk.add(a_worker())
    await announce(desk, 7)
    await desk.unit_of_work.run(ANNA, lambda tx: tx.reset_leadership("worker-controller"))
    with pytest.raises(ProblemError, match="was not announced to this store") as caught:
        await desk.unit_of_work.run(CONTROLLER, report(7))
    assert caught.value.code is ProblemCode.STALE_LEADER
    await announce(desk, 2)
    await desk.unit_of_work.run(CONTROLLER, report(2))
    assert (await desk.worker()).status == "PROVISIONING"


async def test_after_a_restored_backup_a_leader_announces_itself_before_it_writes(desk: Desk) -> None:
    """The store knows an older term and nothing of our sweep: its records must be verified again."""
    await desk.add(a_worker())
    await announce(desk, 3, swept=True)
    backup = await desk.store.get(LEADERSHIPS, "worker-controller")
    assert backup is not None
    await announce(desk, 7)
    await announce(desk, 7, swept=True)
    current = await desk.store.get(LEADERSHIPS, "worker-controller")
    assert current is not None
    await desk.store.commit([Put(LEADERSHIPS, "worker-controller", backup.body, current.revision)])
    with pytest.raises(ProblemError, match="a backup was restored") as caught:
        await desk.unit_of_work.run(CONTROLLER, report(7))
    assert caught.value.code is ProblemCode.STALE_LEADER
    assert (await desk.worker()).status == "PENDING"
    await announce(desk, 9)
    await desk.unit_of_work.run(CONTROLLER, report(9))
    assert not await desk.unit_of_work.run(CONTROLLER, lambda tx: tx.startup_sweep_done("worker-controller"))


async def test_a_reset_clears_the_term_and_is_audited(desk: Desk) -> None:
    await announce(desk, 700)

    async def reset(tx: Transaction) -> None:
        await tx.reset_leadership("worker-controller")

    await desk.unit_of_work.run(ANNA, reset)
    await announce(desk, 2)
    assert "leadership_reset" in [line["action"] for line in await desk.entries(AUDIT)]
    with pytest.raises(ProblemError):
        await desk.unit_of_work.run(ANNA, lambda tx: tx.reset_leadership("nobody"))


async def _take_a_turn(tx: Transaction) -> None:
    await tx.take_calendar()  # all of them write it


@pytest.mark.parametrize(("takes", "times"), [(False, 1), (True, 2)])
async def test_only_who_takes_a_turn_loses_it_to_a_change_since_the_calendar_was_read(
    desk: Desk, *, takes: bool, times: int
) -> None:
    attempts = 0

    async def attempt(tx: Transaction) -> None:
        nonlocal attempts
        attempts += 1
        await tx.read_calendar()
        if attempts == 1:
            await desk.unit_of_work.run(ANNA, _take_a_turn)
        if takes:
            await tx.take_calendar()
        tx.audit("counted", "fleet", "")

    await desk.unit_of_work.run(ANNA, attempt)
    assert attempts == times


async def test_a_long_attempt_outlasts_a_burst_of_short_ones(desk: Desk) -> None:
    """Admission reads for many milliseconds, and each commit of another control plane makes it run again."""
    loop = asyncio.get_running_loop()
    burst_ends = loop.time() + 3.0

    async def change() -> None:
        while loop.time() < burst_ends:
            await desk.unit_of_work.run(ANNA, _take_a_turn)
            await asyncio.sleep(0.015)

    async def slowly(tx: Transaction) -> str:
        await _take_a_turn(tx)
        await asyncio.sleep(0.02)
        return "done"

    burst = asyncio.create_task(change())
    assert await desk.unit_of_work.run(ANNA, slowly) == "done"
    assert loop.time() >= burst_ends, "it has lost all the time"
    await burst
