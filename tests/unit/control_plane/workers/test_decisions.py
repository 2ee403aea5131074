"""Batches of decisions: stored apart from the record, fenced, the newest wins, and no event is published."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import ALL_KINDS
from lcm.control_plane.records.unit_of_work import Leader, UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.control_plane.workers.controller_writes import WorkerControllerWrites
from lcm.control_plane.workers.decisions import read_decision
from lcm.model.access import Role
from lcm.model.audit import DecisionReport
from lcm.model.worker.requests import MAX_DECISIONS, DecisionBatch, WorkerDecision
from tests.support.records.gated_store import GatedStore
from tests.support.records.workers import NOW
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.store.port import Store

PATH = "/api/internal/workers/decisions"


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


def decided(minute: float = 0, **facts: Any) -> DecisionReport:
    at = NOW + timedelta(minutes=minute)
    result = {"rule": "running.steady", "reason": "as it should be", "decided_at": at, **facts}
    return DecisionReport.model_validate(result)


def stored(decision: DecisionReport, term: int = 5) -> DecisionReport:
    """The decision as it is stored: with the term of its leader."""
    return decision.model_copy(update={"term": term})


def a_batch(*items: tuple[str, DecisionReport]) -> DecisionBatch:
    return DecisionBatch(items=tuple(WorkerDecision(worker_id=one, decision=decision) for one, decision in items))


async def send(plane: TestPlane, *items: tuple[str, DecisionReport], **options: Any) -> tuple[int, Any]:
    body = a_batch(*items).model_dump(mode="json")
    response = await plane.ask("POST", PATH, role=Role.CONTROLLER, json=body, **options)
    return response.status_code, response.json()


async def test_it_changes_no_version_and_publishes_no_event(plane: TestPlane) -> None:
    worker, store = await plane.create(), plane.services.context.store
    lines = len(await store.read_journal(limit=1000))
    assert await send(plane, (worker["id"], decided())) == (200, {"kept": 1, "dropped": 0})
    # The first write of a leader also stores its term, and publishes no event either.
    assert len(await store.read_journal(limit=1000)) == lines
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}")).json() == worker
    explained = (await plane.ask("GET", f"/api/workers/{worker['id']}/explain")).json()
    assert explained["decision"]["rule"] == "running.steady"
    planned = (await plane.ask("GET", "/api/plan")).json()["items"]
    assert [item["decision"]["rule"] for item in planned] == ["running.steady"]


async def test_unknown_workers_are_counted_and_the_others_stored(plane: TestPlane) -> None:
    worker = await plane.create()
    result = await send(plane, ("w-none", decided()), (worker["id"], decided()), ("decisions", decided()))
    assert result == (200, {"kept": 1, "dropped": 2})
    assert await send(plane) == (200, {"kept": 0, "dropped": 0})


async def test_an_older_decision_never_overwrites_and_an_equal_one_does_no_harm(plane: TestPlane) -> None:
    await asyncio.sleep(600)
    worker, store = await plane.create(), plane.services.context.store
    first = decided(1, reason="first")
    assert await send(plane, (worker["id"], first)) == (200, {"kept": 1, "dropped": 0})
    assert await send(plane, (worker["id"], decided(0, reason="late"))) == (200, {"kept": 0, "dropped": 1})
    assert await read_decision(store, worker["id"]) == stored(first)
    assert await send(plane, (worker["id"], first)) == (200, {"kept": 1, "dropped": 0})
    again = decided(2, reason="first", next_look_at=NOW + timedelta(hours=1))
    assert await send(plane, (worker["id"], again)) == (200, {"kept": 1, "dropped": 0})
    assert await read_decision(store, worker["id"]) == stored(again)


async def test_a_status_write_does_not_bring_an_older_decision_back(plane: TestPlane) -> None:
    await asyncio.sleep(600)
    worker, store = await plane.create(), plane.services.context.store
    await send(plane, (worker["id"], decided(5, reason="newer")))
    late = decided(1, reason="older").model_dump(mode="json")
    written = await plane.report(worker, "PROVISIONING", instance_id="i-1", decision=late)
    assert written["status"] == "PROVISIONING"
    kept = await read_decision(store, worker["id"])
    assert kept is not None
    assert kept.reason == "newer"


async def test_a_decision_of_a_controller_whose_clock_was_set_back_is_the_newest(plane: TestPlane) -> None:
    """Its own clock has not reached the moment of the stored one yet."""
    worker, store = await plane.create(), plane.services.context.store
    await asyncio.sleep(3600)
    await send(plane, (worker["id"], decided(50, reason="before")))
    shown = {"X-LCM-Time": (NOW + timedelta(minutes=6)).isoformat()}
    late = decided(5, reason="after it was set back")
    assert await send(plane, (worker["id"], late), headers=shown) == (200, {"kept": 1, "dropped": 0})
    assert await read_decision(store, worker["id"]) == stored(late)


async def test_of_several_for_one_worker_the_newest_is_stored(plane: TestPlane) -> None:
    worker = await plane.create()
    result = await send(plane, *((worker["id"], decided(minute, reason=f"at {minute}")) for minute in (1, 3, 2)))
    assert result == (200, {"kept": 1, "dropped": 2})
    kept = await read_decision(plane.services.context.store, worker["id"])
    assert kept is not None
    assert kept.reason == "at 3"


async def test_a_former_leader_writes_nothing(plane: TestPlane) -> None:
    worker = await plane.create()
    announced = {"X-LCM-Leader-Term": "9"}
    await plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json={"term": 9}, headers=announced)
    status, result = await send(plane, (worker["id"], decided()))
    assert (status, result["code"]) == (409, "stale_leader")
    status, result = await send(plane, (worker["id"], decided()), headers={"X-LCM-Leader-Term": ""})
    assert (status, result["code"]) == (400, "leader_headers_missing")
    assert await read_decision(plane.services.context.store, worker["id"]) is None


async def test_a_batch_has_a_largest_size(plane: TestPlane) -> None:
    items = [{"worker_id": "w-1", "decision": decided().model_dump(mode="json")}] * (MAX_DECISIONS + 1)
    response = await plane.ask("POST", PATH, role=Role.CONTROLLER, json={"items": items})
    assert response.status_code == 422
    assert (await plane.ask("POST", PATH, role=Role.CONTROLLER, json={"items": items[1:]})).status_code == 200


async def test_a_thousand_decisions_take_a_handful_of_store_calls() -> None:
    store = _CountingStore()
    reports = await _reports(store)
    names = [f"w-{number}" for number in range(MAX_DECISIONS)]
    store.calls = 0
    result = await reports.decisions(Leader("worker-controller", 5), a_batch(*((name, decided()) for name in names)))
    assert (result.kept, result.dropped) == (0, MAX_DECISIONS)
    assert store.calls < 10


async def test_a_new_term_that_is_announced_while_a_batch_is_read_wins() -> None:
    """The old leader's batch has passed the fence when the new leader announces itself."""
    disk, passed = MemoryDisk(), asyncio.Event()
    slow = GatedStore(disk)
    reports = await _reports(slow)
    slow.gate = passed  # the first read of the transaction is that of the fence
    writing = asyncio.create_task(reports.decisions(Leader("worker-controller", 5), a_batch(("w-1", decided()))))
    await asyncio.sleep(0.01)
    newer = await _reports(MemoryStore(disk))
    await newer.audit(Leader("worker-controller", 6), "leads", "fleet")
    passed.set()
    with pytest.raises(ProblemError, match="term 5"):
        await writing


class _CountingStore(MemoryStore):
    calls = 0

    async def _yield_once(self) -> None:
        self.calls += 1
        await super()._yield_once()


async def _reports(store: MemoryStore) -> WorkerControllerWrites:
    await store.open(ALL_KINDS)
    box = SecretBox([parse_key(generate_key(), "test")])
    typed: Store = store
    return WorkerControllerWrites(ControlPlaneContext(typed, UnitOfWork(typed), box, ("eu-west-1",)))
