"""Figures of one worker from both sources, put together within the bounds of the model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lcm.model.worker.metrics import MetricsSample

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.cloud.types import InstanceMetrics
    from lcm.cml.types import SystemStats
    from lcm.controllers.worker.observe.observation import CmlSight
    from lcm.model.worker.record import Worker

_LARGEST: Final = 2**53
_SHARES: Final = ("cpu_utilization", "memory_utilization", "disk_utilization")
_AMOUNTS: Final = ("network_in", "network_out", "disk_read", "disk_write")


@dataclass(frozen=True, slots=True)
class CmlLook:
    """What a look at an instance's CML brought."""

    instance_id: str | None
    sight: CmlSight
    stats: SystemStats | None


def combine(worker: Worker, at: datetime, cloud: InstanceMetrics | None, look: CmlLook | None) -> MetricsSample | None:
    """A sample with what is known; None when not a single figure is. What is of another instance does not count."""
    figures = {} if cloud is None else _of_cloud(cloud)
    if look is not None and look.instance_id == worker.instance_id and _answered(look.sight):
        figures |= _of_cml(look.sight, look.stats)
    known = {name: figure for name, figure in figures.items() if figure is not None}
    if not known or worker.instance_id is None:
        return None
    return MetricsSample(worker_id=worker.id, instance_id=worker.instance_id, collected_at=at, **known)


def _answered(cml: CmlSight) -> bool:
    """Whether the server spoke at all. The version outlives a failed look, but is no news then."""
    return cml.ready is True or (cml.ready is False and not cml.trouble)


def _of_cloud(cloud: InstanceMetrics) -> dict[str, Any]:
    shares = {name: _within(getattr(cloud, name), 100.0) for name in _SHARES}
    return shares | {name: _within(getattr(cloud, name), math.inf) for name in _AMOUNTS}


def _of_cml(cml: CmlSight, stats: SystemStats | None) -> dict[str, Any]:
    return {
        "labs_count": _count(cml.labs),
        "nodes_count": _count(cml.nodes),
        "running_nodes": _count(cml.running_nodes),
        "system_info": _system(cml, stats),
        "cml_version": cml.version,
    }


def _system(cml: CmlSight, stats: SystemStats | None) -> dict[str, Any]:
    system: dict[str, Any] = {"ready": cml.ready}
    if stats is not None:
        system |= {"cpu_count": _count(stats.cpu_count), "cpu_percent": _within(stats.cpu_percent, 100.0)}
        for name, usage in (("memory", stats.memory), ("disk", stats.disk)):
            if usage is not None:
                system |= {f"{name}_used": _count(usage.used), f"{name}_total": _count(usage.total)}
    return {name: value for name, value in system.items() if value is not None}


def _within(figure: float | None, most: float) -> float | None:
    """A share a little over the whole comes from rounding and is the whole; what is no number is not known."""
    if figure is None or not math.isfinite(figure):
        return None
    return float(min(max(figure, 0.0), most))


def _count(figure: int | None) -> int | None:
    return None if figure is None else min(max(figure, 0), _LARGEST)
