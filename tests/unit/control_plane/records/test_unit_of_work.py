"""Changes of records: together or not at all, with history, audit and fence in the same commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import ALL_KINDS, AUDIT, WORKER_CHANGED, WORKER_HISTORY
from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
from lcm.control_plane.store.memory.store import MemoryStore
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


async def stop_it(change: Transaction) -> Worker:
    worker = await change.worker("w-1")
    return change.save(stop(worker, change.now), "stop", "evening")


async def test_record_history_audit_and_event_are_one_commit(desk: Desk) -> None:
    await desk.add(a_worker())
    assert desk.commits == 1
    (step,), (line,), (event,) = (
        await desk.told(WORKER_HISTORY),
        await desk.told(AUDIT),
        await desk.told(WORKER_CHANGED),
    )
    assert (step["from_status"], step["to_status"], step["actor"]["name"]) == (None, "PENDING", "anna")
    assert (line["action"], line["subject"]) == ("created", "w-1")
    assert (event["id"], event["status"]) == ("w-1", "PENDING")


async def test_fields_change_without_a_step_in_the_history(desk: Desk) -> None:
    await desk.add(a_worker())
    await desk.records.change(ANNA, stop_it)
    assert len(await desk.told(WORKER_HISTORY)) == 1
    assert [line["action"] for line in await desk.told(AUDIT)] == ["created", "stop"]
    assert (await desk.worker()).desired_status is DesiredStatus.STOPPED


async def test_a_command_that_changes_nothing_writes_nothing(desk: Desk) -> None:
    await desk.add(a_worker())
    await desk.records.change(ANNA, stop_it)
    await desk.records.change(ANNA, stop_it)
    assert desk.commits == 2
    assert (await desk.worker()).version == 2


async def test_of_changes_at_once_none_is_lost(desk: Desk) -> None:
    await desk.add(a_worker(status="RUNNING"))

    async def toggle(change: Transaction) -> None:
        worker = await change.worker("w-1")
        wants = stop if worker.desired_status is DesiredStatus.RUNNING else start
        change.save(wants(worker, change.now), "toggle")

    await asyncio.gather(*(desk.records.change(ANNA, toggle) for _ in range(10)))
    worker = await desk.worker()
    assert worker.version == 11
    assert (worker.manual_pause_count, worker.manual_resume_count) == (5, 5)


async def test_a_refusal_changes_nothing(desk: Desk) -> None:
    await desk.add(a_worker(status="TERMINATED"))
    with pytest.raises(ProblemError):
        await desk.records.change(ANNA, stop_it)
    assert desk.commits == 1


async def test_an_unknown_worker_is_not_found(desk: Desk) -> None:
    with pytest.raises(ProblemError) as caught:
        await desk.records.change(ANNA, stop_it)
    assert caught.value.code is ProblemCode.NOT_FOUND


async def test_names_are_unique_among_workers_that_are_not_terminated(desk: Desk) -> None:
    await desk.add(a_worker())
    with pytest.raises(ProblemError) as caught:
        await desk.add(a_worker(id="w-2"))
    assert (caught.value.code, caught.value.current) == (ProblemCode.NAME_TAKEN, {"worker_id": "w-1"})

    async def end(change: Transaction) -> None:
        worker = terminate(await change.worker("w-1"), change.now)
        write = WorkerStatusUpdate.model_validate(
            {"status": "TERMINATED", "version": worker.version, "reason": "none launched"}
        )
        change.save(apply_status(worker, write, DriftPolicy.RESTORE, change.now), "status")

    await desk.records.change(ANNA, end)
    await desk.add(a_worker(id="w-2"))


async def test_one_instance_is_one_worker_even_when_two_imports_race(desk: Desk) -> None:
    imports = [desk.add(a_worker(id=f"w-{n}", name=f"n{n}", instance_id="i-1", status="RUNNING")) for n in range(5)]
    results = await asyncio.gather(*imports, return_exceptions=True)
    assert sum(result is None for result in results) == 1
    assert all(result is None or isinstance(result, ProblemError) for result in results)


# Fencing


def report(term: int, status: str = "PROVISIONING", **body: Any) -> Any:
    async def attempt(change: Transaction) -> None:
        await change.fence("worker-controller", term)
        worker = await change.worker("w-1")
        write = WorkerStatusUpdate.model_validate(
            {"status": status, "version": worker.version, "reason": "seen", **body}
        )
        change.save(apply_status(worker, write, DriftPolicy.RESTORE, change.now), "status", term=term)

    return attempt


async def announce(desk: Desk, term: int, *, swept: bool = False) -> None:
    async def attempt(change: Transaction) -> None:
        await change.fence("worker-controller", term, announce=True, swept=swept)

    await desk.records.change(CONTROLLER, attempt)


async def test_an_older_term_is_refused_and_changes_nothing(desk: Desk) -> None:
    await desk.add(a_worker())
    await announce(desk, 7)
    with pytest.raises(ProblemError, match="lcm leadership reset worker-controller") as caught:
        await desk.records.change(CONTROLLER, report(6))
    assert (caught.value.code, caught.value.current) == (ProblemCode.STALE_LEADER, {"term": 7})
    assert (await desk.worker()).status == "PENDING"
    await desk.records.change(CONTROLLER, report(7))
    assert (await desk.worker()).status == "PROVISIONING"


async def test_the_highest_term_survives_a_restart(desk: Desk) -> None:
    await announce(desk, 7)
    again = MemoryStore(desk.store.disk)
    await again.open(ALL_KINDS)
    desk.store, desk.records = again, UnitOfWork(again)
    with pytest.raises(ProblemError):
        await announce(desk, 6)


async def test_a_newer_term_is_remembered_with_its_first_write(desk: Desk) -> None:
    await desk.add(a_worker())
    await desk.records.change(CONTROLLER, report(9))
    with pytest.raises(ProblemError):
        await announce(desk, 8)


async def test_an_old_leader_cannot_slip_in_while_the_new_one_announces_itself(desk: Desk) -> None:
    """The old one's write was checked before the announcement was committed, and is committed after it."""
    await desk.add(a_worker())
    await announce(desk, 7)
    outcomes: list[str] = []

    async def old() -> None:
        async def attempt(change: Transaction) -> None:
            await change.fence("worker-controller", 7)
            worker = await change.worker("w-1")
            if not outcomes:
                outcomes.append("checked")
                await announce(desk, 8)  # exactly between the check and the commit
            write = WorkerStatusUpdate.model_validate({"status": "FAILED", "version": worker.version, "reason": "late"})
            change.save(apply_status(worker, write, DriftPolicy.RESTORE, change.now), "status")

        await desk.records.change(CONTROLLER, attempt)

    with pytest.raises(ProblemError) as caught:
        await old()
    assert caught.value.code is ProblemCode.STALE_LEADER
    assert (await desk.worker()).status == "PENDING"


async def test_the_sweep_is_reported_for_the_present_term_only(desk: Desk) -> None:
    """Seed 003 decision 4: who waits for it relies on the present leader."""
    await announce(desk, 7)
    await announce(desk, 7, swept=True)
    await announce(desk, 7)
    await announce(desk, 8)
    lines = [(line["action"], line["details"]["term"]) for line in await desk.told(AUDIT)]
    assert lines == [("leadership_announced", 7), ("leadership_swept", 7), ("leadership_announced", 8)]


async def test_a_reset_forgets_the_term_and_is_audited(desk: Desk) -> None:
    await announce(desk, 700)

    async def reset(change: Transaction) -> None:
        await change.reset_leadership("worker-controller")

    await desk.records.change(ANNA, reset)
    await announce(desk, 2)
    assert "leadership_reset" in [line["action"] for line in await desk.told(AUDIT)]
    with pytest.raises(ProblemError):
        await desk.records.change(ANNA, lambda change: change.reset_leadership("nobody"))
