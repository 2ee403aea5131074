"""What an operator wants to be woken for, as metrics: read off the leader at each scrape; a standby shows none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lcm.model.worker.conditions import ConditionType, holds
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from lcm.controllers.worker.discovery.region_monitor import RegionWatch
    from lcm.controllers.worker.discovery.scan import Discovery
    from lcm.controllers.worker.fleet_cache import Known

_REGION = "region"


class Watched(Protocol):
    """What is read off a worker reconciler."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def known(self) -> Known: ...

    @property
    def regions(self) -> Mapping[str, RegionWatch]: ...

    @property
    def discovery(self) -> Discovery | None: ...


class Alarms(Collector):
    """Workers by status, those that are stuck, open breakers and leaked instances, by region."""

    def __init__(self, reconciler: Watched, registry: CollectorRegistry = REGISTRY) -> None:
        self._reconciler = reconciler
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        workers, stuck, breakers, leaked = _families()
        if self._reconciler.is_leader:
            self._fill(workers, stuck, breakers, leaked)
        yield from (workers, stuck, breakers, leaked)

    def describe(self) -> Iterator[Metric]:
        """The names alone, so that registering does not have to collect."""
        yield from _families()

    def _fill(
        self,
        workers: GaugeMetricFamily,
        stuck: GaugeMetricFamily,
        breakers: GaugeMetricFamily,
        leaked: GaugeMetricFamily,
    ) -> None:
        records = list(self._reconciler.known.records.values())
        by_status = Counter((worker.aws_region, worker.status) for worker in records)
        by_stuck = Counter(worker.aws_region for worker in records if holds(worker.conditions, ConditionType.STUCK))
        discovery = self._reconciler.discovery
        by_leak = Counter(leak.region for leak in discovery.leaks.current) if discovery is not None else None
        for region, watch in sorted(self._reconciler.regions.items()):
            for status in WorkerStatus:
                if status is not WorkerStatus.TERMINATED:
                    workers.add_metric([region, status.value], by_status[region, status])
            stuck.add_metric([region], by_stuck[region])
            breakers.add_metric([region], watch.breaker.is_open)
            if by_leak is not None:
                leaked.add_metric([region], by_leak[region])


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily("lcm_workers", "Workers that are not TERMINATED", labels=[_REGION, "status"]),
        GaugeMetricFamily("lcm_workers_stuck", "Workers that do not get any further", labels=[_REGION]),
        GaugeMetricFamily("lcm_breaker_open", "1 while no worker of the region is marked as lost", labels=[_REGION]),
        GaugeMetricFamily("lcm_leaked_instances", "Instances of ours that no worker needs", labels=[_REGION]),
    )
