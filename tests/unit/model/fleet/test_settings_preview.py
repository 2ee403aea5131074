"""The preview of a change of settings follows the rules that automation follows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.model.calendar.precedence import Authority, Claim, OtherClaims
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.settings_preview import preview_settings
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.maintenance import AnnouncedMaintenance
from lcm.model.worker.record import Hold
from lcm.model.worker.status import DesiredStatus
from lcm.model.worker.template import Allocation
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.model.fleet.settings_preview import SettingsPreview
    from lcm.model.worker.record import Worker

READY = Condition(type=ConditionType.CML_READY, status=ConditionStatus.TRUE, since=NOW)
NO_TELEMETRY = Condition(type=ConditionType.TELEMETRY_MISSING, status=ConditionStatus.TRUE, since=NOW)


def used(name: str, minutes: float, **facts: Any) -> Worker:
    """A running worker that was last used some minutes ago."""
    usual = {
        "last_activity_at": NOW - timedelta(minutes=minutes),
        "last_resumed_at": NOW - timedelta(days=1),
        "conditions": (READY,),
    }
    return a_worker(id=f"w-{name}", name=name, status="RUNNING", desired_status="RUNNING", **{**usual, **facts})


def preview(
    workers: Sequence[Worker], *, held: bool = False, claims: Mapping[str, OtherClaims] | None = None, **groups: Any
) -> SettingsPreview:
    return preview_settings(
        FleetSettings(),
        FleetSettings.model_validate(groups),
        workers,
        claims=claims or {},
        workers_per_region={"eu-west-1": 12, "us-east-1": 3},
        fleet_held=held,
        now=NOW,
    )


def test_a_shorter_timeout_names_the_workers_it_stops() -> None:
    workers = [used("alpha", 30), used("bravo", 20), used("charlie", 3), used("delta", 90)]
    found = preview(workers, idle={"worker_idle_timeout_minutes": 15})
    assert [(each.name, each.before, each.after) for each in found.changes] == [("worker_idle_timeout_minutes", 60, 15)]
    stopped = "3 workers will be stopped within 5 minutes unless used: alpha, bravo, delta."
    assert found.effects == (f"{stopped} With the current settings: 1 worker.",)


def test_a_worker_that_becomes_idle_within_the_period_counts() -> None:
    (effect,) = preview([used("alpha", 12)], idle={"worker_idle_timeout_minutes": 15}).effects
    assert effect.startswith("1 worker will be stopped within 5 minutes unless used: alpha.")
    (effect,) = preview([used("alpha", 9)], idle={"worker_idle_timeout_minutes": 15}).effects
    assert effect == "No worker will be stopped within 5 minutes."


@pytest.mark.parametrize(
    "facts",
    [
        {"idle_detection_enabled": False},
        {"last_resumed_at": NOW - timedelta(minutes=10)},
        {"allocation": Allocation(lablets=1)},
        {"hold": Hold(reason="exam", by="ann", since=NOW)},
        {"conditions": ()},
        {
            "conditions": (
                READY,
                Condition(type=ConditionType.TELEMETRY_MISSING, status=ConditionStatus.TRUE, since=NOW),
            )
        },
    ],
)
def test_a_worker_that_automation_leaves_alone_is_not_counted(facts: dict[str, Any]) -> None:
    (effect,) = preview([used("alpha", 30, **facts)], idle={"worker_idle_timeout_minutes": 15}).effects
    assert effect == "No worker will be stopped within 5 minutes."
    drains: dict[str, Any] = {"idle": {"worker_auto_pause_enabled": False}, "scaling": {"scale_down_enabled": True}}
    effects = preview([used("alpha", 90, **facts)], **drains).effects
    assert effects[1] == "No worker is idle now, so none will be drained."


@pytest.mark.parametrize(("minutes", "stopped"), [(None, False), (60, False), (3, True)])
def test_a_worker_that_an_open_window_keeps_up_is_not_stopped_before_it_closes(
    minutes: int | None, stopped: bool
) -> None:
    until = None if minutes is None else NOW + timedelta(minutes=minutes)
    claim = Claim(Authority.SCHEDULE, DesiredStatus.RUNNING, "schedule office is open", until)
    claims = {"w-alpha": OtherClaims(schedule=claim)}
    workers = [used("alpha", 90), used("bravo", 90)]
    (effect,) = preview(workers, claims=claims, idle={"worker_idle_timeout_minutes": 15}).effects
    names = "2 workers will be stopped within 5 minutes unless used: alpha, bravo."
    assert effect == (names if stopped else "1 worker will be stopped within 5 minutes unless used: bravo.")
    drains: dict[str, Any] = {"idle": {"worker_auto_pause_enabled": False}, "scaling": {"scale_down_enabled": True}}
    drained = preview(workers, claims=claims, **drains).effects[1]
    assert drained.startswith("2 idle workers" if stopped else "1 idle worker will be drained")


def test_the_minimum_is_kept() -> None:
    workers = [used("alpha", 30), used("bravo", 30), used("charlie", 30)]
    (effect,) = preview(workers, idle={"worker_idle_timeout_minutes": 15}, scaling={"min_workers": 2}).effects
    assert "1 of 3 idle workers will be stopped within 5 minutes" in effect
    assert "MIN_WORKERS keeps 2 running." in effect


def test_switching_auto_pause_off_says_what_no_longer_happens() -> None:
    (effect,) = preview([used("alpha", 90)], idle={"worker_auto_pause_enabled": False}).effects
    assert effect == "No worker will be stopped within 5 minutes. With the current settings: 1 worker."


def test_scale_down_drains_one_after_the_other() -> None:
    workers = [used("alpha", 90), used("bravo", 90)]
    effects = preview(workers, idle={"worker_auto_pause_enabled": False}, scaling={"scale_down_enabled": True}).effects
    assert effects[1] == "2 idle workers will be drained, at most one every 10 minutes: alpha, bravo."


def test_a_longer_check_interval_is_the_period() -> None:
    (effect,) = preview([used("alpha", 50)], idle={"idle_detection_interval": 3600}).effects
    assert effect.startswith("1 worker will be stopped within 1 hour unless used")


def test_a_held_fleet_is_named() -> None:
    effects = preview([used("alpha", 30)], held=True, idle={"worker_idle_timeout_minutes": 15}).effects
    assert effects[-1] == "The fleet is on hold: nothing is stopped or drained before its release."


def test_full_regions_and_switches() -> None:
    effects = preview([], scaling={"max_workers_per_region": 12}, discovery={"breaker_enabled": False}).effects
    assert effects[1:] == (
        "Workers will be marked as lost however many are lost at once.",
        "Scale-up will launch no worker in a region that has 12 or more: eu-west-1 has 12.",
    )


def test_nothing_changes_nothing() -> None:
    found = preview([used("alpha", 90)])
    assert (found.changes, found.effects) == ((), ())


def test_plan_names_the_workers_that_will_be_restarted() -> None:
    event = AnnouncedMaintenance(code="instance-retirement", not_before=NOW + timedelta(days=7))
    workers = [
        used("alpha", 1, maintenance=event),
        used("bravo", 1, maintenance=event, allocation=Allocation(lablets=2)),
        used("charlie", 1),
    ]
    found = preview(workers, maintenance={"maintenance_policy": "plan"})
    assert found.effects == (
        "1 worker will be restarted, one at a time in each region, unless a node runs on it: alpha.",
        "1 worker will be restarted after their last lablet: bravo.",
    )
    assert preview(workers[2:], maintenance={"maintenance_policy": "plan"}).effects == (
        "No worker has to be restarted now.",
    )
    assert preview(workers, maintenance={"impaired_after": 60.0}).effects == (
        "Announced maintenance and failed status checks will only be reported.",
    )
