"""Telling the control plane how this controller is, every few seconds while it leads."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import structlog

from lcm.client.errors import ClientError
from lcm.controllers.words import one_line
from lcm.controllers.writing import told
from lcm.core import clock
from lcm.model.controller_report import EVERY_SECONDS, ControllerReport, LeakReport, RegionReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry

    from lcm.client.asking import Leader
    from lcm.client.internal import Internal
    from lcm.worker_controller.reconciler import WorkerReconciler
    from lcm.worker_controller.regions import RegionWatch

log = structlog.get_logger(__name__)

MOST_LEAKS = 100
_LINE = 500
# What is read off the registry: who is called, and under which names the calls and the throttled ones are counted.
_CALLED = {
    "aws": ("lcm_aws_calls_total", "lcm_aws_throttled_total"),
    "cml": ("lcm_cml_calls_total", ""),
    "control-plane": ("lcm_client_calls_total", ""),
}


class Reporting:
    """Makes reports and sends them. One that cannot be sent is dropped: the next is newer."""

    def __init__(
        self,
        internal: Internal,
        leader: Callable[[], Leader],
        reconciler: WorkerReconciler,
        registry: CollectorRegistry,
    ) -> None:
        self._internal = internal
        self._leader = leader
        self._reconciler = reconciler
        self._registry = registry
        self._started_at = clock.now()
        self._served = (0, 0.0)  # keys that were served until the last report, and how long they had waited

    async def run(self) -> None:
        """Report for ever. A leader that was overtaken ends it."""
        silent = False
        while True:
            try:
                await told(self._internal.report_controller(self._leader(), self.report()))
                silent = False
            except ClientError as error:
                if not silent:
                    log.info("a report on this controller cannot be sent now", error=str(error))
                silent = True
            await asyncio.sleep(EVERY_SECONDS)

    def report(self) -> ControllerReport:
        """How it is now."""
        reconciler, queue = self._reconciler, self._reconciler.queue
        leaks = () if reconciler.discovery is None else reconciler.discovery.leaks.current
        calls, throttled = self._calls()
        return ControllerReport(
            instance_id=reconciler.election.instance_id,
            version=version("lcm"),
            started_at=self._started_at,
            queue_depth=len(queue),
            queue_delayed=queue.delayed,
            queue_wait_seconds=self._wait(),
            in_progress=queue.busy,
            resources=len(reconciler.records),
            last_resync_at=reconciler.listed_at,
            resync_seconds=reconciler.listing_seconds,
            resync_every_seconds=reconciler.config.interval_seconds if reconciler.config.polling_enabled else None,
            watching=reconciler.watching or not reconciler.watch.enabled,
            calls=calls,
            throttled=throttled,
            counters={name: max(0, value) for name, value in reconciler.stats().items()},
            regions=tuple(_region(name, watch) for name, watch in sorted(reconciler.regions.items())),
            leaks=tuple(
                LeakReport(
                    instance_id=leak.instance_id,
                    region=leak.region,
                    since=leak.since,
                    reason=one_line(leak.reason, _LINE),
                )
                for leak in leaks[:MOST_LEAKS]
            ),
            leaks_total=len(leaks),
        )

    def _wait(self) -> float | None:
        """How long those had waited for their turn that were served since the last report, on average."""
        queue, (count, total) = self._reconciler.queue, self._served
        self._served = (sum(queue.wait_counts), queue.wait_total)
        served = self._served[0] - count
        return max(0.0, self._served[1] - total) / served if served > 0 else None

    def _calls(self) -> tuple[dict[str, Any], dict[str, int]]:
        names = [name for pair in _CALLED.values() for name in pair if name]
        counted: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in self._registry.restricted_registry(names).collect():
            for sample in family.samples:
                counted.setdefault(sample.name, []).append((sample.labels, sample.value))
        calls = {who: _by_operation(counted.get(name, ())) for who, (name, _) in _CALLED.items()}
        if not calls["aws"]:  # a simulated cloud counts by what it was asked for, and nowhere else
            calls["aws"] = self._looks()
        throttled = {who: int(sum(value for _, value in counted.get(name, ()))) for who, (_, name) in _CALLED.items()}
        return {who: made for who, made in calls.items() if made}, {who: n for who, n in throttled.items() if n}

    def _looks(self) -> dict[str, dict[str, int]]:
        looks: dict[str, int] = {}
        for watch in self._reconciler.regions.values():
            for purpose, count in watch.observer.calls_total.items():
                looks[purpose] = looks.get(purpose, 0) + count
        return {purpose: {"made": count} for purpose, count in sorted(looks.items())}


def _by_operation(samples: Iterable[tuple[dict[str, str], float]]) -> dict[str, dict[str, int]]:
    made: dict[str, dict[str, int]] = {}
    for labels, value in samples:
        if value:
            made.setdefault(labels["operation"], {})[labels["outcome"]] = int(value)
    return dict(sorted(made.items()))


def _region(name: str, watch: RegionWatch) -> RegionReport:
    sweep = watch.observer.latest
    if sweep is None:
        return RegionReport(name=name, breaker_open=watch.breaker_open)
    return RegionReport(
        name=name,
        last_sweep_at=clock.now() - timedelta(seconds=clock.boottime() - sweep.began_at),
        complete=sweep.complete,
        instances=len(sweep.instances),
        breaker_open=watch.breaker_open,
        trouble=one_line(sweep.trouble or "", _LINE),
    )
