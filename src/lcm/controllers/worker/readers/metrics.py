"""`MetricsSPI` of the leader: batches of CloudWatch queries go to all replicas in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from prometheus_client import REGISTRY, CollectorRegistry, Counter

from lcm.controllers.worker.readers.messages import MetricsRequest
from lcm.controllers.worker.readers.remote_reader import ReaderUnavailableError
from lcm.core import clock
from lcm.core.logs import FailureLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.cloud.spi import SharedMetricsSPI
    from lcm.cloud.types import InstanceMetrics
    from lcm.controllers.worker.readers.directory import Reader
    from lcm.controllers.worker.readers.pool import ReaderPool

METRICS_SECONDS: Final = 30.0
"""How long another replica may take for a batch, which is seven calls at most. Then the leader reads it."""


class SharedMetrics:
    """Sends each batch to the next replica. What it does not read, for whatever reason, the leader reads itself.

    All calls count in the rate limit of the leader, whoever makes them: the limit of AWS is one for all replicas.
    """

    def __init__(self, local: SharedMetricsSPI, readers: ReaderPool, *, registry: CollectorRegistry = REGISTRY) -> None:
        self._local = local
        self._readers = readers
        self._turn = 0
        self._failures = FailureLog()
        self._reads = Counter(
            "lcm_cloudwatch_reads", "Batches of CloudWatch metrics, by who read them", ["by"], registry=registry
        )

    async def get_instance_metrics(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, InstanceMetrics]:
        """The latest metrics of each instance; instances without metrics are left out."""
        reader = self._next_reader()
        if reader is not None:
            try:
                return await self._read(reader, region, instance_ids)
            except ReaderUnavailableError:
                pass  # the pool has logged it
            except Exception as error:  # noqa: BLE001 - a fault of the reader; if not, the leader's read fails too
                self._failures.note(f"metrics through reader {reader.instance_id}", error)
        result = await self._local.get_instance_metrics(region, instance_ids)
        self._reads.labels("leader").inc()
        return result

    def _next_reader(self) -> Reader | None:
        """None: this replica."""
        readers = sorted(self._readers.usable(), key=lambda reader: reader.instance_id)
        self._turn += 1
        chosen = readers[self._turn % len(readers)]
        return None if chosen is self._readers.own else chosen

    async def _read(self, reader: Reader, region: str, instance_ids: Sequence[str]) -> Mapping[str, InstanceMetrics]:
        account = await self._local.account_id(region)
        await self._local.wait_for_metrics_calls(region, len(instance_ids))
        request = MetricsRequest(0, region, account, tuple(instance_ids), clock.now(), METRICS_SECONDS)
        result = await self._readers.read(reader, request)
        if result.error is not None:
            raise result.error
        self._reads.labels("other").inc()
        self._failures.note(f"metrics through reader {reader.instance_id}", None)
        return cast("Mapping[str, InstanceMetrics]", result.value)
