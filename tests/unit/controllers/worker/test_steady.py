"""A worker about which nothing is to be done is not decided about in every pass, and every change still counts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.types import HealthKind, HealthNotice, InstanceState
from lcm.controllers.worker import controller as controller_module
from lcm.controllers.worker.decide import decide
from lcm.controllers.worker.observe.observation import HealthObservation, LicenseTaskState
from lcm.controllers.worker.steady import CYCLES_AHEAD, SteadyDecision, find_steady, same_facts
from lcm.core import clock
from lcm.core.controller.config import ReconciliationConfig
from lcm.model.fleet.settings import FleetSettings
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.maintenance import AnnouncedMaintenance
from lcm.model.worker.record import Hold
from lcm.model.worker.requests import UpdateWorkerRequest
from tests.support.records.workers import NOW
from tests.support.virtual.fleet import a_fleet
from tests.unit.controllers.worker.decide.cases import POLICY, observing, worker_in

if TYPE_CHECKING:
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

QUIET = {"idle_detection_enabled": False}
SEEN = observing("running")
SOON = timedelta(seconds=POLICY.check_interval)


def running(**changes: Any) -> Worker:
    return worker_in("RUNNING", **{**QUIET, "status_since": NOW - timedelta(days=1), **changes})


def steady(worker: Worker, observed: Observation = SEEN, policy: Policy = POLICY) -> SteadyDecision | None:
    return find_steady(worker, observed, policy, NOW, decide(worker, observed, policy, NOW), decide)


def test_a_decision_to_do_nothing_stands_for_some_cycles_and_no_longer() -> None:
    worker = running()
    found = steady(worker)
    assert found is not None
    assert found.covers(worker, SEEN, POLICY, NOW + SOON)
    assert found.covers(worker, SEEN, POLICY, NOW + (min(CYCLES_AHEAD) - 1) * SOON)
    assert not found.covers(worker, SEEN, POLICY, NOW + max(CYCLES_AHEAD) * SOON)
    assert not found.covers(worker, SEEN, POLICY, NOW - SOON), "the clock was set back"


def test_a_later_look_that_shows_the_same_is_no_change() -> None:
    worker = running()
    found = steady(worker)
    later = replace(
        SEEN,
        boottime=SEEN.boottime + 30,
        instance=replace(SEEN.instance, began_at=SEEN.instance.began_at + 30),
        cml=replace(SEEN.cml, queried_at=NOW + SOON),
    )
    assert found is not None
    assert found.covers(worker, later, POLICY, NOW + SOON)


CHANGED = {
    "instance": replace(SEEN, instance=replace(SEEN.instance, state=InstanceState.STOPPING)),
    "address": replace(SEEN, instance=replace(SEEN.instance, public_ip="203.0.113.8")),
    "cml": replace(SEEN, cml=replace(SEEN.cml, ready=False)),
    "not queried": replace(SEEN, cml=replace(SEEN.cml, queried_at=None)),
    "lablets": replace(SEEN, lablets=1),
    "health": replace(SEEN, health=HealthObservation((HealthNotice("i-0abc", HealthKind.MAINTENANCE, "stop"),))),
    "license": replace(SEEN, license_task=LicenseTaskState.RUNNING),
}


@pytest.mark.parametrize("what", CHANGED)
def test_any_other_observation_is_decided_about(what: str) -> None:
    worker = running()
    found = steady(worker)
    assert found is not None
    assert not found.covers(worker, CHANGED[what], POLICY, NOW + SOON)
    assert not same_facts(worker, SEEN, CHANGED[what])


UNREAD, HEALTHY = replace(SEEN, health=None), replace(SEEN, health=HealthObservation())


@pytest.mark.parametrize(("before", "after"), [(UNREAD, HEALTHY), (HEALTHY, UNREAD)])
def test_a_first_read_of_health_that_announces_nothing_is_no_change(before: Observation, after: Observation) -> None:
    """cloud-and-cml.md#maintenance: it would have the whole fleet decided about anew, some minutes after a start."""
    worker = running()
    found = steady(worker, before)
    assert found is not None
    assert found.covers(worker, after, POLICY, NOW + SOON)
    one, other = (decide(worker, each, POLICY, NOW) for each in (before, after))
    assert one.actions == other.actions == ()
    assert {each for each in other.conditions + one.conditions if each.status is not None} == {
        each for each in one.conditions if each.status is not None
    }, "what a read of health adds only removes conditions, which the worker does not have"


RECORDED: dict[str, dict[str, Any]] = {
    "maintenance": {"maintenance": AnnouncedMaintenance(code="system-reboot")},
    "restarts": {"maintenance_restarts": (NOW,)},
    "condition": {
        "conditions": (
            Condition(type=ConditionType.IMPAIRED, status=ConditionStatus.FALSE, reason="a", message="b", since=NOW),
        )
    },
}


@pytest.mark.parametrize("what", RECORDED)
def test_health_that_may_change_what_is_recorded_is_decided_about(what: str) -> None:
    assert not same_facts(running(**RECORDED[what]), UNREAD, HEALTHY)


def test_another_record_and_another_policy_are_decided_about() -> None:
    worker = running()
    found = steady(worker)
    assert found is not None
    assert not found.covers(worker.model_copy(update={"version": worker.version + 1}), SEEN, POLICY, NOW + SOON)
    assert not found.covers(worker, SEEN, replace(POLICY, settings=FleetSettings()), NOW + SOON)


def test_what_is_done_or_will_be_done_soon_is_decided_about_in_each_pass() -> None:
    assert POLICY.settings is not None
    interval = timedelta(seconds=POLICY.settings.idle.idle_detection_interval)
    assert steady(running(desired_status="STOPPED")) is None
    assert steady(running(idle_detection_enabled=True, last_idle_check_at=NOW - interval)) is None
    assert steady(running(idle_detection_enabled=True, last_idle_check_at=NOW - interval + 2 * SOON)) is None
    assert steady(running(idle_detection_enabled=True, last_idle_check_at=NOW)) is not None
    assert steady(running(), observing("not-visible")) is None


@pytest.mark.parametrize("minutes", range(0, 12, 2))
def test_while_it_stands_it_is_what_would_be_decided(minutes: int) -> None:
    """Deadlines of several rules near the end of the time for which it stands."""
    hold = Hold(reason="upgrade", by="ann", since=NOW, until=NOW + timedelta(minutes=minutes, seconds=20))
    last_check = NOW - timedelta(minutes=minutes)
    worker = running(hold=hold, idle_detection_enabled=True, last_idle_check_at=last_check, last_activity_at=last_check)
    found, now_decided = steady(worker), decide(worker, SEEN, POLICY, NOW)
    for seconds in range(0, 300, 10):
        at = NOW + timedelta(seconds=seconds)
        later = replace(SEEN, boottime=SEEN.boottime + seconds)
        if found is not None and found.covers(worker, later, POLICY, at):
            for moment, seen in ((at, later), (at + SOON, replace(later, boottime=later.boottime + 30))):
                assert decide(worker, seen, POLICY, moment) == now_decided, seconds


async def test_a_fleet_at_rest_is_rarely_decided_about_and_a_request_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """controllers.md#work-queue: a pass in each cycle; with a decision in each pass there were 40."""
    decided = list[str]()

    def counted(worker: Worker, *rest: Any) -> Any:
        decided.append(worker.id)
        return decide(worker, *rest)

    async with a_fleet(config=ReconciliationConfig(interval_seconds=30)) as fleet:
        controller = await fleet.start()
        worker = await fleet.running("alpha")
        await fleet.people.workers.patch(worker.id, UpdateWorkerRequest(idle_detection_enabled=False))
        await asyncio.sleep(600)
        monkeypatch.setattr(controller_module, "decide", counted)
        passes = sum(controller.queue.wait_counts)
        await asyncio.sleep(1200)
        assert sum(controller.queue.wait_counts) - passes >= 40
        assert 1 <= len(decided) <= 30, "now, and some cycles ahead"
        began = clock.boottime()
        await fleet.people.workers.stop(worker.id)
        while (await fleet.worker(worker.id)).status != "STOPPING":
            await asyncio.sleep(0.1)
        assert clock.boottime() - began < 5


async def test_a_resync_of_an_unchanged_fleet_makes_one_pass_over_each_worker() -> None:
    """controllers.md#work-queue: also in the minutes after a start, in which CML and health are read first."""
    async with a_fleet(config=ReconciliationConfig(interval_seconds=30)) as fleet:
        controller = await fleet.start()
        for name in ("alpha", "beta", "gamma"):
            worker = await fleet.running(name)
            await fleet.people.workers.patch(worker.id, UpdateWorkerRequest(idle_detection_enabled=False))
        await asyncio.sleep(60)
        for _ in range(30):
            passes = sum(controller.queue.wait_counts)
            await asyncio.sleep(30)
            assert sum(controller.queue.wait_counts) - passes <= 3
