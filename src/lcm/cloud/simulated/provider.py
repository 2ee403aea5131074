"""The provider for the simulated cloud: implements the cloud interfaces, with the rate limits of a good client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from lcm.cloud.errors import CloudError, CloudOutcomeUnknownError, CloudUnreachableError
from lcm.cloud.rate_limit import OperationBuckets
from lcm.cloud.simulated import error_codes
from lcm.cloud.simulated.monitoring import (
    MAX_QUERIES_PER_CALL,
    METRIC_NAMES,
    health_notices,
    merge_metric_values,
    metric_values,
)
from lcm.cloud.simulated.region import MAX_FILTER_VALUES, InstanceFilter
from lcm.cloud.types import WORKER_TAG, HealthKind, Sweep
from lcm.core import clock
from lcm.core.authorization import check_may_send, wait_while_authorized

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lcm.cloud.simulated.region import DescribePage, SimulatedRegion
    from lcm.cloud.simulated.world import SimulatedCloud
    from lcm.cloud.types import (
        HealthNotice,
        Image,
        Instance,
        InstanceMetrics,
        InstanceSelection,
        InstanceState,
        InstanceTypeInfo,
        LaunchParameters,
    )

T = TypeVar("T")

BUCKET_SHARE: Final = 0.9


class SimulatedProvider:
    """CloudProviderSPI and MetricsSPI on a simulated cloud.

    `pace` is the share of the provider's rate limits that this client uses, None for no limit. While
    `cut` is set, this client alone has no connection.
    """

    def __init__(self, world: SimulatedCloud, *, pace: float | None = BUCKET_SHARE) -> None:
        self._world = world
        self._pace = pace
        self._buckets: dict[str, OperationBuckets] = {}
        self.cut = False

    @property
    def regions(self) -> Sequence[str]:
        return tuple(self._world.regions)

    async def account_id(self, region: str) -> str:
        return await self._call(region, "GetCallerIdentity", lambda place, _: place.account_id)

    async def sweep(self, region: str, selection: InstanceSelection) -> Sweep:
        filters = [InstanceFilter(tag_keys=tuple(part)) for part in _chunks(selection.tag_keys, MAX_FILTER_VALUES)]
        filters += [InstanceFilter(image_ids=tuple(part)) for part in _chunks(selection.image_ids, MAX_FILTER_VALUES)]
        if not filters:
            raise ValueError("a sweep must select by tag or image")
        return await self._read(region, filters)

    async def describe(self, region: str, instance_ids: Collection[str]) -> Sweep:
        ids = sorted(set(instance_ids))
        return await self._read(
            region, [InstanceFilter(instance_ids=tuple(part)) for part in _chunks(ids, MAX_FILTER_VALUES)]
        )

    async def find_launched(self, region: str, worker_id: str) -> Sweep:
        return await self._read(region, [InstanceFilter(tag=(WORKER_TAG, worker_id))])

    async def launch_instance(self, parameters: LaunchParameters) -> Instance:
        return await self._call(
            parameters.region, "RunInstances", lambda place, now: place.run_instance(parameters, now), instances=1
        )

    async def start_instance(self, region: str, instance_id: str) -> InstanceState:
        return await self._call(
            region, "StartInstances", lambda place, now: place.start_instance(instance_id, now), instances=1
        )

    async def stop_instance(self, region: str, instance_id: str) -> InstanceState:
        return await self._call(
            region, "StopInstances", lambda place, now: place.stop_instance(instance_id, now), instances=1
        )

    async def terminate_instance(self, region: str, instance_id: str) -> InstanceState:
        return await self._call(
            region, "TerminateInstances", lambda place, now: place.terminate_instance(instance_id, now), instances=1
        )

    async def find_images(self, region: str, name_pattern: str, owners: Sequence[str]) -> Sequence[Image]:
        found = await self._call(region, "DescribeImages", lambda place, _: place.find_images(name_pattern, owners))
        return sorted(found, key=lambda image: (image.created_at, image.id), reverse=True)

    async def instance_types(self, region: str, names: Collection[str]) -> Mapping[str, InstanceTypeInfo]:
        return await self._call(region, "DescribeInstanceTypes", lambda place, _: place.instance_types(names))

    async def health(self, region: str) -> Sequence[HealthNotice]:
        found: list[HealthNotice] = []
        for kind in (HealthKind.MAINTENANCE, HealthKind.INSTANCE_IMPAIRED, HealthKind.SYSTEM_IMPAIRED):
            found += await self._call(region, "DescribeInstanceStatus", _notices_of(kind))
        return found

    async def get_instance_metrics(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, InstanceMetrics]:
        queries = [(instance_id, name) for instance_id in instance_ids for name in METRIC_NAMES]
        seed = self._world.seed if self._world.load else None
        return merge_metric_values(
            [
                await self._call(region, "GetMetricData", _metrics_of(seed, part))
                for part in _chunks(queries, MAX_QUERIES_PER_CALL)
            ]
        )

    async def close(self) -> None:
        """There is nothing to close."""

    async def _read(self, region: str, queries: Sequence[InstanceFilter]) -> Sweep:
        """Read all instances that match one of the filters, page by page."""
        found: dict[str, Instance] = {}
        account_id, problem = "", ""
        calls = 0
        began_at: float | None = None
        try:
            for query in queries:
                after: int | None = 0
                number = 1
                while after is not None:
                    await self._wait_for_turn(region, "DescribeInstances", 0)
                    began_at = clock.boottime() if began_at is None else began_at
                    calls += 1
                    page = await self._send(region, "DescribeInstances", _page_of(query, after, number))
                    found.update((instance.id, instance) for instance in page.instances)
                    account_id, after, number = page.account_id, page.following, number + 1
        except CloudError as error:
            problem = str(error)
        return Sweep(
            region=region,
            instances=found,
            complete=not problem,
            began_at=clock.boottime() if began_at is None else began_at,
            account_id=account_id,
            error=problem,
            calls=calls,
        )

    async def _call(
        self, region: str, operation: str, work: Callable[[SimulatedRegion, float], T], *, instances: int = 0
    ) -> T:
        await wait_while_authorized(self._wait_for_turn(region, operation, instances))
        return await self._send(region, operation, work, instances)

    async def _wait_for_turn(self, region: str, operation: str, instances: int) -> None:
        if self._pace is None:
            return
        buckets = self._buckets.get(region)
        if buckets is None:
            buckets = self._buckets[region] = OperationBuckets(self._pace)
        await buckets.take(operation, instances)

    async def _send(
        self, region: str, operation: str, work: Callable[[SimulatedRegion, float], T], instances: int = 0
    ) -> T:
        if operation in error_codes.MUTATING_OPERATIONS:
            check_may_send()
        if self.cut:
            raise CloudUnreachableError(f"{operation}: no connection to {region}", operation=operation)
        response = await self._world.request(region, operation, work, instances=instances)
        if not self.cut:
            return response
        lost = CloudOutcomeUnknownError if operation in error_codes.MUTATING_OPERATIONS else CloudUnreachableError
        raise lost(f"{operation}: the connection to {region} broke", operation=operation)


def _chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (values[begin : begin + size] for begin in range(0, len(values), size))


def _page_of(filters: InstanceFilter, after: int, number: int) -> Callable[[SimulatedRegion, float], DescribePage]:
    return lambda place, now: place.describe_page(filters, after, number, now)


def _notices_of(kind: HealthKind) -> Callable[[SimulatedRegion, float], list[HealthNotice]]:
    return lambda place, now: health_notices(place, kind, now)


def _metrics_of(
    seed: int | None, queries: Sequence[tuple[str, str]]
) -> Callable[[SimulatedRegion, float], Mapping[str, Mapping[str, float]]]:
    return lambda place, now: metric_values(place, seed, queries, now)
