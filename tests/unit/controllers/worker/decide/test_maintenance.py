"""What follows from announced maintenance and failed status checks: conditions, fields, the move to another host."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.types import HealthKind, HealthNotice
from lcm.controllers.worker.decide import decide
from lcm.controllers.worker.decision import ChangeHost, MaintenanceStep, WriteStatus
from lcm.controllers.worker.deps import Policy
from lcm.controllers.worker.observe.observation import CmlObservation, HealthObservation
from lcm.model.fleet.settings import FleetSettings, MaintenancePolicy, MaintenanceSettings, ScalingSettings
from lcm.model.worker.conditions import ConditionStatus, ConditionType, with_condition
from lcm.model.worker.maintenance import AnnouncedMaintenance
from lcm.model.worker.record import Hold, Override
from lcm.model.worker.status import DesiredStatus
from lcm.model.worker.template import Allocation
from tests.support.records.workers import NOW
from tests.unit.controllers.worker.decide.cases import observing, worker_in

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Decision
    from lcm.model.worker.record import Worker

NEXT_WEEK = NOW + timedelta(days=7)
EVENT = AnnouncedMaintenance(code="instance-retirement", detail="degraded hardware", not_before=NEXT_WEEK)
NOTICE = HealthNotice("i-1", HealthKind.MAINTENANCE, "degraded hardware", NEXT_WEEK, "instance-retirement")
FAILED = HealthNotice("i-1", HealthKind.SYSTEM_IMPAIRED, "failed: reachability")
PENDING = HealthNotice("i-1", HealthKind.CHECKS_PENDING, "initializing")
READY = CmlObservation(queried_at=NOW, ready=True, running_nodes=0, last_running_nodes=0)
PLAN = FleetSettings(maintenance=MaintenanceSettings(maintenance_policy=MaintenancePolicy.PLAN))


def impaired(worker: Worker, since: Any) -> Worker:
    conditions = with_condition(
        worker.conditions, ConditionType.IMPAIRED, ConditionStatus.TRUE, now=since, reason="StatusCheckFailed"
    )
    return worker.model_copy(update={"conditions": conditions})


def decision(
    worker: Worker, *notices: HealthNotice, settings: FleetSettings = PLAN, unknown: bool = False, **facts: Any
) -> Decision:
    health = None if unknown else HealthObservation(notices)
    seen = observing("running", **{"cml": READY, "health": health, "in_service": 3, **facts})
    return decide(worker, seen, Policy(settings=settings), NOW)


def steps(decided: Decision) -> list[MaintenanceStep]:
    return [action.step for action in decided.actions if isinstance(action, ChangeHost)]


def fields(decided: Decision) -> dict[str, Any]:
    return {
        name: value for each in decided.actions if isinstance(each, WriteStatus) for name, value in each.fields.items()
    }


def running(**changes: Any) -> Worker:
    return worker_in("RUNNING", "RUNNING", **changes)


def test_an_announced_event_is_recorded_with_its_condition() -> None:
    decided = decision(running(), NOTICE)
    assert fields(decided)["maintenance"] == EVENT
    [condition] = [each for each in decided.conditions if each.type is ConditionType.MAINTENANCE]
    assert (condition.status, condition.reason, condition.exact) == (ConditionStatus.TRUE, "InstanceRetirement", True)
    assert condition.message == (
        f"EC2 has announced the retirement of its host for {NEXT_WEEK:%Y-%m-%d %H:%M} UTC (degraded hardware)"
    )
    assert steps(decided) == [], "what is acted on stands on the record first"


def test_the_event_that_begins_first_counts() -> None:
    earlier = HealthNotice("i-1", HealthKind.MAINTENANCE, "", NOW + timedelta(days=1), "system-reboot")
    at_once = HealthNotice("i-1", HealthKind.MAINTENANCE, "", None, "system-maintenance")
    assert fields(decision(running(), NOTICE, earlier))["maintenance"].code == "system-reboot"
    assert fields(decision(running(), NOTICE, at_once, earlier))["maintenance"].code == "system-maintenance"


def test_unknown_health_changes_nothing() -> None:
    decided = decision(running(maintenance=EVENT), unknown=True)
    assert "maintenance" not in fields(decided)
    assert not [each for each in decided.conditions if each.type is ConditionType.MAINTENANCE]
    assert steps(decided) == []
    assert decided.rule == "maintenance.waits"
    assert "must be read again first" in decided.reason


def test_an_event_that_is_gone_is_removed_and_moves_nobody() -> None:
    decided = decision(running(maintenance=EVENT))
    assert fields(decided)["maintenance"] is None
    assert steps(decided) == []


def test_an_unused_worker_moves() -> None:
    decided = decision(running(maintenance=EVENT), NOTICE)
    assert (decided.rule, steps(decided)) == ("maintenance.stop", [MaintenanceStep.STOP])


@pytest.mark.parametrize(
    ("changes", "facts", "settings", "why"),
    [
        ({"allocation": Allocation(lablets=1)}, {}, PLAN, "1 lablet is assigned to it"),
        ({}, {"cml": CmlObservation(queried_at=NOW, ready=True, running_nodes=2)}, PLAN, "2 nodes run on it"),
        ({}, {"cml": CmlObservation(queried_at=NOW, ready=True)}, PLAN, "CML does not report whether nodes run"),
        ({}, {"moving": "beta"}, PLAN, "beta moves first"),
        (
            {},
            {},
            PLAN.model_copy(update={"scaling": ScalingSettings(min_workers=3)}),
            "3 workers run and MIN_WORKERS is 3",
        ),
    ],
)
def test_what_keeps_a_worker_where_it_is(
    changes: dict[str, Any], facts: dict[str, Any], settings: FleetSettings, why: str
) -> None:
    decided = decision(running(maintenance=EVENT, **changes), NOTICE, settings=settings, **facts)
    assert steps(decided) == []
    assert decided.rule == "maintenance.waits"
    assert why in decided.reason


def test_what_a_person_wants_for_a_time_goes_first() -> None:
    wish = Override(desired=DesiredStatus.RUNNING, until=NOW + timedelta(hours=2), by="kim", since=NOW)
    decided = decision(running(maintenance=EVENT, override=wish), NOTICE)
    assert (decided.rule, steps(decided)) == ("maintenance.waits", [])
    assert "kim requested RUNNING until" in decided.reason
    over = wish.model_copy(update={"until": NOW - timedelta(minutes=1)})
    assert steps(decision(running(maintenance=EVENT, override=over), NOTICE)) == [MaintenanceStep.STOP]
    keep = wish.model_copy(update={"desired": DesiredStatus.STOPPED})
    stopped = worker_in("STOPPED", "STOPPED", pause_reason="maintenance", paused_by_policy=True, override=keep)
    assert decide(stopped, observing("stopped"), Policy(settings=PLAN), NOW).rule == "stopped.rest"


def test_a_booked_worker_is_not_moved_before_its_class_has_ended() -> None:
    ends = NOW + timedelta(hours=2)
    decided = decision(running(maintenance=EVENT, booking_id="bk-1", booked_until=ends), NOTICE)
    assert (decided.rule, steps(decided)) == ("maintenance.waits", [])
    assert "it is booked for bk-1 until" in decided.reason
    over = running(maintenance=EVENT, booking_id="bk-1", booked_until=NOW)
    assert steps(decision(over, NOTICE)) == [MaintenanceStep.STOP]


def test_report_moves_nobody() -> None:
    decided = decision(running(maintenance=EVENT), NOTICE, settings=FleetSettings())
    assert (decided.rule, steps(decided)) == ("running.steady", [])


def test_a_hold_keeps_the_step_and_shows_it() -> None:
    hold = Hold(reason="look", by="kim", since=NOW)
    decided = decision(running(maintenance=EVENT, hold=hold), NOTICE)
    assert steps(decided) == []
    assert [str(each) for each in decided.held] == ["stop the worker, to start it on another host"]


def test_an_impaired_worker_waits_for_its_time() -> None:
    worker = impaired(running(), NOW - timedelta(seconds=600))
    early = decision(worker, FAILED)
    assert (early.rule, early.after, steps(early)) == ("maintenance.not_due", 300.0, [])
    late = decision(impaired(running(), NOW - timedelta(seconds=901)), FAILED)
    assert steps(late) == [MaintenanceStep.STOP]
    started = running(last_resumed_at=NOW - timedelta(seconds=100))
    again = decision(impaired(started, NOW - timedelta(hours=2)), FAILED)
    assert (again.rule, steps(again)) == ("maintenance.not_due", []), "the time counts from its last start"


def test_where_cml_no_longer_responds_its_last_count_of_nodes_decides() -> None:
    worker = impaired(running(), NOW - timedelta(hours=1))
    silent = CmlObservation(queried_at=NOW, ready=False, error="no route", last_running_nodes=0)
    assert steps(decision(worker, FAILED, cml=silent)) == [MaintenanceStep.STOP]
    used = CmlObservation(queried_at=NOW, ready=False, error="no route", last_running_nodes=4)
    assert steps(decision(worker, FAILED, cml=used)) == []
    unknown = CmlObservation(queried_at=NOW, ready=False, error="no route")
    assert steps(decision(worker, FAILED, cml=unknown)) == []


def test_after_two_restarts_a_person_is_asked() -> None:
    twice = (NOW - timedelta(hours=2), NOW - timedelta(hours=1))
    decided = decision(impaired(running(maintenance_restarts=twice), NOW - timedelta(minutes=50)), FAILED)
    assert (decided.rule, steps(decided)) == ("maintenance.given_up", [])
    [condition] = [each for each in decided.conditions if each.type is ConditionType.STUCK]
    assert (condition.status, condition.reason) == (ConditionStatus.TRUE, "StillImpaired")


def test_an_event_that_is_still_listed_after_a_move_gets_half_an_hour() -> None:
    once = running(maintenance=EVENT, maintenance_restarts=(NOW - timedelta(minutes=20),))
    assert (decision(once, NOTICE).rule, decision(once, NOTICE).after) == ("maintenance.not_due", 600.0)
    later = once.model_copy(update={"maintenance_restarts": (NOW - timedelta(minutes=31),)})
    assert steps(decision(later, NOTICE)) == [MaintenanceStep.STOP]


def test_restarts_are_forgotten_only_when_all_checks_pass() -> None:
    moved = running(maintenance_restarts=(NOW - timedelta(minutes=10),))
    assert "health_verified" not in fields(decision(moved, PENDING))
    assert "health_verified" not in fields(decision(moved, FAILED))
    assert "health_verified" not in fields(decision(moved, unknown=True))
    assert fields(decision(moved))["health_verified"] is True


def test_a_stopped_worker_is_started_again_whatever_the_policy() -> None:
    worker = worker_in("STOPPED", "STOPPED", pause_reason="maintenance", paused_by_policy=True)
    for settings in (PLAN, FleetSettings(), None):
        decided = decide(worker, observing("stopped"), Policy(settings=settings), NOW)
        assert (decided.rule, steps(decided)) == ("maintenance.start", [MaintenanceStep.START])
    assert not worker.at_rest
    by_hand = worker.model_copy(update={"paused_by_policy": False})
    assert decide(by_hand, observing("stopped"), Policy(), NOW).rule == "stopped.rest"
    assert by_hand.at_rest
