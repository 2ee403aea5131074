"""When a worker is idle, and what prevents a pause."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from lcm.model.fleet.settings import FleetSettings, IdleSettings, ScalingSettings
from lcm.model.worker.idle import ACTIVITY_CATEGORIES, ActivityEvent, assess_idle, latest_activity
from lcm.model.worker.record import Hold, Worker
from lcm.model.worker.status import WorkerStatus
from tests.support.records.workers import NOW, a_worker


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def worker(**changes: Any) -> Worker:
    """A running worker that has been idle for two hours."""
    facts = {"status": "RUNNING", "created_at": ago(600), "last_resumed_at": ago(300), "last_activity_at": ago(120)}
    return a_worker(**{**facts, **changes})


def judge(subject: Worker, *, running: int = 3, lablets: int = 0, **settings: Any) -> tuple[bool, bool]:
    idle = IdleSettings(**{key: value for key, value in settings.items() if key in IdleSettings.model_fields})
    scaling = ScalingSettings(**{key: value for key, value in settings.items() if key in ScalingSettings.model_fields})
    verdict = assess_idle(subject, idle, scaling, now=NOW, running=running, lablets=lablets)
    return verdict.is_idle, verdict.eligible_for_pause


def test_the_defaults_are_those_of_the_specification() -> None:
    settings = FleetSettings()
    assert settings.idle.worker_idle_timeout_minutes == 60
    assert settings.idle.worker_auto_pause_enabled
    assert settings.idle.worker_auto_pause_snooze_minutes == 60
    assert settings.idle.idle_detection_interval == 300
    assert (settings.scaling.scale_down_enabled, settings.scaling.min_workers) == (False, 0)
    assert (settings.scaling.scale_down_cooldown_seconds, settings.scaling.max_workers_per_region) == (600, 10)
    assert settings.discovery.discovery_interval == 300
    assert not settings.discovery.terminate_leaked_instances


@pytest.mark.parametrize(
    ("activity", "resumed", "created", "minutes"),
    [(120, 300, 600, 120), (None, 300, 600, 300), (None, None, 600, 600), (300, 10, 600, 300)],
)
def test_idle_is_counted_from_activity_else_resume_else_creation(
    activity: int | None, resumed: int | None, created: int, minutes: int
) -> None:
    subject = worker(
        last_activity_at=None if activity is None else ago(activity),
        last_resumed_at=None if resumed is None else ago(resumed),
        created_at=ago(created),
    )
    verdict = assess_idle(subject, IdleSettings(), ScalingSettings(), now=NOW, running=3, lablets=0)
    assert verdict.idle_minutes == minutes


def test_idle_is_more_than_the_timeout_not_the_timeout_itself() -> None:
    assert judge(worker(last_activity_at=ago(60))) == (False, False)
    assert judge(worker(last_activity_at=ago(60.01))) == (True, True)
    assert judge(worker(last_activity_at=ago(1.6)), worker_idle_timeout_minutes=1.5) == (True, True)


def test_activity_in_the_future_is_no_negative_idleness() -> None:
    verdict = assess_idle(
        worker(last_activity_at=ago(-5)), IdleSettings(), ScalingSettings(), now=NOW, running=3, lablets=0
    )
    assert verdict.idle_minutes == 0


@pytest.mark.parametrize(
    ("changes", "circumstances"),
    [
        ({"status": WorkerStatus.STARTING}, {}),
        ({"idle_detection_enabled": False}, {}),
        ({"last_resumed_at": ago(59)}, {}),
        ({"hold": Hold(reason="exam", by="anna", since=ago(5))}, {}),
        ({}, {"lablets": 1}),
        ({}, {"min_workers": 3}),
        ({}, {"worker_auto_pause_enabled": False}),
        ({}, {"scale_down_enabled": True, "idle_action": "drain"}),
    ],
)
def test_each_obstacle_alone_keeps_an_idle_worker_running(
    changes: dict[str, Any], circumstances: dict[str, Any]
) -> None:
    assert judge(worker(**changes), **circumstances) == (True, False)


def test_without_an_obstacle_it_may_be_paused() -> None:
    assert judge(worker(), min_workers=2, scale_down_enabled=True) == (True, True)
    assert judge(worker(last_resumed_at=ago(60))) == (True, True)
    assert judge(worker(hold=Hold(reason="exam", by="anna", since=ago(50), until=ago(1)))) == (True, True)


def test_the_auto_pause_switch_does_not_keep_scale_down_from_draining() -> None:
    verdict = assess_idle(
        worker(), IdleSettings(worker_auto_pause_enabled=False), ScalingSettings(), now=NOW, running=3, lablets=0
    )
    assert (verdict.eligible_for_pause, verdict.eligible_for_drain) == (False, True)
    assert verdict.obstacles == ("auto-pause is disabled",)


def test_only_events_caused_by_users_count() -> None:
    events = [
        ActivityEvent(category="system_stats", at=ago(1)),
        ActivityEvent(category="user_activity", at=ago(2)),
        ActivityEvent(category="start_lab", at=ago(30)),
        ActivityEvent(category="stop_node", at=ago(20), user_id="us"),
    ]
    assert latest_activity(events) == ago(20)
    assert latest_activity(events[:2]) is None
    assert "boot_node" not in ACTIVITY_CATEGORIES
    assert len(ACTIVITY_CATEGORIES) == 12
