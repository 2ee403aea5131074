"""The activity summary: what automation and people did, and what stops saved, against a count minute by minute."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet import activity_summary as looking_back
from lcm.control_plane.fleet.activity_summary import ActivitySummaryService
from lcm.control_plane.records.kinds import ALL_KINDS
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.workers import lifecycle
from lcm.control_plane.workers.lifecycle import on_enter, pause_fields, updated_record
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.audit import Actor, ActorKind, AuditEntry
from lcm.model.fleet.activity_summary import (
    ACTION_LABELS,
    ActivitySummary,
    AutomatedAction,
    action_label,
    automated_action_of,
)
from lcm.model.worker.cost import StoppedTransition, stopped_time
from lcm.model.worker.status import DesiredStatus, IllegalWorkerTransitionError, WorkerStatus
from tests.support.records.worker_records import ANNA, CONTROLLER, Desk
from tests.support.records.workers import NOW, a_worker
from tests.support.virtual.control_plane import TestPlane, serving_plane
from tests.support.virtual.time import VirtualClock, VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.worker.record import Worker

RUNNING, STOPPED = WorkerStatus.RUNNING, WorkerStatus.STOPPED
PRICES = (0.6, 1.2, 6.0, 60.0)
LENGTH = 40


def nights(desk: Desk) -> ActivitySummaryService:
    return ActivitySummaryService(
        ControlPlaneContext(
            desk.store, desk.unit_of_work, SecretBox([parse_key(generate_key(), "test")]), ("eu-west-1",)
        )
    )


class Fleet:
    """Workers that are stopped and started, with the simplest possible count of the savings beside them."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.who: dict[str, str] = {}
        self.minutes: list[
            tuple[str, str]
        ] = []  # for each minute that a worker was stopped: who stopped it, and which worker

    async def act(self, worker_id: str, command: str) -> None:
        worker = await self.desk.worker(worker_id)
        if command == "start":
            await self._save(worker_id, ANNA, lifecycle.start)
            await self._walk(worker_id, STOPPED, [WorkerStatus.STARTING, RUNNING])
        elif command == "terminate":
            await self._save(worker_id, ANNA, lifecycle.terminate)
            await self._walk(worker_id, worker.status, [WorkerStatus.TERMINATING, WorkerStatus.TERMINATED])
        elif worker.status is RUNNING:
            self.who[worker_id] = "policy" if command == "policy" else "people"
            if command != "outside":
                by_policy = command == "policy"
                await self._save(worker_id, ANNA, lambda each, now: _paused(each, now, by_policy=by_policy))
            await self._walk(worker_id, RUNNING, [WorkerStatus.STOPPING, STOPPED])

    async def _walk(self, worker_id: str, begin: WorkerStatus, way: list[WorkerStatus]) -> None:
        if (await self.desk.worker(worker_id)).status is begin:
            for status in way:
                await self._save(
                    worker_id,
                    CONTROLLER,
                    lambda each, now, to=status: updated_record(each, now, **on_enter(each, to, now)),
                )

    async def _save(self, worker_id: str, who: Actor, step: Callable[..., Worker]) -> None:
        async def attempt(tx: Transaction) -> None:
            worker = await tx.worker(worker_id)
            try:
                tx.save_worker(step(worker, tx.now), "changed")
            except (ProblemError, IllegalWorkerTransitionError):
                return

        await self.desk.unit_of_work.run(who, attempt)

    async def pass_a_minute(self) -> None:
        for number in range(len(PRICES)):
            if (await self.desk.worker(f"w-{number}")).status is STOPPED:
                self.minutes.append((f"w-{number}", self.who[f"w-{number}"]))
            else:
                self.minutes.append((f"w-{number}", ""))
        await asyncio.sleep(60)

    def saved(self, since: int, until: int, who: str) -> float:
        count = len(PRICES)
        counted = self.minutes[since * count : until * count]
        return sum(PRICES[int(name[2:])] / 60 for name, whose in counted if whose == who)


def _paused(worker: Worker, now: datetime, *, by_policy: bool) -> Worker:
    return updated_record(
        worker, now, bump_generation=True, **pause_fields(worker, now, "because", by_policy=by_policy)
    )


COMMANDS = st.tuples(
    st.integers(0, LENGTH - 1),
    st.integers(0, len(PRICES) - 1),
    st.sampled_from(["policy", "person", "outside", "start", "start", "terminate"]),
)


@given(
    st.lists(COMMANDS, max_size=25),
    st.integers(0, LENGTH - 1),
    st.integers(1, LENGTH),
    st.lists(st.sampled_from(["", "policy", "people"]), min_size=len(PRICES), max_size=len(PRICES)),
)
@settings(max_examples=40, deadline=None)
def test_savings_are_those_counted_minute_by_minute(
    commands: list[tuple[int, int, str]], since: int, length: int, before: list[str]
) -> None:
    until = min(LENGTH, since + length)

    async def check() -> None:
        fleet = Fleet()
        await fleet.desk.store.open(ALL_KINDS)
        for number, whose in enumerate(before):
            facts: dict[str, Any] = {"status": RUNNING, "stopped_by_policy": whose == "policy"}
            if whose:
                facts |= {"status": STOPPED, "desired_status": DesiredStatus.STOPPED}
                fleet.who[f"w-{number}"] = whose
            price = PRICES[number]
            await fleet.desk.add(a_worker(id=f"w-{number}", name=f"n{number}", cost_per_hour_usd=price, **facts))
        began = clock.now()
        for minute in range(LENGTH):
            for _, number, command in sorted(each for each in commands if each[0] == minute):
                await fleet.act(f"w-{number}", command)
            await fleet.pass_a_minute()
        found = await nights(fleet.desk).summarize(began + timedelta(minutes=since), began + timedelta(minutes=until))
        assert found.saved_by_policy_usd == pytest.approx(fleet.saved(since, until, "policy"), abs=1e-3)
        assert found.saved_by_people_usd == pytest.approx(fleet.saved(since, until, "people"), abs=1e-3)
        assert found.saved_usd == pytest.approx(found.saved_by_policy_usd + found.saved_by_people_usd, abs=1e-3)
        assert found.complete

    in_virtual_time(check)


def in_virtual_time(test: Callable[[], Any]) -> None:
    loop = VirtualTimeLoop()
    try:
        with clock.use(VirtualClock(loop)):
            loop.run_until_complete(test())
    finally:
        loop.close()


# Pure parts


def step(minute: float, before: WorkerStatus | None, after: WorkerStatus, by_policy: bool) -> StoppedTransition:
    return StoppedTransition(NOW + timedelta(minutes=minute), before is STOPPED, after is STOPPED, by_policy)


def test_time_stopped_counts_only_time_in_the_span() -> None:
    since, until = NOW + timedelta(minutes=10), NOW + timedelta(minutes=20)
    assert stopped_time([], since, until).seconds == 0
    out = [step(15, STOPPED, WorkerStatus.STARTING, True), step(16, WorkerStatus.STARTING, RUNNING, False)]
    assert stopped_time(out, since, until).by_policy == 300
    inside = [*out, step(18, RUNNING, STOPPED, False), step(30, STOPPED, RUNNING, False)]
    assert (stopped_time(inside, since, until).by_policy, stopped_time(inside, since, until).by_people) == (300, 120)
    afterwards = [step(25, STOPPED, RUNNING, True)]
    assert stopped_time(afterwards, since, until).by_policy == 600
    new = [step(12, None, STOPPED, False)]
    assert stopped_time(new, since, until).by_people == 480


def entry(action: str, kind: ActorKind = ActorKind.CONTROLLER, **details: Any) -> AuditEntry:
    return AuditEntry(at=NOW, actor=Actor(kind=kind, name="x"), action=action, subject="w-1", details=details)


def test_deeds_are_automation_s_alone() -> None:
    assert automated_action_of(entry("auto_paused")) is AutomatedAction.AUTO_PAUSED
    assert automated_action_of(entry("auto_paused", ActorKind.PERSON)) is None
    assert automated_action_of(entry("scale_up_accepted", resumed=True)) is AutomatedAction.RESUMED
    assert automated_action_of(entry("scale_up_accepted", resumed=False)) is AutomatedAction.LAUNCHED
    assert automated_action_of(entry("status_reported", status="FAILED", event="failed")) is AutomatedAction.FAILED
    assert automated_action_of(entry("status_reported", status="RUNNING")) is None
    assert automated_action_of(entry("status_reported", event="<script>")) is None
    assert automated_action_of(entry("license_reported")) is None


def test_every_deed_has_words() -> None:
    assert set(ACTION_LABELS) == set(AutomatedAction)
    assert action_label("auto_paused") == "paused because it was idle"
    assert action_label("cancel_drain") == "drain cancelled"


# Over HTTP


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


async def night(plane: TestPlane, query: str = "") -> ActivitySummary:
    response = await plane.ask("GET", f"/api/fleet/overnight{query}", role=Role.VIEWER)
    assert response.status_code == 200, response.text
    return ActivitySummary.model_validate(response.json())


async def test_a_summary_of_automation_and_people(plane: TestPlane) -> None:
    idle, lost, failed = await plane.running("idle"), await plane.running("lost"), await plane.running("failed")
    drifting = await plane.running("drifting")
    await plane.ask("PATCH", "/api/settings", role=Role.ADMIN, json={"discovery": {"breaker_enabled": False}})
    await asyncio.sleep(3600 * 24)
    found = {"events": [{"category": "start_lab", "at": "2026-01-17T10:30:00Z"}], "observed_at": text(clock.now())}
    path = f"/api/internal/workers/{idle['id']}/detect-idle"
    result = (await plane.ask("POST", path, role=Role.CONTROLLER, json=found)).json()
    assert result["auto_pause_triggered"], result
    idle = (await plane.ask("GET", f"/api/workers/{idle['id']}")).json()
    idle = await plane.report(idle, "STOPPING")
    await plane.report(idle, "STOPPED")
    await plane.report(lost, "TERMINATED", terminated_by="discovery-gc")
    drifting = await plane.report(drifting, "STOPPED", drift=True)
    drifting = await plane.report(drifting, "STARTING")
    stuck = {"type": "Stuck", "status": "True", "reason": "Slow", "since": text(clock.now())}
    await plane.report(drifting, "STARTING", conditions=[stuck])
    failed = await plane.report(failed, "STOPPING", drift=True)
    failed = await plane.report(failed, "PENDING", instance_id=None)
    await plane.report(failed, "FAILED")
    await plane.ask("POST", "/api/fleet/hold", json={"reason": "check first"})
    await asyncio.sleep(3600 * 2)
    seen = await night(plane)
    assert {done.what: [each.name for each in done.concerned] for done in seen.automation} == {
        "failed": ["failed"],
        "stuck": ["drifting"],
        "gone": ["lost"],
        "replaced": ["failed"],
        "restarted": ["drifting"],
        "auto_paused": ["idle"],
    }
    assert [(done.what, done.count, done.concerned[0].id) for done in seen.people] == [("fleet_held", 1, "fleet")]
    assert [seen.saved_usd, seen.saved_by_policy_usd] == pytest.approx([2 * 0.0208, 2 * 0.0208])
    assert [(saver.name, saver.stopped_seconds) for saver in seen.savers] == [("idle", 7200)]
    assert seen.stopped_throughout == 0
    assert seen.until - seen.since == timedelta(hours=12)
    query = f"?since={text(seen.since)}&until={text(clock.now() - timedelta(hours=3))}".replace("+", "%2B")
    early = await night(plane, query)
    assert (early.automation, early.people, early.saved_usd) == ((), (), 0)
    await asyncio.sleep(3600 * 12)
    later = await night(plane)
    assert (later.automation, later.people, later.savers) == ((), (), ())
    assert later.stopped_throughout == 1
    assert later.saved_by_policy_usd == pytest.approx(12 * 0.0208)


async def test_too_many_entries_shorten_the_span(plane: TestPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking_back, "MAX_ENTRIES", 500)
    for _ in range(6):
        for _ in range(100):
            await plane.ask("POST", "/api/fleet/hold", json={"reason": f"hold {clock.new_id('x')}"})
        await asyncio.sleep(600)
    seen = await night(plane)
    assert not seen.complete
    assert clock.now() - seen.since < timedelta(minutes=60)
    assert sum(done.count for done in seen.people) <= 500


@pytest.mark.parametrize(
    "query",
    [
        "?since=2026-01-17T10:30:00Z&until=2026-01-17T10:00:00Z",
        "?since=2025-01-17T10:30:00Z",
        "?since=2999-01-17T10:30:00Z",
        "?since=never",
    ],
)
async def test_an_invalid_span_is_rejected(plane: TestPlane, query: str) -> None:
    response = await plane.ask("GET", f"/api/fleet/overnight{query}", role=Role.VIEWER)
    assert (response.status_code, response.json()["code"]) == (422, "invalid"), response.text


def text(moment: datetime) -> str:
    return moment.isoformat()
