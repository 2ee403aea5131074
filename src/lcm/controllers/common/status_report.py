"""What a controller reports about itself: to the control plane, to Prometheus and at /admin/stats."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import UntypedMetricFamily
from prometheus_client.registry import Collector

from lcm.client.errors import ClientError
from lcm.core import clock
from lcm.core.version import installed_version
from lcm.model.system import REPORT_INTERVAL_SECONDS, ControllerReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.core.controller.watch import WatchTriggeredHostedService


log = structlog.get_logger(__name__)

# Called service → the names of its metrics for all calls and for throttled calls.
_CALL_METRICS = {
    "aws": ("lcm_aws_calls_total", "lcm_aws_throttled_total"),
    "cml": ("lcm_cml_calls_total", ""),
    "control-plane": ("lcm_client_calls_total", ""),
}


class StatusReporter:
    """Sends a status report to the control plane every few seconds while the controller leads.

    A report that cannot be sent is dropped: the next one is newer. `details` are the fields that only this kind of
    controller has. `called` names the services it calls; controllers that share a process are counted together.
    `uncounted_calls` provides calls that no metric counts.
    """

    def __init__(
        self,
        internal: InternalApi,
        leader: Callable[[], Leader],
        controller: WatchTriggeredHostedService[Any],
        registry: CollectorRegistry,
        details: Callable[[], Mapping[str, Any]],
        called: Iterable[str] = ("control-plane",),
        uncounted_calls: Mapping[str, Callable[[], dict[str, dict[str, int]]]] | None = None,
    ) -> None:
        self._internal = internal
        self._leader = leader
        self._controller = controller
        self._registry = registry
        self._details = details
        self._called = {who: _CALL_METRICS[who] for who in called}
        self._uncounted_calls = uncounted_calls or {}
        self._started_at = clock.now()
        self._served = (0, 0.0)  # keys served until the last report, and their total waiting time

    async def run(self) -> None:
        """Report until cancelled; raises `StaleTermError` if there is a newer leader."""
        silent = False
        while True:
            try:
                await self._internal.report_controller(self._leader(), self.report())
                silent = False
            except ClientError as error:
                if not silent:
                    log.info("status report cannot be sent", error=str(error))
                silent = True
            await asyncio.sleep(REPORT_INTERVAL_SECONDS)

    def report(self) -> ControllerReport:
        """The current status."""
        controller, queue = self._controller, self._controller.queue
        calls, throttled = self._calls()
        fields: dict[str, Any] = {"calls": calls, "throttled": throttled, **self._details()}
        return ControllerReport(
            instance_id=controller.election.instance_id,
            version=installed_version(),
            started_at=self._started_at,
            queue_depth=len(queue),
            queue_delayed=queue.delayed,
            queue_wait_seconds=self._wait(),
            in_progress=queue.busy,
            last_resync_at=controller.listed_at,
            resync_seconds=controller.listing_seconds,
            resync_every_seconds=controller.config.interval_seconds if controller.config.polling_enabled else None,
            watching=controller.watching or not controller.watch.enabled,
            **fields,
        )

    def _wait(self) -> float | None:
        """The average waiting time of the keys served since the last report."""
        queue, (count, total) = self._controller.queue, self._served
        self._served = (sum(queue.wait_counts), queue.wait_total)
        served = self._served[0] - count
        return max(0.0, self._served[1] - total) / served if served > 0 else None

    def _calls(self) -> tuple[dict[str, Any], dict[str, int]]:
        names = [name for pair in self._called.values() for name in pair if name]
        counted: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in self._registry.restricted_registry(names).collect():
            for sample in family.samples:
                counted.setdefault(sample.name, []).append((sample.labels, sample.value))
        calls = {who: _calls_by_operation(counted.get(name, ())) for who, (name, _) in self._called.items()}
        calls |= {who: count() for who, count in self._uncounted_calls.items() if not calls.get(who)}
        throttled = {
            who: int(sum(value for _, value in counted.get(name, ()))) for who, (_, name) in self._called.items()
        }
        return {who: made for who, made in calls.items() if made}, {who: n for who, n in throttled.items() if n}


def _calls_by_operation(samples: Iterable[tuple[dict[str, str], float]]) -> dict[str, dict[str, int]]:
    made: dict[str, dict[str, int]] = {}
    for labels, value in samples:
        if value:
            made.setdefault(labels["operation"], {})[labels["outcome"]] = int(value)
    return dict(sorted(made.items()))


class CounterCollector(Collector):
    """Exports plain counters, read at scrape time. Untyped: a counter's name would have to end in `_total`."""

    def __init__(
        self, prefix: str, read: Callable[[], Mapping[str, int]], registry: CollectorRegistry = REGISTRY
    ) -> None:
        self._prefix = prefix
        self._read = read
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        for name, value in self._read().items():
            text = name.removesuffix("_count").replace("_", " ").capitalize()
            yield UntypedMetricFamily(f"{self._prefix}_{name}", text, value=value)


def leadership_and_queue_stats(controller: WatchTriggeredHostedService[Any]) -> dict[str, Any]:
    """The leadership and queue sections of /admin/stats."""
    queue = controller.queue
    return {
        "leadership": {
            "is_leader": controller.is_leader,
            "term": controller.term,
            "instance_id": controller.election.instance_id,
            "leader": controller.known_leader,
            "watching": controller.watching,
        },
        "queue": {"depth": len(queue), "busy": queue.busy, "delayed": queue.delayed},
    }
