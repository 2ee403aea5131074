"""Health notices and metrics of simulated machines.

Metrics look like those of real lab servers: quiet nights, busy afternoons, and lab sessions. They depend on seed,
instance and time alone, so that the same query always gives the same result.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from lcm.cloud.simulated.machine import to_datetime
from lcm.cloud.types import HealthKind, HealthNotice, InstanceMetrics, InstanceState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lcm.cloud.simulated.machine import Machine
    from lcm.cloud.simulated.region import SimulatedRegion


SAMPLE_PERIOD: Final = 60
_DAY_SECONDS: Final = 86400.0
_BUSIEST_SECOND: Final = 14 * 3600.0
_BOOT_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """The load characteristics of one machine."""

    idle_cpu: float
    idle_memory: float
    disk: float
    disk_a_day: float
    traffic: float
    diligence: float


@dataclass(frozen=True, slots=True)
class LabSession:
    """A lab that runs for some hours of a day; its weight is between 0 and 1."""

    begin: float
    end: float
    weight: float

    def strength(self, second: float) -> float:
        """Return its load at a second of the day: nodes start and stop over some minutes."""
        ramp = 300.0
        rise = (second - self.begin) / ramp
        fall = (self.end - second) / ramp
        return self.weight * max(0.0, min(1.0, rise, fall))


def _seeded_random(*parts: object) -> random.Random:
    return random.Random(":".join(map(str, parts)))  # noqa: S311 - a simulation must be reproducible


@lru_cache(maxsize=16384)
def _machine_profile(seed: int, instance_id: str) -> MachineProfile:
    draw = _seeded_random(seed, instance_id)
    return MachineProfile(
        idle_cpu=draw.uniform(1.5, 6.0),
        idle_memory=draw.uniform(14.0, 28.0),
        disk=draw.uniform(20.0, 55.0),
        disk_a_day=draw.uniform(0.05, 0.6),
        traffic=draw.lognormvariate(10.0, 0.6),
        diligence=draw.betavariate(2.0, 2.0),
    )


@lru_cache(maxsize=32768)
def _lab_sessions(seed: int, instance_id: str, day: int) -> tuple[LabSession, ...]:
    draw = _seeded_random(seed, instance_id, day)
    weekend = (day + 4) % 7 in (0, 6)
    eager = _machine_profile(seed, instance_id).diligence * (0.3 if weekend else 1.0)
    found = []
    for begin_hour in (8.0, 11.0, 14.0, 17.5):
        if draw.random() < eager:
            begin = (begin_hour + draw.uniform(-0.75, 1.5)) * 3600
            found.append(LabSession(begin, begin + draw.uniform(0.6, 3.0) * 3600, draw.uniform(0.35, 1.0)))
    return tuple(found)


def _noise(seed: int, instance_id: str, step: int) -> tuple[float, float, float, float]:
    digest = hashlib.blake2b(f"{seed}:{instance_id}:{step}".encode(), digest_size=8).digest()
    first, second, third, fourth = (int.from_bytes(digest[i : i + 2], "big") / 32768 - 1 for i in (0, 2, 4, 6))
    return first, second, third, fourth


def _percent(value: float) -> float:
    return round(min(100.0, max(0.0, value)), 2)


def simulated_metrics(seed: int, instance_id: str, booted_at: float, now: float) -> InstanceMetrics:
    """Return the metrics of a running machine for the last whole minute."""
    at = now // SAMPLE_PERIOD * SAMPLE_PERIOD
    day, second = divmod(at, _DAY_SECONDS)
    character = _machine_profile(seed, instance_id)
    labs = min(1.0, sum(s.strength(second) for s in _lab_sessions(seed, instance_id, int(day))))
    daylight = 0.5 + 0.5 * math.cos((second - _BUSIEST_SECOND) / _DAY_SECONDS * 2 * math.pi)
    fast, slow, wire, spindle = _noise(seed, instance_id, int(at) // SAMPLE_PERIOD)
    drift = _noise(seed, instance_id, -1 - int(at) // 1800)[0]
    boot = max(0.0, 1.0 - max(0.0, at - booted_at) / _BOOT_SECONDS)
    busy = labs + 0.6 * boot
    cpu = character.idle_cpu * (0.7 + 0.6 * daylight) + 62 * busy * (1 + 0.12 * drift) + (1 + 7 * busy) * fast
    memory = character.idle_memory + 52 * labs * (1 + 0.05 * drift) - 10 * boot + 0.6 * slow
    disk = character.disk + character.disk_a_day * (day % 30 + second / _DAY_SECONDS) + 6 * labs
    traffic = character.traffic * (0.2 + 0.5 * daylight + 9 * labs) * (1 + 0.35 * wire)
    blocks = 40_000 * (0.15 + 5 * labs + 40 * boot) * (1 + 0.5 * spindle)
    return InstanceMetrics(
        instance_id=instance_id,
        at=to_datetime(at),
        cpu_utilization=_percent(cpu),
        memory_utilization=_percent(memory),
        disk_utilization=_percent(disk),
        network_in=round(traffic, 1),
        network_out=round(traffic * (0.6 + 0.2 * slow), 1),
        disk_read=round(blocks * (0.3 + 1.5 * boot), 1),
        disk_write=round(blocks, 1),
    )


METRIC_NAMES: Final = (
    "cpu_utilization",
    "memory_utilization",
    "disk_utilization",
    "network_in",
    "network_out",
    "disk_read",
    "disk_write",
)
MAX_QUERIES_PER_CALL: Final = 500

MetricQuery = tuple[str, str]


def health_notices(region: SimulatedRegion, kind: HealthKind, now: float) -> list[HealthNotice]:
    """DescribeInstanceStatus with a filter for this kind.

    Only running machines have status checks; maintenance is scheduled for stopped ones too.
    """
    found: list[HealthNotice] = []
    for machine in region.machines.values():
        found.extend(_machine_notices(region, machine, kind, now))
    return found


def _machine_notices(region: SimulatedRegion, machine: Machine, kind: HealthKind, now: float) -> list[HealthNotice]:
    if not region.shown(machine, now):
        return []
    if kind is HealthKind.MAINTENANCE:
        return [
            HealthNotice(machine.id, kind, event.detail, to_datetime(event.not_before), event.code)
            for event in machine.events
            if machine.state is not InstanceState.TERMINATED and event.is_listed_as_open(now)
        ]
    if kind in machine.impaired:
        return [HealthNotice(machine.id, kind, "failed: reachability")]
    if machine.are_checks_pending(now):
        return [HealthNotice(machine.id, HealthKind.CHECKS_PENDING, "initializing")]
    return []


def metric_values(
    region: SimulatedRegion, seed: int | None, queries: Iterable[MetricQuery], now: float
) -> Mapping[str, Mapping[str, float]]:
    """GetMetricData: the latest value of each metric that has one. Without a seed, only stored metrics exist."""
    names_by_instance: defaultdict[str, list[str]] = defaultdict(list)
    for instance_id, name in queries:
        names_by_instance[instance_id].append(name)
    result: dict[str, Mapping[str, float]] = {}
    for instance_id, names in names_by_instance.items():
        metrics = _instance_metrics(region, seed, instance_id, now)
        if metrics is not None:
            result[instance_id] = {
                "at": metrics.at.timestamp(),
                **{name: value for name in names if (value := getattr(metrics, name)) is not None},
            }
    return result


def put_metrics(region: SimulatedRegion, metrics: InstanceMetrics) -> None:
    """Store metrics of an instance, unless the region has later ones."""
    stored = region.metrics.get(metrics.instance_id)
    if stored is None or stored.at <= metrics.at:
        region.metrics[metrics.instance_id] = metrics


def merge_metric_values(results: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, InstanceMetrics]:
    """Merge the results of several queries, each of which may contain a part of an instance's metrics."""
    joined: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for result in results:
        for instance_id, values in result.items():
            joined[instance_id].update(values)
    return {i: InstanceMetrics(i, to_datetime(values.pop("at")), **values) for i, values in joined.items()}


def _instance_metrics(
    region: SimulatedRegion, seed: int | None, instance_id: str, now: float
) -> InstanceMetrics | None:
    machine = region.machines.get(instance_id)
    if seed is None or machine is None:
        return region.metrics.get(instance_id)
    if not region.shown(machine, now) or machine.state is not InstanceState.RUNNING:
        return None
    return simulated_metrics(seed, instance_id, machine.launched_at, now)
