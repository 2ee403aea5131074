"""Figures that look like those of real lab servers: quiet nights, busy afternoons, lab sessions that come and go.

Everything follows from seed, instance and moment alone: the same question always has the same answer, in any order.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from lcm.cloud.simulated.machine import moment
from lcm.cloud.types import InstanceMetrics

PERIOD: Final = 60
_DAY: Final = 86400.0
_BUSIEST: Final = 14 * 3600.0
_BOOT: Final = 240.0


@dataclass(frozen=True, slots=True)
class Character:
    """What one machine is like."""

    idle_cpu: float
    idle_memory: float
    disk: float
    disk_a_day: float
    traffic: float
    diligence: float


@dataclass(frozen=True, slots=True)
class Session:
    """A lab that runs for a while on one day; its weight is between 0 and 1."""

    begin: float
    end: float
    weight: float

    def strength(self, second: float) -> float:
        """How much of it is to be felt at a second of the day: nodes start and stop over some minutes."""
        ramp = 300.0
        rise = (second - self.begin) / ramp
        fall = (self.end - second) / ramp
        return self.weight * max(0.0, min(1.0, rise, fall))


def _generator(*parts: object) -> random.Random:
    return random.Random(":".join(map(str, parts)))  # noqa: S311 - a simulation is meant to be foretold


@lru_cache(maxsize=16384)
def _character(seed: int, instance_id: str) -> Character:
    draw = _generator(seed, instance_id)
    return Character(
        idle_cpu=draw.uniform(1.5, 6.0),
        idle_memory=draw.uniform(14.0, 28.0),
        disk=draw.uniform(20.0, 55.0),
        disk_a_day=draw.uniform(0.05, 0.6),
        traffic=draw.lognormvariate(10.0, 0.6),
        diligence=draw.betavariate(2.0, 2.0),
    )


@lru_cache(maxsize=32768)
def _sessions(seed: int, instance_id: str, day: int) -> tuple[Session, ...]:
    draw = _generator(seed, instance_id, day)
    weekend = (day + 4) % 7 in (0, 6)
    eager = _character(seed, instance_id).diligence * (0.3 if weekend else 1.0)
    found = []
    for begin_hour in (8.0, 11.0, 14.0, 17.5):
        if draw.random() < eager:
            begin = (begin_hour + draw.uniform(-0.75, 1.5)) * 3600
            found.append(Session(begin, begin + draw.uniform(0.6, 3.0) * 3600, draw.uniform(0.35, 1.0)))
    return tuple(found)


def _noise(seed: int, instance_id: str, step: int) -> tuple[float, float, float, float]:
    digest = hashlib.blake2b(f"{seed}:{instance_id}:{step}".encode(), digest_size=8).digest()
    first, second, third, fourth = (int.from_bytes(digest[i : i + 2], "big") / 32768 - 1 for i in (0, 2, 4, 6))
    return first, second, third, fourth


def _percent(value: float) -> float:
    return round(min(100.0, max(0.0, value)), 2)


def figures(seed: int, instance_id: str, booted_at: float, now: float) -> InstanceMetrics:
    """The figures of a running machine for the last whole minute."""
    at = now // PERIOD * PERIOD
    day, second = divmod(at, _DAY)
    character = _character(seed, instance_id)
    labs = min(1.0, sum(s.strength(second) for s in _sessions(seed, instance_id, int(day))))
    daylight = 0.5 + 0.5 * math.cos((second - _BUSIEST) / _DAY * 2 * math.pi)
    fast, slow, wire, spindle = _noise(seed, instance_id, int(at) // PERIOD)
    drift = _noise(seed, instance_id, -1 - int(at) // 1800)[0]
    boot = max(0.0, 1.0 - max(0.0, at - booted_at) / _BOOT)
    busy = labs + 0.6 * boot
    cpu = character.idle_cpu * (0.7 + 0.6 * daylight) + 62 * busy * (1 + 0.12 * drift) + (1 + 7 * busy) * fast
    memory = character.idle_memory + 52 * labs * (1 + 0.05 * drift) - 10 * boot + 0.6 * slow
    disk = character.disk + character.disk_a_day * (day % 30 + second / _DAY) + 6 * labs
    traffic = character.traffic * (0.2 + 0.5 * daylight + 9 * labs) * (1 + 0.35 * wire)
    blocks = 40_000 * (0.15 + 5 * labs + 40 * boot) * (1 + 0.5 * spindle)
    return InstanceMetrics(
        instance_id=instance_id,
        at=moment(at),
        cpu_utilization=_percent(cpu),
        memory_utilization=_percent(memory),
        disk_utilization=_percent(disk),
        network_in=round(traffic, 1),
        network_out=round(traffic * (0.6 + 0.2 * slow), 1),
        disk_read=round(blocks * (0.3 + 1.5 * boot), 1),
        disk_write=round(blocks, 1),
    )
