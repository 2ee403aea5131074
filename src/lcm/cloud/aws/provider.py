"""The AWS provider: implements the cloud interfaces by delegating each call to the responsible class."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.cloud.aws.gateway import AwsCallMetrics, AwsGateway, BoundedThreadPool, aws_call_metrics
from lcm.cloud.aws.iam import AccountIdentity, PermissionChecker
from lcm.cloud.aws.images import ImageCatalog, InstanceTypeCatalog
from lcm.cloud.aws.instances import InstanceReader
from lcm.cloud.aws.monitoring import InstanceHealthReader, InstanceMetricsReader
from lcm.cloud.aws.mutations import BatchedMutation, Launcher
from lcm.cloud.aws.poller import Poller
from lcm.cloud.errors import InvalidCloudRequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from lcm.cloud.aws.config import AwsConfig, RegionConfig
    from lcm.cloud.types import (
        HealthNotice,
        Image,
        Instance,
        InstanceMetrics,
        InstanceSelection,
        InstanceState,
        InstanceTypeInfo,
        LaunchParameters,
        Sweep,
    )

_CLOSE_TIMEOUT = 5.0


class _RegionServices:
    """The services of one region. Regions share nothing that a region could keep busy: no threads and no process."""

    def __init__(self, config: RegionConfig, provider: AwsConfig, metrics: AwsCallMetrics) -> None:
        self.threads = BoundedThreadPool(provider.tuning.threads, config.region, metrics)
        self.poller = Poller()
        self.gateway = AwsGateway(config, provider.tuning, self.threads, metrics)
        self.identity = AccountIdentity(self.gateway)
        self.sweeps = InstanceReader(self.gateway, self.identity, self.poller)
        self.images = ImageCatalog(self.gateway, self.identity)
        self.types = InstanceTypeCatalog(self.gateway)
        self.launches = Launcher(self.gateway, self.images)
        self.start = BatchedMutation(self.gateway, "StartInstances", "StartingInstances")
        self.stop = BatchedMutation(self.gateway, "StopInstances", "StoppingInstances")
        self.terminate = BatchedMutation(self.gateway, "TerminateInstances", "TerminatingInstances")
        self.permissions = PermissionChecker(self.gateway, self.launches)
        self.health = InstanceHealthReader(self.gateway)
        self.cloudwatch = InstanceMetricsReader(self.gateway)

    async def close(self) -> None:
        for mutation in (self.start, self.stop, self.terminate):
            await mutation.close()
        await self.poller.close()
        await self.threads.close(_CLOSE_TIMEOUT)
        self.gateway.close()


class AwsProvider:
    """EC2 and CloudWatch in the configured regions; implements `CloudProviderSPI` and `SharedMetricsSPI`."""

    def __init__(self, config: AwsConfig, registry: CollectorRegistry = REGISTRY) -> None:
        self.config = config
        metrics = aws_call_metrics(registry)
        self._closed = False
        self._regions = {name: _RegionServices(region, config, metrics) for name, region in config.regions.items()}

    @property
    def regions(self) -> Sequence[str]:
        return tuple(self._regions)

    def poller_pid(self, region: str) -> int | None:
        """The process that reads large pages of a region, while there is one."""
        return self._in(region).poller.pid

    async def account_id(self, region: str) -> str:
        return await self._in(region).identity.account_id()

    async def sweep(self, region: str, selection: InstanceSelection) -> Sweep:
        return await self._in(region).sweeps.sweep(selection)

    async def describe(self, region: str, instance_ids: Collection[str]) -> Sweep:
        return await self._in(region).sweeps.describe(instance_ids)

    async def find_launched(self, region: str, worker_id: str) -> Sweep:
        return await self._in(region).sweeps.find_launched(worker_id)

    async def launch_instance(self, parameters: LaunchParameters) -> Instance:
        return await self._in(parameters.region).launches.launch(parameters)

    async def start_instance(self, region: str, instance_id: str) -> InstanceState:
        return await self._in(region).start.submit(instance_id)

    async def stop_instance(self, region: str, instance_id: str) -> InstanceState:
        return await self._in(region).stop.submit(instance_id)

    async def terminate_instance(self, region: str, instance_id: str) -> InstanceState:
        return await self._in(region).terminate.submit(instance_id)

    async def find_images(self, region: str, name_pattern: str, owners: Sequence[str]) -> Sequence[Image]:
        return await self._in(region).images.find(name_pattern, owners)

    async def instance_types(self, region: str, names: Collection[str]) -> Mapping[str, InstanceTypeInfo]:
        return await self._in(region).types.find(names)

    async def health(self, region: str) -> Sequence[HealthNotice]:
        return await self._in(region).health.notices()

    async def get_instance_metrics(
        self, region: str, instance_ids: Sequence[str], end: datetime | None = None
    ) -> Mapping[str, InstanceMetrics]:
        return await self._in(region).cloudwatch.latest(instance_ids, end)

    async def wait_for_metrics_calls(self, region: str, instances: int) -> None:
        await self._in(region).cloudwatch.wait_for_calls(instances)

    def permissions(self, region: str) -> PermissionChecker:
        """Return the permission checker of a region. It is not part of the cloud interface."""
        return self._in(region).permissions

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*(region.close() for region in self._regions.values()))

    def _in(self, region: str) -> _RegionServices:
        found = self._regions.get(region)
        if found is None:
            known = ", ".join(self._regions)
            raise InvalidCloudRequestError(
                f"region {region} is not configured; configured regions: {known}", code="UnknownRegion"
            )
        return found
