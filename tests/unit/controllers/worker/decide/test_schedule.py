"""What follows from the schedules of a worker: calendar.md#schedules."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.controllers.worker.decide import decide
from lcm.controllers.worker.decision import FollowSchedule
from lcm.controllers.worker.deps import Policy
from lcm.controllers.worker.observe.observation import CmlObservation
from lcm.controllers.worker.steady import find_steady
from lcm.model.calendar.schedule import Schedule, WorkerSelector
from lcm.model.fleet.settings import FleetSettings
from lcm.model.worker.record import Hold, Override
from lcm.model.worker.status import DesiredStatus
from lcm.model.worker.template import Allocation
from tests.support.records.workers import NOW
from tests.unit.controllers.worker.decide.cases import observing, worker_in

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Decision

RUNNING, STOPPED = DesiredStatus.RUNNING, DesiredStatus.STOPPED
UNUSED = CmlObservation(queried_at=NOW, ready=True, running_nodes=0, last_running_nodes=0)
OPEN, CLOSED = "daily 00:00-24:00", f"{(NOW + timedelta(days=2)):%a} 08:00-18:00".lower()
BY_OFFICE = {"paused_by_policy": True, "pause_reason": "schedule:s-1"}


def policy(window: str, **changes: Any) -> Policy:
    facts: dict[str, Any] = {
        "id": "s-1",
        "name": "office",
        "zone": "UTC",
        "windows": (window,),
        "selector": WorkerSelector(names=(worker_in("RUNNING", "RUNNING").name,)),
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Policy(settings=FleetSettings(), schedules=(Schedule(**{**facts, **changes}),))


def decision(status: str, desired: str, ec2: str, window: str, cml: CmlObservation = UNUSED, **facts: Any) -> Decision:
    return decide(worker_in(status, desired, **facts), observing(ec2, cml=cml), policy(window), NOW)


def followed(decided: Decision) -> list[DesiredStatus]:
    return [action.desired for action in decided.actions if isinstance(action, FollowSchedule)]


@pytest.mark.parametrize(
    ("status", "desired", "ec2", "window", "facts", "expected"),
    [
        ("RUNNING", "RUNNING", "running", CLOSED, {}, [STOPPED]),
        ("RUNNING", "RUNNING", "running", OPEN, {}, []),
        ("STOPPED", "STOPPED", "stopped", OPEN, BY_OFFICE, [RUNNING]),
        ("STOPPED", "STOPPED", "stopped", OPEN, {}, []),
        ("STOPPED", "STOPPED", "stopped", CLOSED, BY_OFFICE, []),
        ("STOPPING", "STOPPED", "stopping", OPEN, BY_OFFICE, [RUNNING]),
        ("RUNNING", "STOPPED", "running", OPEN, BY_OFFICE, [RUNNING]),
        ("STOPPED", "RUNNING", "stopped", CLOSED, {}, [STOPPED]),  # a start that waits for capacity
        ("STARTING", "RUNNING", "pending", CLOSED, {}, []),
        ("DRAINING", "STOPPED", "running", OPEN, BY_OFFICE, []),
        ("RUNNING", "RUNNING", "stopped", CLOSED, {}, []),  # what EC2 shows is recorded first
        ("RUNNING", "TERMINATED", "running", CLOSED, {}, []),
        ("RUNNING", "RUNNING", "running", CLOSED, {"override": Override(desired=RUNNING, by="anna", since=NOW)}, []),
        ("RUNNING", "RUNNING", "running", CLOSED, {"allocation": Allocation(lablets=1)}, []),
    ],
)
def test_stops_and_starts(
    status: str, desired: str, ec2: str, window: str, facts: Any, expected: list[DesiredStatus]
) -> None:
    assert followed(decision(status, desired, ec2, window, **facts)) == expected


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (2, "2 nodes run on it"),
        (None, "CML does not report whether nodes run on it; to stop it anyway: lcm workers"),
    ],
)
def test_what_runs_is_waited_for_and_what_is_not_known_counts_as_running(nodes: int | None, reason: str) -> None:
    decided = decision("RUNNING", "RUNNING", "running", CLOSED, replace(UNUSED, running_nodes=nodes))
    assert (decided.rule, followed(decided)) == ("schedule.waits", [])
    assert "schedule office is closed" in decided.reason
    assert reason in decided.reason


def test_on_hold_the_stop_is_kept_for_the_plan() -> None:
    decided = decision("RUNNING", "RUNNING", "running", CLOSED, hold=Hold(reason="exam", by="anna", since=NOW))
    assert followed(decided) == []
    assert [str(action) for action in decided.held] == ["stop the worker by schedule"]


def test_a_decision_does_not_stand_across_a_boundary() -> None:
    """controllers.md#work-queue: windows that close and open again within a few cycles would not be seen."""
    closes = NOW + timedelta(seconds=60)
    opens = closes + timedelta(seconds=60)
    assert closes.date() == NOW.date()
    both = (f"daily 00:00-{closes:%H:%M}", f"daily {opens:%H:%M}-24:00")
    soon, later = policy(OPEN, windows=both), policy(OPEN)
    worker, seen = worker_in("RUNNING", "RUNNING", idle_detection_enabled=False), observing("running", cml=UNUSED)
    for rules, stands in ((soon, False), (later, True)):
        decided = decide(worker, seen, rules, NOW)
        assert decided.actions == ()
        assert (find_steady(worker, seen, rules, NOW, decided, decide) is not None) is stands
