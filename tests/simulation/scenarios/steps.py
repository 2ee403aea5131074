"""Building blocks for handwritten scenarios."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.script import FAULTS, MINUTE, NODES, Event, Script

_SETTINGS: dict[str, dict[str, Any]] = {
    "idle": {"worker_auto_pause_enabled": False},
    "scaling": {"scale_down_enabled": False},
    "maintenance": {"maintenance_policy": "report"},
    "discovery": {"discovery_interval": 60.0, "drift_policy": "restore", "terminate_leaked_instances": False},
}
PAUSING = {
    "worker_auto_pause_enabled": True,
    "worker_idle_timeout_minutes": 3.0,
    "worker_auto_pause_snooze_minutes": 1.0,
    "idle_detection_interval": 30.0,
    "idle_action": "pause",
}
MOVING = {"maintenance_policy": "plan", "impaired_after": 120.0}
HOME = "eu-west-1"
FIRST = {"which": 0.0}
_AFTER = {"check-waits": 7}  # minutes that an event needs at most


def at(minutes: float, kind: str, /, **facts: Any) -> Event:
    """An event this many minutes after the beginning."""
    return Event(minutes * MINUTE, kind, facts)


def worker(minutes: float = 0.2, name: str = "w0", **facts: Any) -> Event:
    """A user creates a worker in the default region."""
    usual = {"template": "small", "region": HOME, "desired": "RUNNING", "token": None, "lost": "terminate"}
    return at(minutes, "create", **{"name": name, "idle": False, **usual, **facts})


def lab(minutes: float, definition: str = "tiny", **facts: Any) -> Event:
    """A user creates a lablet in the default region."""
    return at(
        minutes, "lab", **{"definition": definition, "region": HOME, "lives": None, "lost": "reschedule", **facts}
    )


def day(*events: Event, polls: float | None = 30.0, lasting: float = 5.0, **settings: dict[str, Any]) -> Script:
    """A script of these events: this many minutes long, and some minutes longer than the last event."""
    ordered = sorted(events, key=lambda event: event.at)
    return Script(
        people=tuple(event for event in ordered if event.kind not in FAULTS),
        faults=tuple(event for event in ordered if event.kind in FAULTS),
        settings={name: {**group, **settings.get(name, {})} for name, group in _SETTINGS.items()},
        rates=dict.fromkeys(NODES, 1.0),
        offsets=dict.fromkeys(NODES, 0.0),
        span=max(lasting * MINUTE, *(event.at + _AFTER.get(event.kind, 2) * MINUTE for event in ordered)),
        polls=polls,
        patience=3 * MINUTE,
    )


def days(*events: Event, lasting: float) -> Script:
    """A script of days: nothing that happens by itself does so more often than every few minutes."""
    script = day(*events, polls=600.0, lasting=lasting, discovery={"discovery_interval": 3600.0})
    return replace(script, lease=120, long=True)


def leaderless(minutes: float, seconds: float) -> tuple[Event, ...]:
    """No worker controller runs for a while."""
    return tuple(at(minutes, "crash", node=node, steps=1, down=seconds) for node in ("one", "two"))


def both(line: str, minutes: float, seconds: float) -> tuple[Event, ...]:
    """No worker controller can reach a target for a while."""
    return tuple(at(minutes, "cut", line=(node, line), seconds=seconds) for node in ("one", "two"))
