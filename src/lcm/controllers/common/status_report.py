"""Telling the control plane how a controller is, every few seconds while it leads."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import structlog

from lcm.client.errors import ClientError
from lcm.controllers.common.base import as_stale_term
from lcm.core import clock
from lcm.model.system import REPORT_INTERVAL_SECONDS, ControllerReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import CollectorRegistry

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.core.controller.watch import WatchTriggeredHostedService

log = structlog.get_logger(__name__)

_VERSION = version("lcm")  # to look it up reads a file

# What is read off the registry: who is called, and under which names the calls and the throttled ones are counted.
_CALL_METRICS = {
    "aws": ("lcm_aws_calls_total", "lcm_aws_throttled_total"),
    "cml": ("lcm_cml_calls_total", ""),
    "control-plane": ("lcm_client_calls_total", ""),
}


class StatusReporter:
    """Makes reports and sends them. One that cannot be sent is dropped: the next is newer.

    `details` are fields of the report that only this kind of controller knows. `called`: whom it calls; where several
    controllers share a process their calls are counted together. `otherwise` tells of calls that nobody counts.
    """

    def __init__(
        self,
        internal: InternalApi,
        leader: Callable[[], Leader],
        controller: WatchTriggeredHostedService[Any],
        registry: CollectorRegistry,
        details: Callable[[], Mapping[str, Any]],
        called: Iterable[str] = ("control-plane",),
        otherwise: Mapping[str, Callable[[], dict[str, dict[str, int]]]] | None = None,
    ) -> None:
        self._internal = internal
        self._leader = leader
        self._controller = controller
        self._registry = registry
        self._details = details
        self._called = {who: _CALL_METRICS[who] for who in called}
        self._uncounted_calls = otherwise or {}
        self._started_at = clock.now()
        self._served = (0, 0.0)  # keys that were served until the last report, and how long they had waited

    async def run(self) -> None:
        """Report for ever. A leader that was overtaken ends it."""
        silent = False
        while True:
            try:
                await as_stale_term(self._internal.report_controller(self._leader(), self.report()))
                silent = False
            except ClientError as error:
                if not silent:
                    log.info("a report on this controller cannot be sent now", error=str(error))
                silent = True
            await asyncio.sleep(REPORT_INTERVAL_SECONDS)

    def report(self) -> ControllerReport:
        """How it is now."""
        controller, queue = self._controller, self._controller.queue
        calls, throttled = self._calls()
        facts: dict[str, Any] = {"calls": calls, "throttled": throttled, **self._details()}
        return ControllerReport(
            instance_id=controller.election.instance_id,
            version=_VERSION,
            started_at=self._started_at,
            queue_depth=len(queue),
            queue_delayed=queue.delayed,
            queue_wait_seconds=self._wait(),
            in_progress=queue.busy,
            last_resync_at=controller.listed_at,
            resync_seconds=controller.listing_seconds,
            resync_every_seconds=controller.config.interval_seconds if controller.config.polling_enabled else None,
            watching=controller.watching or not controller.watch.enabled,
            **facts,
        )

    def _wait(self) -> float | None:
        """How long those had waited for their turn that were served since the last report, on average."""
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
