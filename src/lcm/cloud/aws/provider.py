"""AWS as a cloud: the interface of instances and that of metrics, each call handed to the part that knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.cloud.aws.gateway import Gateway
from lcm.cloud.aws.health import Health
from lcm.cloud.aws.iam import Identity
from lcm.cloud.aws.images import Images
from lcm.cloud.aws.launch import Launches
from lcm.cloud.aws.monitoring import CloudWatch
from lcm.cloud.aws.mutations import Mutation
from lcm.cloud.aws.permissions import Permissions
from lcm.cloud.aws.poller import Poller
from lcm.cloud.aws.sweeps import Sweeps
from lcm.cloud.aws.telemetry import CallMetrics, call_metrics
from lcm.cloud.aws.threads import Threads
from lcm.cloud.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lcm.cloud.aws.config import AwsConfig, RegionConfig
    from lcm.cloud.types import (
        HealthNotice,
        Image,
        Instance,
        InstanceMetrics,
        InstanceState,
        LaunchParameters,
        Selection,
        Sweep,
    )

_CLOSING_PATIENCE = 5.0


class _Region:
    """All that is known and under way in one region."""

    def __init__(self, config: RegionConfig, provider: AwsConfig, shared: _Shared) -> None:
        self.gateway = Gateway(config, provider.tuning, shared.threads, shared.metrics)
        self.identity = Identity(self.gateway)
        self.sweeps = Sweeps(self.gateway, self.identity, shared.poller)
        self.images = Images(self.gateway, self.identity)
        self.launches = Launches(self.gateway, self.images)
        self.start = Mutation(self.gateway, "StartInstances", "StartingInstances")
        self.stop = Mutation(self.gateway, "StopInstances", "StoppingInstances")
        self.terminate = Mutation(self.gateway, "TerminateInstances", "TerminatingInstances")
        self.permissions = Permissions(self.gateway, self.launches)
        self.health = Health(self.gateway)
        self.cloudwatch = CloudWatch(self.gateway)


class _Shared:
    """What all regions use together."""

    def __init__(self, config: AwsConfig, metrics: CallMetrics) -> None:
        self.threads = Threads(config.tuning.threads)
        self.poller = Poller()
        self.metrics = metrics


class AwsProvider:
    """EC2 and CloudWatch in the configured regions; implements `CloudProviderSPI` and `MetricsSPI`."""

    def __init__(self, config: AwsConfig, registry: CollectorRegistry = REGISTRY) -> None:
        self.config = config
        self._shared = _Shared(config, call_metrics(registry))
        self._closed = False
        self._regions = {name: _Region(region, config, self._shared) for name, region in config.regions.items()}

    @property
    def regions(self) -> Sequence[str]:
        return tuple(self._regions)

    @property
    def poller_pid(self) -> int | None:
        """The process that reads large pages, while there is one."""
        return self._shared.poller.pid

    async def account_id(self, region: str) -> str:
        return await self._in(region).identity.account_id()

    async def sweep(self, region: str, selection: Selection) -> Sweep:
        return await self._in(region).sweeps.sweep(selection)

    async def describe(self, region: str, instance_ids: Collection[str]) -> Sweep:
        return await self._in(region).sweeps.describe(instance_ids)

    async def find_launched(self, region: str, worker_id: str) -> Sweep:
        return await self._in(region).sweeps.find_launched(worker_id)

    async def launch_instance(self, parameters: LaunchParameters) -> Instance:
        return await self._in(parameters.region).launches.launch(parameters)

    async def start_instance(self, region: str, instance_id: str) -> InstanceState:
        return await self._in(region).start.ask(instance_id)

    async def stop_instance(self, region: str, instance_id: str) -> InstanceState:
        return await self._in(region).stop.ask(instance_id)

    async def terminate_instance(self, region: str, instance_id: str) -> InstanceState:
        return await self._in(region).terminate.ask(instance_id)

    async def find_images(self, region: str, name_pattern: str, owners: Sequence[str]) -> Sequence[Image]:
        return await self._in(region).images.find(name_pattern, owners)

    async def health(self, region: str) -> Sequence[HealthNotice]:
        return await self._in(region).health.notices()

    async def get_instance_metrics(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, InstanceMetrics]:
        return await self._in(region).cloudwatch.latest(instance_ids)

    def permissions(self, region: str) -> Permissions:
        """What would be allowed in a region; no part of the interface of clouds."""
        return self._in(region).permissions

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for region in self._regions.values():
            for mutation in (region.start, region.stop, region.terminate):
                await mutation.close()
        await self._shared.poller.close()
        await self._shared.threads.close(_CLOSING_PATIENCE)
        for region in self._regions.values():
            region.gateway.close()

    def _in(self, region: str) -> _Region:
        found = self._regions.get(region)
        if found is None:
            known = ", ".join(self._regions)
            raise InvalidRequest(f"region {region} is not configured; configured are {known}", code="UnknownRegion")
        return found
