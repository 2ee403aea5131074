"""Collects metrics of all workers in rounds: from the cloud in batches, from CML one by one, spread over time.

The two sources do not wait for each other, and no worker waits for another: what has arrived when a round ends is
written, and what arrives later goes into the next round.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog
from pydantic import ValidationError

from lcm.client.errors import InvalidRequestError
from lcm.cloud.spi import METRICS_BATCH
from lcm.core import clock
from lcm.core.controller.leader_election import StaleTermError
from lcm.core.hosting import cancel_and_wait
from lcm.core.logs import FailureLog
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.requests import MetricsBatch
from lcm.model.worker.status import CML_STATUSES, LicenseStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from lcm.cloud.spi import MetricsSPI
    from lcm.cloud.types import InstanceMetrics
    from lcm.cml.types import SystemStats
    from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
    from lcm.controllers.worker.observe.observation import CmlObservation
    from lcm.model.worker.metrics import BatchResult
    from lcm.model.worker.record import Worker


log = structlog.get_logger(__name__)

MAX_BATCH: Final = 500
LICENSE_REFRESH_SECONDS: Final = 300.0
MAX_CONCURRENT_QUERIES: Final = 160  # fewer than CmlMonitor allows, so that reconcile passes find a free slot
MAX_PACE: Final = 0.25
"""Seconds between two CML queries of a small fleet; those of a large one follow each other faster."""

_SPREAD_FRACTION: Final = 0.85  # the part of a round over which the CML queries of a large fleet are spread
_WAIT_FRACTION: Final = 0.1  # the part for which a round waits for the last responses
_NO_WORKERS_SECONDS: Final = 5.0


class MetricsCollector:
    """Collects and writes for as long as `run` runs. `on_stale` is called when a newer leader has written."""

    def __init__(
        self,
        metrics: MetricsSPI,
        cml_monitor: CmlMonitor,
        write: Callable[[MetricsBatch], Awaitable[BatchResult]],
        workers: Callable[[], Mapping[str, Worker]],
        interval: float,
        *,
        on_stale: Callable[[StaleTermError], None],
        max_concurrent: int = MAX_CONCURRENT_QUERIES,
    ) -> None:
        self.collected = 0  # samples that the control plane has stored
        self.rounds = 0
        self._metrics = metrics
        self._cml_monitor = cml_monitor
        self._write = write
        self._workers = workers
        self._interval = interval
        self._on_stale = on_stale
        self._slots = asyncio.Semaphore(max_concurrent)
        self._failures = FailureLog()
        self._begin()

    def _begin(self) -> None:
        self._queue: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
        self._queries: set[asyncio.Task[None]] = set()
        self._regions: set[asyncio.Task[None]] = set()
        self._pending: set[str] = set()  # workers, and batches of regions, whose queries are not finished
        self._all_received = asyncio.Event()
        self._instance_metrics: dict[str, InstanceMetrics] = {}  # by instance, since the last round
        self._readings: dict[str, CmlReading] = {}  # by worker, likewise

    async def run(self) -> None:
        """Collect until the control plane reports a newer leader."""
        loop = asyncio.get_running_loop()
        self._begin()
        dispatcher = asyncio.create_task(self._dispatch(), name="metrics-queries")
        try:
            while True:
                began = loop.time()
                # A new leader starts to collect before it has listed its workers.
                pause = self._interval if await self._round(began) else min(self._interval, _NO_WORKERS_SECONDS)
                await asyncio.sleep(max(0.0, began + pause - loop.time()))
        except StaleTermError as refusal:
            self._on_stale(refusal)
        finally:
            await cancel_and_wait([dispatcher])
            await cancel_and_wait([*self._queries, *self._regions])

    async def _round(self, began: float) -> bool:
        """Return whether there was a worker to measure."""
        measured = self._measured()
        if not measured:
            return False
        self._query_regions(measured)
        spread = self._queue_servers(measured, began)
        del measured  # there will be newer records when all have responded
        self._all_received.clear()
        try:
            async with asyncio.timeout(spread + self._interval * _WAIT_FRACTION):
                await self._all_received.wait()
        except TimeoutError:
            log.debug("collection ended before all metrics arrived", missing=len(self._pending))
        await self._write_all(self._measured())
        self.rounds += 1
        return True

    def _measured(self) -> list[Worker]:
        """The current workers to measure. They are not kept: the records of a fleet fill most of the memory."""
        return [worker for worker in self._workers().values() if _is_measured(worker)]

    def _mark_received(self, key: str) -> None:
        self._pending.discard(key)
        if not self._pending:
            self._all_received.set()

    # The cloud

    def _query_regions(self, measured: Sequence[Worker]) -> None:
        instances: dict[str, list[str]] = {}
        for worker in measured:
            if worker.instance_id is not None:
                instances.setdefault(worker.aws_region, []).append(worker.instance_id)
        for region, ids in instances.items():
            starts = range(0, len(ids), METRICS_BATCH)
            batches = {f"{region} {begin}": ids[begin : begin + METRICS_BATCH] for begin in starts}
            batches = {key: batch for key, batch in batches.items() if key not in self._pending}
            if batches:
                self._pending.update(batches)
                task = asyncio.create_task(self._query_region(region, batches), name=f"metrics:{region}")
                self._regions.add(task)
                task.add_done_callback(self._regions.discard)

    async def _query_region(self, region: str, batches: Mapping[str, list[str]]) -> None:
        """One batch that fails or is slow keeps back only its own metrics."""
        errors = await asyncio.gather(*(self._query_batch(region, key, ids) for key, ids in batches.items()))
        self._failures.note(f"metrics of instances in {region}", next(filter(None, errors), None))

    async def _query_batch(self, region: str, key: str, ids: list[str]) -> Exception | None:
        try:
            self._instance_metrics.update(await self._metrics.get_instance_metrics(region, ids))
        except Exception as error:  # noqa: BLE001 - a source may fail in any way; the others go on
            return error
        finally:
            self._mark_received(key)
        return None

    # CML

    def _queue_servers(self, measured: Sequence[Worker], began: float) -> float:
        """Queue the workers that are not queued or being queried; those left over from the last round stay ahead.

        Returns the seconds after which the last query of this round is due.
        """
        waiting = [worker.id for worker in measured if worker.id not in self._pending]
        pace = min(self._interval * _SPREAD_FRACTION / max(1, len(waiting)), MAX_PACE)
        for place, worker_id in enumerate(waiting):
            self._pending.add(worker_id)
            self._queue.put_nowait((began + place * pace, worker_id))
        return pace * len(waiting)

    async def _dispatch(self) -> None:
        """Begin each query when it is due and there is a slot. A slow server does not take that of another."""
        loop = asyncio.get_running_loop()
        while True:
            due, worker_id = await self._queue.get()
            if due > loop.time():  # all that are overdue begin at once: a busy host wakes this loop up rarely
                await asyncio.sleep(due - loop.time())
            slot = _Slot(self._slots)
            if not self._cml_monitor.is_slow(worker_id):
                await slot.acquire()
            task = asyncio.create_task(self._query(worker_id, slot), name=f"metrics-query:{worker_id}")
            self._queries.add(task)
            task.add_done_callback(partial(self._query_ended, worker_id, slot))

    def _query_ended(self, worker_id: str, slot: _Slot, task: asyncio.Task[None]) -> None:
        self._queries.discard(task)
        slot.release()
        self._mark_received(worker_id)

    async def _query(self, worker_id: str, slot: _Slot) -> None:
        worker = self._workers().get(worker_id)  # the current record: an old one may have an outdated address
        if worker is None or not _is_measured(worker):
            return
        try:
            observation = await self._cml_monitor.query(
                worker,
                max_age=self._interval / 2,
                with_license=self._license_due(worker),
                on_slow=slot.release,  # it has not ended, but no longer keeps other queries from a slot either
            )
        except Exception as error:  # noqa: BLE001 - it concerns one worker only
            self._failures.note("querying a worker's CML", error)
            return
        self._readings[worker_id] = CmlReading(worker.instance_id, observation, self._cml_monitor.stats(worker))

    def _license_due(self, worker: Worker) -> bool:
        age = self._cml_monitor.license_age(worker)
        unregistered = worker.has_license_token and worker.license_status is not LicenseStatus.REGISTERED
        return (
            age is None or age > LICENSE_REFRESH_SECONDS or unregistered or worker.pending_license_operation is not None
        )

    # Writing

    async def _write_all(self, measured: Sequence[Worker]) -> None:
        """Write in batches, built one by one: thousands at once would block the event loop."""
        metrics, self._instance_metrics = self._instance_metrics, {}
        readings, self._readings = self._readings, {}
        writing = True
        for begin in range(0, len(measured), MAX_BATCH):
            some = measured[begin : begin + MAX_BATCH]
            batch = [sample for worker in some if (sample := self._sample(worker, metrics, readings)) is not None]
            if batch and writing:
                writing = await self._write_batch(batch)
            else:
                await asyncio.sleep(0)

    def _sample(
        self, worker: Worker, metrics: dict[str, InstanceMetrics], readings: dict[str, CmlReading]
    ) -> MetricsSample | None:
        try:
            return build_sample(worker, clock.now(), metrics.get(worker.instance_id or ""), readings.get(worker.id))
        except ValidationError as error:
            self._failures.note("building a worker's sample", error)
            return None

    async def _write_batch(self, batch: Sequence[MetricsSample]) -> bool:
        """Return whether to continue: after a rejected batch yes, but not with an unreachable control plane."""
        try:
            result = await self._write(MetricsBatch(items=tuple(batch)))
        except StaleTermError:
            raise
        except Exception as error:  # noqa: BLE001 - the next round has newer metrics
            self._failures.note("writing metrics", error)
            return isinstance(error, InvalidRequestError)
        self.collected += result.kept
        self._failures.note("writing metrics", None)
        return True


class _Slot:
    """One slot of several, which is released once, when its query ends or takes long."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._held = False

    async def acquire(self) -> None:
        await self._slots.acquire()
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._slots.release()


def _is_measured(worker: Worker) -> bool:
    return worker.instance_id is not None and worker.status in CML_STATUSES


_MAX_COUNT: Final = 2**53
_PERCENT_FIELDS: Final = ("cpu_utilization", "memory_utilization", "disk_utilization")
_AMOUNT_FIELDS: Final = ("network_in", "network_out", "disk_read", "disk_write")


@dataclass(frozen=True, slots=True)
class CmlReading:
    """What a query of an instance's CML returned."""

    instance_id: str | None
    observation: CmlObservation
    stats: SystemStats | None


def build_sample(
    worker: Worker, at: datetime, cloud: InstanceMetrics | None, reading: CmlReading | None
) -> MetricsSample | None:
    """A sample of the known values; None if there are none. Values of another instance do not count."""
    metrics = {} if cloud is None else _cloud_fields(cloud)
    if reading is not None and reading.instance_id == worker.instance_id and _has_responded(reading.observation):
        metrics |= _cml_fields(reading.observation, reading.stats)
    values = {name: value for name, value in metrics.items() if value is not None}
    if not values or worker.instance_id is None:
        return None
    return MetricsSample(worker_id=worker.id, instance_id=worker.instance_id, collected_at=at, **values)


def _has_responded(cml: CmlObservation) -> bool:
    """Whether the server responded. The version survives a failed query, but is not new then."""
    return cml.ready is True or (cml.ready is False and not cml.error)


def _cloud_fields(cloud: InstanceMetrics) -> dict[str, Any]:
    percentages = {name: _clamp(getattr(cloud, name), 100.0) for name in _PERCENT_FIELDS}
    return percentages | {name: _clamp(getattr(cloud, name), math.inf) for name in _AMOUNT_FIELDS}


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


def _clamp(value: float | None, maximum: float) -> float | None:
    """A percentage slightly above 100 comes from rounding and counts as 100; what is not finite is unknown."""
    if value is None or not math.isfinite(value):
        return None
    return float(min(max(value, 0.0), maximum))


def _clamp_count(value: int | None) -> int | None:
    return None if value is None else min(max(value, 0), _MAX_COUNT)
