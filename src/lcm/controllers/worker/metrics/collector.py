"""Gathering figures of all workers in rounds: the cloud's in batches, CML's one by one, spread over time.

The two sources do not wait for each other, nor a worker for another: what is there when a round ends is written, and
what comes later goes with the next round.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog
from pydantic import ValidationError

from lcm.client.errors import InvalidRequestError, StaleLeaderError
from lcm.controllers.worker.metrics.samples import CmlReading, build_sample
from lcm.core import clock
from lcm.core.controller.leader_election import StaleTermError
from lcm.core.failure_log import FailureLog
from lcm.core.hosting import cancel_and_wait
from lcm.model.worker.requests import MetricsBatch
from lcm.model.worker.status import LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from lcm.cloud.spi import MetricsSPI
    from lcm.cloud.types import InstanceMetrics
    from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
    from lcm.model.worker.metrics import BatchResult, MetricsSample
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

MAX_BATCH: Final = 500
LICENSE_REFRESH_SECONDS: Final = 300.0
MAX_CONCURRENT_QUERIES: Final = 40  # fewer than may ask CML at once, so that passes find a place
MEASURED_STATUSES: Final = (WorkerStatus.RUNNING, WorkerStatus.DRAINING)

_SPREAD_FRACTION: Final = 0.5  # the part of a round over which CML servers are asked
_ROUND_FRACTION: Final = 0.6  # the part after which nobody is waited for
_NO_WORKERS_SECONDS: Final = 5.0


class MetricsCollector:
    """Collects and writes for as long as `run` runs. `on_stale` hears when a newer leader has written."""

    def __init__(
        self,
        metrics: MetricsSPI,
        watch: CmlMonitor,
        write: Callable[[MetricsBatch], Awaitable[BatchResult]],
        workers: Callable[[], Mapping[str, Worker]],
        interval: float,
        *,
        on_stale: Callable[[StaleTermError], None],
        max_concurrent: int = MAX_CONCURRENT_QUERIES,
    ) -> None:
        self.collected = 0  # samples that the control plane has kept
        self.rounds = 0
        self._metrics = metrics
        self._watch = watch
        self._write = write
        self._workers = workers
        self._interval = interval
        self._on_stale = on_stale
        self._lookers = max_concurrent
        self._troubles = FailureLog()
        self._latest: dict[str, MetricsSample] = {}
        self._begin()

    def _begin(self) -> None:
        self._queue: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
        self._regions: dict[str, asyncio.Task[None]] = {}
        self._pending: set[str] = set()  # workers whose CML is to be asked, and regions, until they are done
        self._all_received = asyncio.Event()
        self._figures: dict[str, InstanceMetrics] = {}  # by instance, since the last round
        self._sights: dict[str, CmlReading] = {}  # by worker, likewise

    def latest(self, worker_id: str) -> MetricsSample | None:
        """The newest figures of a worker, written or not."""
        return self._latest.get(worker_id)

    async def run(self) -> None:
        """Collect for ever. Returns only when the control plane knows a newer leader."""
        loop = asyncio.get_running_loop()
        self._begin()
        max_concurrent = [
            asyncio.create_task(self._query_loop(), name=f"metrics-look-{n}") for n in range(self._lookers)
        ]
        try:
            while True:
                began = loop.time()
                # A new leader begins to collect before it has listed its workers.
                pause = self._interval if await self._round(began) else min(self._interval, _NO_WORKERS_SECONDS)
                await asyncio.sleep(max(0.0, began + pause - loop.time()))
        except StaleTermError as refusal:
            self._on_stale(refusal)
        finally:
            await cancel_and_wait([*max_concurrent, *self._regions.values()])

    async def _round(self, began: float) -> bool:
        """Says whether there was anybody to measure."""
        self._forget_others()
        measured = self._measured()
        if not measured:
            return False
        self._ask_regions(measured)
        self._ask_servers(measured, began)
        del measured  # until all have answered there will be newer records
        self._all_received.clear()
        try:
            async with asyncio.timeout(self._interval * _ROUND_FRACTION):
                await self._all_received.wait()
        except TimeoutError:
            log.debug("not all figures are here", missing=len(self._pending))
        await self._write_all(self._measured())
        self.rounds += 1
        return True

    def _measured(self) -> list[Worker]:
        """The workers to measure, as they are now. They are not kept: a fleet's records fill most of the memory."""
        return [worker for worker in self._workers().values() if _is_measured(worker)]

    def _forget_others(self) -> None:
        for gone in self._latest.keys() - self._workers().keys():
            del self._latest[gone]

    def _mark_received(self, key: str) -> None:
        self._pending.discard(key)
        if not self._pending:
            self._all_received.set()

    # The cloud

    def _ask_regions(self, measured: Sequence[Worker]) -> None:
        instances: dict[str, list[str]] = {}
        for worker in measured:
            if worker.instance_id is not None:
                instances.setdefault(worker.aws_region, []).append(worker.instance_id)
        for region, ids in instances.items():
            if region not in self._pending:
                self._pending.add(region)
                self._regions[region] = asyncio.create_task(self._ask_region(region, ids), name=f"metrics:{region}")

    async def _ask_region(self, region: str, ids: list[str]) -> None:
        what = f"figures of instances in {region}"
        try:
            self._figures.update(await self._metrics.get_instance_metrics(region, ids))
            self._troubles.note(what, None)
        except Exception as error:  # noqa: BLE001 - a source may fail in any way; the others go on
            self._troubles.note(what, error)
        finally:
            self._regions.pop(region, None)
            self._mark_received(region)

    # CML

    def _ask_servers(self, measured: Sequence[Worker], began: float) -> None:
        """Queue those that are not queued or asked already; who was late in the last round stays ahead."""
        waiting = [worker.id for worker in measured if worker.id not in self._pending]
        pace = self._interval * _SPREAD_FRACTION / max(1, len(waiting))
        for place, worker_id in enumerate(waiting):
            self._pending.add(worker_id)
            self._queue.put_nowait((began + place * pace, worker_id))

    async def _query_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, worker_id = await self._queue.get()
            try:
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._look(worker_id)
            finally:
                self._mark_received(worker_id)

    async def _look(self, worker_id: str) -> None:
        worker = self._workers().get(worker_id)  # as it is now: nobody is asked under an address of yesterday
        if worker is None or not _is_measured(worker):
            return
        try:
            sight = await self._watch.look(worker, max_age=self._interval / 2, licence=self._licence_due(worker))
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns one worker
            self._troubles.note("looking at a worker's CML", error)
            return
        self._sights[worker_id] = CmlReading(worker.instance_id, sight, self._watch.stats(worker))

    def _licence_due(self, worker: Worker) -> bool:
        age = self._watch.license_age(worker)
        unregistered = worker.has_license_token and worker.license_status is not LicenseStatus.REGISTERED
        return (
            age is None or age > LICENSE_REFRESH_SECONDS or unregistered or worker.pending_license_operation is not None
        )

    # Writing

    async def _write_all(self, measured: Sequence[Worker]) -> None:
        """In batches, made one by one: thousands at once would hold up the event loop."""
        figures, self._figures = self._figures, {}
        sights, self._sights = self._sights, {}
        writing = True
        for begin in range(0, len(measured), MAX_BATCH):
            some = measured[begin : begin + MAX_BATCH]
            batch = [sample for worker in some if (sample := self._sample(worker, figures, sights)) is not None]
            if batch and writing:
                writing = await self._write_batch(batch)
            else:
                await asyncio.sleep(0)

    def _sample(
        self, worker: Worker, figures: dict[str, InstanceMetrics], sights: dict[str, CmlReading]
    ) -> MetricsSample | None:
        try:
            sample = build_sample(worker, clock.now(), figures.get(worker.instance_id or ""), sights.get(worker.id))
        except ValidationError as error:
            self._troubles.note("putting a worker's figures together", error)
            return None
        if sample is not None:
            self._latest[worker.id] = sample
        return sample

    async def _write_batch(self, batch: Sequence[MetricsSample]) -> bool:
        """Says whether to go on with others: one batch may be refused, but a server that is away is not asked again."""
        try:
            result = await self._write(MetricsBatch(items=tuple(batch)))
        except (StaleLeaderError, StaleTermError) as error:
            raise StaleTermError(str(error)) from error
        except Exception as error:  # noqa: BLE001 - the next round brings newer figures
            self._troubles.note("writing figures", error)
            return isinstance(error, InvalidRequestError)
        self.collected += result.kept
        self._troubles.note("writing figures", None)
        return True


def _is_measured(worker: Worker) -> bool:
    return worker.instance_id is not None and worker.status in MEASURED_STATUSES
