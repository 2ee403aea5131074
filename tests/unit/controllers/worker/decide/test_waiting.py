"""Workers that wait for capacity, credentials or sight: each wait is on the record, and has a bound."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lcm.controllers.worker.decision import ConditionUpdate
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.status import WorkerStatus
from tests.unit.controllers.worker.decide.cases import (
    BOOTTIME,
    calls,
    decided,
    observing,
    seconds_ago,
    statuses,
    worker_in,
)

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Decision


def waiting_since(seconds: float, reason: str = "CapacityLacking") -> dict[str, Any]:
    """The conditions of a worker that has waited for so long."""
    since = seconds_ago(seconds)
    kinds = {"type": ConditionType.WAITING, "status": ConditionStatus.TRUE, "reason": reason, "since": since}
    return {"conditions": (Condition(**kinds),)}


def update_of(decision: Decision, kind: ConditionType) -> ConditionUpdate | None:
    return next((each for each in decision.conditions if each.type is kind), None)


@pytest.mark.parametrize(("refused", "waited", "pause"), [(1, 5, 59), (59, 100, 1), (100, 1200, 500), (1, 90_000, 599)])
def test_a_start_without_capacity_is_tried_again_after_minutes(refused: float, waited: float, pause: float) -> None:
    """worker-lifecycle.md#waiting: a backoff of minutes, and nothing is written meanwhile."""
    worker = worker_in("STOPPED", **waiting_since(waited))
    decision = decided(worker, observing("stopped", no_capacity_at=BOOTTIME - refused))
    assert (calls(decision), statuses(decision)) == ([], [])
    assert decision.after == pytest.approx(pause)


@pytest.mark.parametrize(("refused", "waited"), [(1, 5), (10, 300), (400, 900), (1, 90_000)])
def test_the_pause_without_capacity_ends_when_it_says(refused: float, waited: float) -> None:
    """worker-lifecycle.md#waiting: a pause that grew while it lasted would end later than the plan says."""
    pause = decided(
        worker_in("STOPPED", **waiting_since(waited)), observing("stopped", no_capacity_at=BOOTTIME - refused)
    ).after
    assert pause is not None
    for early, expected in ((1.0, []), (0.000_001, ["start"]), (0.0, ["start"])):
        passed = pause - early
        later = decided(
            worker_in("STOPPED", **waiting_since(waited + passed)),
            observing("stopped", no_capacity_at=BOOTTIME - refused - passed),
        )
        assert calls(later) == expected


def test_the_next_start_is_recorded_when_it_was_accepted() -> None:
    """worker-lifecycle.md#waiting: it stays STOPPED until EC2 accepts a start."""
    worker = worker_in("STOPPED", **waiting_since(100))
    decision = decided(worker, observing("stopped", no_capacity_at=BOOTTIME - 61))
    assert [str(action) for action in decision.actions] == ["start the instance", "record STARTING"]


@pytest.mark.parametrize(("waited", "is_stuck"), [(1799, False), (1801, True)])
@pytest.mark.parametrize("column", ["stopped", "not-observed"])
def test_who_waits_longer_than_the_limit_is_stuck(waited: float, column: str, *, is_stuck: bool) -> None:
    """worker-lifecycle.md#waiting: CAPACITY_WAIT_LIMIT, also while EC2 cannot be read."""
    decision = decided(worker_in("STOPPED", **waiting_since(waited)), observing(column, no_capacity_at=BOOTTIME - 1))
    update = update_of(decision, ConditionType.STUCK)
    assert (update is not None and update.reason == "StillWaiting") is is_stuck


@pytest.mark.parametrize("status", ["STARTING", "PROVISIONING", "STOPPING", "DRAINING"])
def test_who_is_on_its_way_and_cannot_be_read_waits(status: str) -> None:
    """worker-lifecycle.md#waiting: whatever waits says so."""
    observed = observing("not-observed")
    observed = replace(observed, instance=replace(observed.instance, error="no credentials"))
    decision = decided(worker_in(status, "STOPPED" if status in ("STOPPING", "DRAINING") else "RUNNING"), observed)
    update = update_of(decision, ConditionType.WAITING)
    assert update is not None
    assert update.reason == "NotObserved"
    assert "no credentials" in update.message


def test_who_is_seen_again_does_not_wait_any_more() -> None:
    worker = worker_in("STARTING", **waiting_since(60, "NotObserved"))
    update = update_of(decided(worker, observing("pending")), ConditionType.WAITING)
    assert update == ConditionUpdate(ConditionType.WAITING, None)


def test_at_its_deadline_a_start_fails() -> None:
    decision = decided(worker_in("STARTING", status_since=seconds_ago(901)), observing("stopped"))
    assert statuses(decision) == [WorkerStatus.FAILED]


def test_at_its_deadline_a_start_that_nobody_could_follow_is_made_again() -> None:
    worker = worker_in("STARTING", status_since=seconds_ago(901), **waiting_since(600, "NotObserved"))
    assert statuses(decided(worker, observing("stopped"))) == [WorkerStatus.STOPPED]
