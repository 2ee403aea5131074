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
    from lcm.controllers.worker.observe.observation import CmlObservation
    from lcm.model.worker.record import Worker

_MAX_COUNT: Final = 2**53
_PERCENT_FIELDS: Final = ("cpu_utilization", "memory_utilization", "disk_utilization")
_AMOUNT_FIELDS: Final = ("network_in", "network_out", "disk_read", "disk_write")


@dataclass(frozen=True, slots=True)
class CmlReading:
    """What a look at an instance's CML brought."""

    instance_id: str | None
    sight: CmlObservation
    stats: SystemStats | None


def build_sample(
    worker: Worker, at: datetime, cloud: InstanceMetrics | None, look: CmlReading | None
) -> MetricsSample | None:
    """A sample with what is known; None when not a single figure is. What is of another instance does not count."""
    figures = {} if cloud is None else _cloud_fields(cloud)
    if look is not None and look.instance_id == worker.instance_id and _has_responded(look.sight):
        figures |= _cml_fields(look.sight, look.stats)
    known = {name: figure for name, figure in figures.items() if figure is not None}
    if not known or worker.instance_id is None:
        return None
    return MetricsSample(worker_id=worker.id, instance_id=worker.instance_id, collected_at=at, **known)


def _has_responded(cml: CmlObservation) -> bool:
    """Whether the server spoke at all. The version outlives a failed look, but is no news then."""
    return cml.ready is True or (cml.ready is False and not cml.trouble)


def _cloud_fields(cloud: InstanceMetrics) -> dict[str, Any]:
    shares = {name: _clamp(getattr(cloud, name), 100.0) for name in _PERCENT_FIELDS}
    return shares | {name: _clamp(getattr(cloud, name), math.inf) for name in _AMOUNT_FIELDS}


def _cml_fields(cml: CmlObservation, stats: SystemStats | None) -> dict[str, Any]:
    return {
        "labs_count": _clamp_count(cml.labs),
        "nodes_count": _clamp_count(cml.nodes),
        "running_nodes": _clamp_count(cml.running_nodes),
        "system_info": _system_info(cml, stats),
        "cml_version": cml.version,
    }


def _system_info(cml: CmlObservation, stats: SystemStats | None) -> dict[str, Any]:
    system: dict[str, Any] = {"ready": cml.ready}
    if stats is not None:
        system |= {"cpu_count": _clamp_count(stats.cpu_count), "cpu_percent": _clamp(stats.cpu_percent, 100.0)}
        for name, usage in (("memory", stats.memory), ("disk", stats.disk)):
            if usage is not None:
                system |= {f"{name}_used": _clamp_count(usage.used), f"{name}_total": _clamp_count(usage.total)}
    return {name: value for name, value in system.items() if value is not None}


def _clamp(figure: float | None, most: float) -> float | None:
    """A share a little over the whole comes from rounding and is the whole; what is no number is not known."""
    if figure is None or not math.isfinite(figure):
        return None
    return float(min(max(figure, 0.0), most))


def _clamp_count(figure: int | None) -> int | None:
    return None if figure is None else min(max(figure, 0), _MAX_COUNT)
