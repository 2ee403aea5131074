"""Handwritten scenarios with classes. Launches were measured, so that a warm-up takes a quarter of an hour."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.simulation.scenarios.steps import FIRST, HOME, PAUSING, at, day, lab, worker
from tests.simulation.script import NODES, ClassRules

if TYPE_CHECKING:
    from tests.simulation.script import Event, Script

_ZONE = "Europe/Brussels"
_QUICK = ClassRules(measured=60.0)
_SPRING = datetime(2026, 3, 29, 0, 38, tzinfo=UTC)  # at 01:00 UTC clocks go from 02:00 to 03:00
_AUTUMN = datetime(2026, 10, 25, 0, 38, tzinfo=UTC)  # at 01:00 UTC clocks go from 03:00 to 02:00


def book(minutes: float, name: str = "monday", *, starts_in: float, **facts: Any) -> Event:
    """A person books a class in the default region."""
    usual: dict[str, Any] = {"definition": "tiny", "seats": 1, "lasts": 5, "weeks": 1, "region": HOME}
    rest: dict[str, Any] = {"for_team": True, "zone": _ZONE, "learners": 0}
    return at(minutes, "book", **{"name": name, "starts_in": starts_in, **usual, **rest, **facts})


def class_day(
    *events: Event,
    begins: datetime | None = None,
    rules: ClassRules = _QUICK,
    polls: float = 60.0,
    **more: Any,
) -> Script:
    """A script with classes."""
    return replace(day(*events, polls=polls, **more), begins=begins, classes=rules, lease=30)


CLASS_DAYS: dict[str, Script] = {
    "a class at the hour that is skipped, with fail-overs at its start": class_day(
        worker(name="w0", template="micro", idle=True),
        at(0.5, "schedule", number=0, names=("w0",), opens=18, lasts=10, outside="stop", zone=_ZONE),
        book(1, starts_in=21, seats=2, learners=1, lasts=6),
        at(21.9, "crash", node="placer", steps=1, down=20),
        at(22, "crash-plane", steps=1, down=10),
        at(22.1, "crash", node="one", steps=1, down=20),
        at(23.5, "end-lab", which=0.0),
        at(23.6, "end-lab", which=0.9),
        *(at(24, "use", which=which) for which in (0.0, 0.9)),
        lab(24.2, lives=5.0),
        at(24.5, "stop", which="w0"),
        at(25, "extend-class", which=0.0, minutes=5),
        begins=_SPRING,
        lasting=36.0,
        idle={**PAUSING, "idle_detection_interval": 60.0},
    ),
    "control plane and controllers are down across the start of a class": class_day(
        book(0.5, starts_in=20),
        at(19, "crash-plane", steps=1, down=180),
        *(at(19, "crash", node=node, steps=1, down=180) for node in NODES),
        lasting=31.0,
    ),
    "two classes and walk-ins compete for two workers in the hour that comes twice": class_day(
        book(0.3, "first", starts_in=20, weeks=2),
        book(0.4, "licensed", starts_in=20, definition="exam", region="us-east-1"),
        # Each of these lacks one thing only.
        book(0.5, "too-many", starts_in=21, seats=2, for_team=False),
        book(0.6, "unlicensed", starts_in=21, definition="exam", for_team=False),
        book(0.7, "beyond-team", starts_in=21, region="us-east-1"),
        book(0.8, "elsewhere", starts_in=21, seats=1, for_team=False, region="us-east-1"),
        lab(1),
        lab(1.1),
        at(2, "move-class", which="elsewhere", starts_in=300),
        at(2.5, "extend-class", which="first", minutes=60),
        at(3, "limit-team", seats=1),
        at(21, "end-lab", **FIRST),
        at(22, "cancel-class", which="first", all_of_them=False),
        begins=_AUTUMN,
        rules=ClassRules(team_seats=2, licensed=True, measured=60.0),
        lasting=29.0,
        scaling={"max_workers_per_region": 2, "license_pool_size": 1},
    ),
    "a class that needs a license and one that needs none begin at one time, and the pool has one license": class_day(
        book(0.3, "lesson", starts_in=18, for_team=False),
        book(0.4, "licensed", starts_in=18, definition="exam", for_team=False),
        lasting=27.0,
        rules=ClassRules(licensed=True, measured=60.0),
        scaling={"max_workers_per_region": 2, "license_pool_size": 1},
    ),
    "CML refuses labs before a class": class_day(
        worker(name="w0", template="micro"),
        book(0.5, starts_in=18),
        at(2.5, "cml-down", which=0.0, seconds=720),
        lasting=25.0,
    ),
    "CML rejects the lab of a seat twice": class_day(
        worker(name="w0", template="micro"),
        book(0.5, starts_in=18),
        at(2.5, "lab-refused", which=0.0),
        at(3.3, "lab-refused", which=0.0),
        lasting=25.0,
    ),
    "the worker of a class is terminated outside while CML answers slowly": class_day(
        worker(name="w0", template="micro"),
        at(2, "stop", **FIRST),
        book(0.5, starts_in=25),
        lab(3),
        at(12, "terminate-outside", **FIRST),
        at(13, "cml-sluggish", late=20.0, seconds=200),
        at(19, "no-capacity", region=HOME, instance_type=None, seconds=60),
        at(28, "cancel-class", which=0.0, all_of_them=True),
        lasting=33.0,
    ),
    "a walk-in waits for the only worker, which a class needs": class_day(
        worker(name="w0", template="micro"),
        book(0.5, starts_in=18),
        lab(2),
        lasting=27.0,
        scaling={"max_workers_per_region": 1},
    ),
    "a class beside a walk-in that goes on is cancelled in its middle": class_day(
        worker(name="w0", template="micro"),
        lab(2),
        book(4, starts_in=18, lasts=120),
        at(24, "cancel-class", which=0.0, all_of_them=True),
        lasting=28.0,
        scaling={"max_workers_per_region": 2},
    ),
}
