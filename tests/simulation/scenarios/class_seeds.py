"""Random days with classes: seeds whose names begin with `class-` or `lecture-`. The other seeds stay as they are."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tests.simulation.script import FAULTS, MINUTE, NODES, ClassRules, Event, Script, facts_of

CLASS_SEED = "class-"
LECTURE_SEED = "lecture-"
_ZONE = "Europe/Brussels"
_NIGHTS = (
    datetime(2026, 3, 28, 23, 40, tzinfo=UTC),  # an hour is skipped at 01:00 UTC
    datetime(2026, 10, 24, 23, 20, tzinfo=UTC),  # an hour comes twice, from 00:00 UTC on
)
_HOME = "eu-west-1"
_REGIONS = (_HOME, _HOME, _HOME, "us-east-1")
_EXCEPT = ("newer-writes", "reschedule-event", "cancel-event", "announce", "keep-impaired", "no-kvm")


@dataclass(frozen=True, slots=True)
class _Day:
    """How long warm-ups and the day are, in minutes. Most days are short: more of them can be played."""

    warm_up: float
    span: float
    measured: float | None  # the seconds of earlier launches


_LECTURE_DAY = 720.0
_SHORT = _Day(30.0, 75.0, 900.0)
_LONG = _Day(75.0, 135.0, None)


def write_classes(seed: str) -> Script:
    """The script of a seed with classes: bookings, walk-ins, office hours, and faults near starts and ends."""
    chance = random.Random(f"{seed}/classes")
    length = _SHORT if chance.random() < 0.85 else _LONG
    books = [_book(number, length, chance) for number in range(chance.randint(1, 4))]
    people = books + _others(length, chance)
    anchors = [
        each.at + (each.facts["starts_in"] + minutes) * MINUTE
        for each in books
        for minutes in (-length.warm_up, 0.0, each.facts["lasts"])
    ]
    count = 0 if chance.random() < 0.1 else chance.randint(1, 9)
    faults = [_fault(anchors, length, chance) for _ in range(count)]
    return Script(
        people=tuple(sorted(people, key=lambda event: event.at)),
        faults=tuple(sorted(faults, key=lambda event: event.at)),
        settings=_settings(chance),
        rates={node: 1.0 if chance.random() < 0.6 else chance.uniform(0.98, 1.02) for node in NODES},
        offsets={node: chance.uniform(-2, 2) for node in NODES},
        span=length.span * MINUTE,
        polls=chance.choice([60.0, 180.0, 300.0, None]),
        patience=3 * MINUTE,
        lease=chance.choice([15, 30, 60]),
        begins=chance.choice([None, *_NIGHTS]),
        classes=ClassRules(
            team_seats=chance.choice([None, 2, 3, 5]), licensed=chance.random() < 0.5, measured=length.measured
        ),
    )


def write_lecture(seed: str) -> Script:
    """A class of thirty on a day as bad as those of other seeds: up to nine faults, but spread over twelve hours.

    Only the hour and a quarter around the class is played, with the faults that fall into it, and one between the
    warm-up and the moment at which all seats are to be ready.
    """
    chance = random.Random(f"{seed}/lecture")
    length = _SHORT
    book = Event(
        chance.uniform(0.5, 5) * MINUTE,
        "book",
        {
            "name": "lecture",
            "definition": "lecture",
            "seats": 30,
            "starts_in": chance.uniform(length.warm_up + 2, length.warm_up + 12),
            "lasts": 15,
            "weeks": 1,
            "region": _HOME,
            "for_team": False,
            "zone": _ZONE,
            "learners": chance.choice([0, 3]),
        },
    )
    moments = [chance.uniform(0, _LECTURE_DAY) for _ in range(chance.randint(1, 9))]
    faults = [_fault([], length, chance) for moment in moments if moment < length.span]
    near = random.Random(f"{seed}/near")
    before = near.uniform(5, length.warm_up) * MINUTE
    faults.append(replace(_fault([], length, near), at=book.at + book.facts["starts_in"] * MINUTE - before))
    script = write_classes(f"{seed}/settings")
    scaling = {**script.settings["scaling"], "max_workers_per_region": 14, "license_pool_size": 0}
    return replace(
        script,
        people=(book,),
        faults=tuple(sorted(faults, key=lambda event: event.at)),
        settings={**script.settings, "scaling": scaling},
        span=length.span * MINUTE,
        classes=ClassRules(measured=length.measured),
    )


def _settings(chance: random.Random) -> dict[str, dict[str, Any]]:
    return {
        "idle": {
            "worker_idle_timeout_minutes": chance.choice([3.0, 60.0]),
            "worker_auto_pause_snooze_minutes": chance.choice([1.0, 60.0]),
            "idle_detection_interval": 300.0,
            "idle_action": chance.choice(["pause", "drain"]),
            "worker_auto_pause_enabled": chance.random() < 0.7,
        },
        "scaling": {
            "min_workers": chance.choice([0, 0, 1]),
            "scale_down_enabled": chance.random() < 0.4,
            "scale_down_cooldown_seconds": 30.0,
            "max_workers_per_region": chance.choice([2, 3, 4, 6]),
            "license_pool_size": chance.choice([0, 1, 2, 4]),
        },
        "discovery": {
            "discovery_interval": chance.choice([120.0, 300.0]),
            "drift_policy": chance.choice(["restore", "restore", "accept"]),
            "terminate_leaked_instances": chance.random() < 0.5,
        },
    }


def _book(number: int, length: _Day, chance: random.Random) -> Event:
    """Most classes are booked before their warm-up, and take place within the run."""
    at, lasts = chance.uniform(0.5, 5), chance.choice([10, 15])
    latest = length.span - 10 - at - lasts
    in_time = chance.random() < 0.9
    starts_in = chance.uniform(length.warm_up + 1, latest) if in_time else chance.uniform(5, length.warm_up)
    return Event(
        at * MINUTE,
        "book",
        {
            "name": f"class{number}",
            "definition": chance.choice(["tiny", "tiny", "wide", "exam"]),
            "seats": chance.randint(1, 3),
            "starts_in": starts_in,
            "lasts": lasts,
            "weeks": chance.choice([1, 1, 3]),
            "region": chance.choice(_REGIONS),
            "for_team": chance.random() < 0.5,
            "zone": chance.choice([_ZONE, _ZONE, "UTC", "America/New_York"]),
            "learners": chance.choice([0, 0, 1]),
        },
    )


def _others(length: _Day, chance: random.Random) -> list[Event]:
    kinds: dict[str, float] = {
        "lab": 6,
        "end-lab": 1,
        "create": 2,
        "use": 3,
        "schedule": 2,
        "extend-class": 1,
        "move-class": 0.7,
        "cancel-class": 0.7,
        "stop": 1,
        "start": 0.5,
        "terminate": 0.4,
        "hold": 0.4,
        "limit-team": 0.3,
    }
    count = chance.randint(1, 8)
    chosen = chance.choices(list(kinds), list(kinds.values()), k=count)
    return [Event(chance.uniform(0.3, length.span - 10) * MINUTE, kind, class_facts(kind, chance)) for kind in chosen]


def class_facts(kind: str, chance: random.Random) -> dict[str, Any]:
    """The details of an event of a day with classes."""
    match kind:
        case "extend-class":
            return {"which": chance.random(), "minutes": chance.choice([5, 15, 60])}
        case "move-class":
            return {"which": chance.random(), "starts_in": chance.uniform(20, 100)}
        case "cancel-class":
            return {"which": chance.random(), "all_of_them": chance.random() < 0.5}
        case "limit-team":
            return {"seats": chance.choice([1, 2, None])}
        case "hold":
            return {"which": chance.random(), "minutes": chance.choice([1, 4, 20])}
        case "lab":
            lives = chance.choice([None, 5.0, 30.0, 60.0])
            return {**facts_of(kind, chance), "definition": chance.choice(["tiny", "wide"]), "lives": lives}
        case "schedule":
            hours = {"opens": chance.choice([-30, 5, 30]), "lasts": chance.choice([20, 60]), "zone": _ZONE}
            return {**facts_of(kind, chance), **hours}
        case _:
            return facts_of(kind, chance)


def _fault(anchors: list[float], length: _Day, chance: random.Random) -> Event:
    """Most faults happen around the starts and ends of classes and warm-ups."""
    weights = {kind: weight for kind, weight in FAULTS.items() if weight and kind not in _EXCEPT}
    (kind,) = chance.choices(list(weights), list(weights.values()))
    at = chance.uniform(1, length.span - 5) * MINUTE
    if anchors and chance.random() < 0.7:
        at = chance.choice(anchors) + chance.uniform(-12, 6) * MINUTE
    return Event(min(max(at, 30.0), (length.span - 2) * MINUTE), kind, facts_of(kind, chance))
