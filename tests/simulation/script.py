"""The events of one run, decided by the seed in advance, so that any of them can be left out in a replay."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

MINUTE = 60.0
SPAN = 30 * MINUTE
"""The duration of a seed's script."""

NODES = ("one", "two", "placer", "stand-in", "labs")
"""Nodes that run controllers; the platform decides which ones."""
_NAMES = tuple(f"w{number}" for number in range(9))
_REGIONS = ("eu-west-1", "us-east-1")
_DIALLING_AWS = ("one", "two")
UNAUTHENTICATED = ("RequestExpired", "ExpiredToken", "AuthFailure", "SignatureDoesNotMatch", "InvalidClientTokenId")
"""Error codes that say nothing about the call: the caller is not known."""
_LINES = tuple(
    (node, far) for node in NODES for far in ("etcd", "plane", "aws") if far != "aws" or node in _DIALLING_AWS
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event and its time, in seconds from the beginning."""

    at: float
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{self.at / MINUTE:6.2f} min  {self.kind}  {facts}".rstrip()


@dataclass(frozen=True, slots=True)
class ClassRules:
    """What a run with classes begins with."""

    team_seats: int | None = None  # the limit of the team that books
    licensed: bool = False  # whether workers that are launched by policy get a license
    measured: float | None = None  # the seconds that launches took before, and labs a sixth of them


@dataclass(frozen=True, slots=True)
class Script:
    """User actions, faults, and the kind of fleet."""

    people: tuple[Event, ...]
    faults: tuple[Event, ...]
    settings: dict[str, dict[str, Any]]
    rates: dict[str, float]
    offsets: dict[str, float]
    polls: float | None  # how often controllers list all resources, regardless of events; None: never
    span: float  # the duration of user actions and faults
    patience: float  # the minimum time that a run continues after the last fault
    lease: int = 15  # seconds after which a silent leader loses its lease
    begins: datetime | None = None  # what clocks show at the beginning; None: a day in winter
    classes: ClassRules | None = None  # None: nobody books any
    long: bool = False  # it lasts days: what a process does every few seconds by itself it does every few minutes


PEOPLE: dict[str, float] = {
    "create": 8,
    "stop": 4,
    "start": 4,
    "drain": 3,
    "cancel-drain": 2,
    "terminate": 3,
    "retry": 3,
    "hold": 2,
    "release": 2,
    "hold-fleet": 0.5,
    "license": 2,
    "deregister": 1,
    "use": 3,
    "breaker": 0.5,
    "trust": 0.7,
    "settings": 0.7,
    "lab": 7,
    "end-lab": 3,
    "reset-lab": 0,  # only in scenarios
    # Drawn by a chance of their own.
    "schedule": 0,
    "unschedule": 0,
    "check-waits": 0,
    "check-sight": 0,  # only in scenarios, where nothing else keeps a controller from saying so
    # Only in runs with classes.
    "book": 0,
    "extend-class": 0,
    "move-class": 0,
    "cancel-class": 0,
    "limit-team": 0,
}
"""User actions and their relative frequency."""

FAULTS: dict[str, float] = {
    "crash": 4,
    "crash-plane": 1.5,
    "pause": 2.5,
    "pause-plane": 1,
    "cut": 4,
    "flaky": 4,
    "etcd-outage": 1,
    "replace-etcd": 0.5,
    "break-watches": 2,
    "compact": 0.7,
    "aws-outage": 1,
    "slow-aws": 1,
    "queue-calls": 2,
    "swallow": 1,
    "throttle": 2,
    "refuse": 2,
    "lose-replies": 3,
    "hide-new": 1.5,
    "lag-reads": 1.5,
    "mix-states": 0.7,
    "hide-old": 1.5,
    "hide-region": 1,
    "drop-from-reads": 1,
    "halve-pages": 1,
    "fail-page": 1.5,
    "stop-outside": 2,
    "start-outside": 1.5,
    "terminate-outside": 1.5,
    "launch-outside": 0.7,
    "launch-alike": 0.7,
    "impair": 0.7,
    "cml-down": 1.5,
    "cml-loses": 1,
    "cml-forgets": 0.7,
    "lab-lands-late": 1,
    "lab-vanishes": 1,
    "lab-stopped": 1,
    "lab-refused": 0.7,
    "freeze-ec2": 1.5,
    "odd-state": 0.7,
    "no-address": 0.7,
    "vanish": 0.7,
    "deaf": 1,
    "cml-slow": 0.7,
    "cml-sluggish": 0.7,
    "cml-zone": 1,
    "cml-long-list": 0.7,
    "cml-refuses": 0.7,
    "cml-certificate": 0.7,
    "odd-license": 0.5,
    "resign": 1,
    "clock-jump": 1.5,
    "newer-writes": 1.5,
    "newer-plane": 0,  # drawn by a chance of its own
    "credentials": 1.5,
    "metadata-silent": 0.7,
    "clock-off": 0.7,
    "no-capacity": 1.5,
    "zone-without-type": 1,
    "license-server-silent": 0.7,
    "no-kvm": 0,  # only in scenarios: random workers have templates that do not require it
    # Drawn by a chance of their own.
    "announce": 0,
    "reschedule-event": 0,
    "cancel-event": 0,
    "keep-impaired": 0,
    "halve-lists": 0,
}
"""Faults and their relative frequency."""
_BUSY = {2: 5, 3: 3, 5: 2}
"""The initial number of workers, and thereby the number of events: few events interleave in more ways than chance would
produce among many, and violations are found faster."""


def write(seed: int | str) -> Script:
    """The script of a seed."""
    chance = random.Random(f"{seed}/script")
    most = chance.choices(list(_BUSY), list(_BUSY.values()))[0]
    first = [Event(chance.uniform(5, 60), "create", facts_of("create", chance)) for _ in range(chance.randint(1, most))]
    people = first + _events(PEOPLE, chance.randint(most, 6 * most), chance)
    people += _schedules(random.Random(f"{seed}/schedules"))
    quiet = chance.random() < 0.1
    faults = [] if quiet else _events(FAULTS, chance.randint(most // 2 + 1, 3 * most), chance)
    settings = _settings(chance)
    faults += _maintenance(random.Random(f"{seed}/maintenance"), settings)
    faults += _half_lists(random.Random(f"{seed}/lists"))
    lacking, checks = _long_waits(random.Random(f"{seed}/waits"))
    faults, people = faults + lacking, people + checks
    faults += _newer_plane(random.Random(f"{seed}/versions"))
    return Script(
        people=tuple(sorted(people, key=lambda event: event.at)),
        faults=tuple(sorted(faults, key=lambda event: event.at)),
        settings=settings,
        rates={node: 1.0 if chance.random() < 0.6 else chance.uniform(0.98, 1.02) for node in NODES},
        offsets={node: chance.uniform(-2, 2) for node in NODES},
        span=SPAN,
        polls=chance.choice([60.0, 180.0, 300.0, None]),
        patience=chance.choice([3, 3, 3, 3, 3, 3, 3, 20]) * MINUTE,
        lease=chance.choice([15, 30, 60]),
    )


def _events(kinds: dict[str, float], count: int, chance: random.Random) -> list[Event]:
    chosen = chance.choices(list(kinds), list(kinds.values()), k=count)
    return [Event(chance.uniform(20, SPAN), kind, facts_of(kind, chance)) for kind in chosen]


def _settings(chance: random.Random) -> dict[str, dict[str, Any]]:
    """Short timeouts, so that idleness and scale-down happen within a run."""
    return {
        "idle": {
            "worker_idle_timeout_minutes": chance.choice([3.0, 5.0, 60.0]),
            "worker_auto_pause_snooze_minutes": chance.choice([1.0, 2.0, 60.0]),
            "idle_detection_interval": chance.choice([60.0, 120.0]),
            "idle_action": chance.choice(["pause", "drain"]),
            "worker_auto_pause_enabled": chance.random() < 0.7,
        },
        "scaling": {
            "min_workers": chance.choice([0, 0, 1, 2]),
            "scale_down_enabled": chance.random() < 0.4,
            "scale_down_cooldown_seconds": chance.choice([30.0, 120.0]),
        },
        "discovery": {
            "discovery_interval": chance.choice([60.0, 120.0]),
            "drift_policy": chance.choice(["restore", "restore", "accept"]),
            "terminate_leaked_instances": chance.random() < 0.5,
        },
    }


_MAINTENANCE_FAULTS = {"announce": 5.0, "reschedule-event": 2.0, "cancel-event": 2.0, "keep-impaired": 3.0}


def _maintenance(chance: random.Random, settings: dict[str, dict[str, Any]]) -> list[Event]:
    """In one run of four EC2 announces maintenance or has impaired instances, and mostly workers are to move."""
    if chance.random() > 0.25:
        return []
    policy = chance.choice(["plan", "plan", "report"])
    settings["maintenance"] = {"maintenance_policy": policy, "impaired_after": chance.choice([60.0, 300.0])}
    return _events(_MAINTENANCE_FAULTS, chance.randint(1, 4), chance)


def _half_lists(chance: random.Random) -> list[Event]:
    """In one run of ten EC2's lists are not complete for minutes."""
    return _events({"halve-lists": 1.0}, 1, chance) if chance.random() < 0.1 else []


def _long_waits(chance: random.Random) -> tuple[list[Event], list[Event]]:
    """In one run of five something is missing nearly all the time, and whoever waits for it must say so."""
    if chance.random() > 0.2:
        return [], []
    kind = chance.choice(["no-capacity", "no-capacity", "license-server-silent"])
    facts: dict[str, Any] = {"seconds": 1500}
    if kind == "no-capacity":
        facts |= {"region": chance.choice(_REGIONS), "instance_type": chance.choice([None, "t3.small"])}
    return [Event(chance.uniform(20, 240), kind, facts)], [Event(chance.uniform(20, 24) * MINUTE, "check-waits")]


def _newer_plane(chance: random.Random) -> list[Event]:
    """In one run of ten a control plane of the next version runs beside ours."""
    return _events({"newer-plane": 1.0}, 1, chance) if chance.random() < 0.1 else []


_SCHEDULING = {"schedule": 4.0, "unschedule": 1.0}


def _schedules(chance: random.Random) -> list[Event]:
    """In one run of four workers have schedules, whose windows open and close within the run."""
    return _events(_SCHEDULING, chance.randint(1, 6), chance) if chance.random() < 0.25 else []


def facts_of(kind: str, chance: random.Random) -> dict[str, Any]:
    """The details of an event, by chance."""
    if kind in _BY_KIND:
        return _BY_KIND[kind](chance)
    return {"which": chance.random()}


def _create(chance: random.Random) -> dict[str, Any]:
    return {
        "name": chance.choice(_NAMES),
        "template": chance.choice(["small", "small", "large"]),
        "region": chance.choice(_REGIONS),
        "desired": chance.choice(["RUNNING"] * 5 + ["STOPPED"]),
        "token": chance.choice(["good-token", "good-token", "bad-token", None]),
        "lost": chance.choice(["terminate", "replace"]),
        "idle": chance.random() < 0.8,
    }


def _lab(chance: random.Random) -> dict[str, Any]:
    return {
        "definition": chance.choice(["tiny", "tiny", "tiny", "wide", "wide", "slow"]),
        "region": chance.choice([None, None, *_REGIONS]),
        "lives": chance.choice([None, None, 3.0, 8.0]),
        "lost": chance.choice(["reschedule", "reschedule", "fail"]),
    }


def _schedule(chance: random.Random) -> dict[str, Any]:
    return {
        "number": chance.randint(0, 2),
        "names": tuple(sorted(chance.sample(_NAMES, 5))),
        "opens": chance.choice([-30, -5, 2, 5, 10]),
        "lasts": chance.choice([2, 5, 10, 40]),
        "outside": chance.choice(["stop", "stop", "stop", "nothing"]),
    }


_BY_KIND: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "create": _create,
    "lab": _lab,
    "schedule": _schedule,
    "unschedule": lambda chance: {"number": chance.randint(0, 2)},
    "credentials": lambda chance: {
        "region": chance.choice(_REGIONS),
        "code": chance.choice(UNAUTHENTICATED),
        "seconds": chance.choice([10, 60, 300]),
    },
    "metadata-silent": lambda chance: {"node": chance.choice(_DIALLING_AWS), "seconds": chance.choice([20, 90, 300])},
    "clock-off": lambda chance: {"node": chance.choice(_DIALLING_AWS), "seconds": chance.choice([20, 90, 300])},
    "no-capacity": lambda chance: {
        "region": chance.choice(_REGIONS),
        "instance_type": chance.choice([None, "t3.small", "t3.large"]),
        "seconds": chance.choice([60, 300, 1200]),
    },
    "zone-without-type": lambda chance: {
        "region": chance.choice(_REGIONS),
        "instance_type": chance.choice(["t3.small", "t3.large"]),
        "subnet_id": chance.choice(["subnet-a", "subnet-b"]),
    },
    "license-server-silent": lambda chance: {"seconds": chance.choice([60, 600])},
    "freeze-ec2": lambda chance: {"region": chance.choice(_REGIONS), "seconds": chance.choice([30, 120, 400])},
    "no-address": lambda chance: {"which": chance.random(), "seconds": chance.choice([20, 90, 400])},
    "deaf": lambda chance: {
        "part": chance.choice(["settings", "fleet", "worker-templates", "leadership", "installation"]),
        "seconds": chance.choice([10, 60, 200]),
    },
    "cml-slow": lambda chance: {
        "which": chance.random(),
        "seconds": chance.choice([60, 200]),
        "late": chance.choice([9.0, 29.0]),
    },
    "cml-zone": lambda chance: {"which": chance.random(), "hours": chance.choice([-5, 5.5, 9])},
    "cml-refuses": lambda chance: {"which": chance.random(), "seconds": chance.choice([60, 300]), "watched": False},
    "cml-sluggish": lambda chance: {"late": chance.choice([5.0, 20.0]), "seconds": chance.choice([60, 200])},
    "odd-license": lambda chance: {"which": chance.random(), "seconds": chance.choice([30, 120])},
    "odd-state": lambda chance: {"which": chance.random(), "seconds": chance.choice([20, 90, 400])},
    "lab-lands-late": lambda chance: {"seconds": chance.choice([5.0, 40.0, 100.0])},
    "hold": lambda chance: {"which": chance.random(), "minutes": chance.choice([None, 1, 4])},
    "hold-fleet": lambda chance: {"seconds": chance.uniform(30, 240)},
    "license": lambda chance: {"which": chance.random(), "token": chance.choice(["good-token", "bad-token"])},
    "settings": _settings,
    "crash": lambda chance: {
        "node": chance.choice(NODES),
        "steps": int(chance.expovariate(1 / 120)),
        "down": chance.uniform(0.5, 60),
    },
    "crash-plane": lambda chance: {"steps": int(chance.expovariate(1 / 200)), "down": chance.uniform(0.2, 20)},
    "pause": lambda chance: {"node": chance.choice(NODES), "seconds": chance.choice([3, 12, 20, 45, 90])},
    "pause-plane": lambda chance: {"seconds": chance.choice([2, 8, 25])},
    "cut": lambda chance: {"line": chance.choice(_LINES), "seconds": chance.choice([2, 8, 20, 60, 150])},
    "flaky": lambda chance: {
        "line": chance.choice([(node, far) for node, far in _LINES if far != "aws"]),
        "seconds": chance.choice([10, 60, 180]),
        "there": chance.choice([0.0, 0.1, 0.4]),
        "back": chance.choice([0.0, 0.1, 0.4]),
        "slowest": chance.choice([0.02, 0.5, 4.0, 25.0]),
    },
    "etcd-outage": lambda chance: {"seconds": chance.choice([3, 10, 40, 150])},
    "replace-etcd": lambda chance: {
        "down": chance.uniform(0.5, 60),
        "revision": chance.choice([1, 1, 100_000]),
        "same_id": chance.random() < 0.5,
    },
    "break-watches": lambda chance: {"node": chance.choice((*NODES, "plane"))},
    "slow-aws": lambda chance: {
        "node": chance.choice(_DIALLING_AWS),
        "seconds": chance.choice([30, 120, 300]),
        "slowest": chance.choice([2.0, 6.0]),
    },
    "queue-calls": lambda chance: {
        "node": chance.choice(_DIALLING_AWS),
        "seconds": chance.choice([30, 120, 300]),
        "slowest": chance.choice([1.0, 5.0, 20.0]),
    },
    "swallow": lambda chance: {"region": chance.choice(_REGIONS), "seconds": chance.choice([60, 200, 400])},
    "aws-outage": lambda chance: {"region": chance.choice(_REGIONS), "seconds": chance.uniform(5, 90)},
    "throttle": lambda chance: {
        "operation": chance.choice(["DescribeInstances", "RunInstances", "StopInstances", "StartInstances"]),
        "times": chance.randint(1, 5),
        "region": chance.choice(_REGIONS),
    },
    "refuse": lambda chance: {
        "operation": chance.choice(["RunInstances", "RunInstances", "StartInstances"]),
        "code": chance.choice(
            ["InsufficientInstanceCapacity", "UnauthorizedOperation", "InternalError", "RequestExpired"]
        ),
        "times": chance.randint(1, 3),
        "region": chance.choice(_REGIONS),
    },
    "lose-replies": lambda chance: {
        "times": chance.randint(1, 3),
        "silent": chance.random() < 0.5,
        "region": chance.choice(_REGIONS),
    },
    "hide-new": lambda chance: {
        "seconds": chance.choice([5, 30, 120]),
        "lasting": chance.uniform(20, 200),
        "region": chance.choice(_REGIONS),
    },
    "lag-reads": lambda chance: {
        "seconds": chance.choice([3, 15, 40]),
        "lasting": chance.uniform(20, 200),
        "region": chance.choice(_REGIONS),
    },
    "mix-states": lambda chance: {
        "seconds": chance.choice([15, 40]),
        "lasting": chance.uniform(60, 300),
        "region": chance.choice(_REGIONS),
    },
    "hide-old": lambda chance: {
        "which": chance.random(),
        "count": chance.randint(1, 4),
        "seconds": chance.choice([20, 70, 240]),
        "region": chance.choice(_REGIONS),
    },
    "hide-region": lambda chance: {"seconds": chance.choice([20, 120, 700]), "region": chance.choice(_REGIONS)},
    "drop-from-reads": lambda chance: {
        "share": chance.choice([0.3, 0.5]),
        "seconds": chance.choice([60, 300]),
        "region": chance.choice(_REGIONS),
    },
    "halve-pages": lambda chance: {"times": chance.randint(1, 5), "region": chance.choice(_REGIONS)},
    "halve-lists": lambda chance: {"seconds": chance.choice([120, 600]), "region": chance.choice(_REGIONS)},
    "fail-page": lambda chance: {"times": chance.randint(1, 4), "region": chance.choice(_REGIONS)},
    "announce": lambda chance: {
        "which": chance.random(),
        "seconds": chance.choice([120, 600, 86400]),
        "code": chance.choice(["instance-retirement", "instance-stop", "system-reboot"]),
    },
    "reschedule-event": lambda chance: {"which": chance.random(), "seconds": chance.choice([60, 600])},
    "keep-impaired": lambda chance: {"which": chance.random(), "seconds": chance.choice([400, 1500])},
    "launch-outside": lambda chance: {"region": chance.choice(_REGIONS), "ours": chance.random() < 0.5},
    "cml-down": lambda chance: {"which": chance.random(), "seconds": chance.uniform(20, 300)},
    "cml-loses": lambda chance: {"share": chance.choice([0.3, 1.0]), "seconds": chance.uniform(20, 200)},
    "resign": lambda chance: {"node": chance.choice(NODES)},
    "newer-writes": lambda chance: {"which": chance.random(), "seconds": chance.choice([0, 0, 30, 200])},
    "newer-plane": lambda chance: {"seconds": chance.choice([30, 300, 900])},
    "clock-jump": lambda chance: {
        "hosts": [chance.choice((*NODES, "plane", "plane"))],
        "by": chance.choice([400.0, 900.0, -300.0, -600.0]),
        "seconds": chance.choice([30, 120, 300]),
    },
}
