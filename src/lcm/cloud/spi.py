"""The interfaces that LCM needs from a cloud provider.

Every call ends in bounded time, never blocks the event loop, and fails with an error of `lcm.cloud.errors`. Mutating
calls are sent once: the caller decides whether and when to retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

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


class CloudProviderSPI(Protocol):
    """Instances in the regions of one account or several."""

    @property
    def regions(self) -> Sequence[str]:
        """The configured regions, in order."""

    async def account_id(self, region: str) -> str:
        """Return the id of the account that is used in this region."""

    async def sweep(self, region: str, selection: InstanceSelection) -> Sweep:
        """List all instances of the selection, page by page; terminated ones as long as the provider lists them.

        A failure gives an incomplete sweep with the instances found so far, never an exception. An empty selection is
        a `ValueError`, because it would select everything.
        """

    async def describe(self, region: str, instance_ids: Collection[str]) -> Sweep:
        """Describe these instances, by filter: an unknown id is missing in the result and is not an error.

        As with `sweep`, a failure gives an incomplete result, never an exception.
        """

    async def find_launched(self, region: str, worker_id: str) -> Sweep:
        """Find all instances that were launched for a worker, by its tag, of any attempt and state; see `sweep`."""

    async def launch_instance(self, parameters: LaunchParameters) -> Instance:
        """Launch an instance. A client token that was used before gives the instance of that launch."""

    async def start_instance(self, region: str, instance_id: str) -> InstanceState:
        """Start an instance. It is no error if it is running or starting already."""

    async def stop_instance(self, region: str, instance_id: str) -> InstanceState:
        """Stop an instance. It is no error if it is stopped or stopping already."""

    async def terminate_instance(self, region: str, instance_id: str) -> InstanceState:
        """Terminate an instance. It is no error if it is terminated or shutting down already."""

    async def find_images(self, region: str, name_pattern: str, owners: Sequence[str]) -> Sequence[Image]:
        """Find available images of these owners by name, newest first. Images of other owners are left out."""

    async def instance_types(self, region: str, names: Collection[str]) -> Mapping[str, InstanceTypeInfo]:
        """Return what these instance types offer, by name. Types that the provider does not know are left out."""

    async def health(self, region: str) -> Sequence[HealthNotice]:
        """List scheduled maintenance, and instances with a status check that does not pass.

        An instance that is not listed is healthy. A partial result is an error, never a list.
        """

    async def close(self) -> None:
        """Close connections, threads and processes."""


METRICS_BATCH: Final = 500
"""Instances whose metrics are read together. However many metrics each has, their queries fill whole calls of 500."""


class MetricsSPI(Protocol):
    """Metrics of instances, as collected by the provider."""

    async def get_instance_metrics(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, InstanceMetrics]:
        """Return the latest metrics of each instance, read in batches; instances without metrics are left out."""


class SharedMetricsSPI(Protocol):
    """Metrics that several processes with the same account can read, each a part, within one rate limit."""

    async def account_id(self, region: str) -> str:
        """Return the id of the account that is used in this region."""

    async def wait_for_metrics_calls(self, region: str, instances: int) -> None:
        """Take the calls for so many instances from the rate limit here, because another process will make them."""

    async def get_instance_metrics(
        self, region: str, instance_ids: Sequence[str], end: datetime | None = None
    ) -> Mapping[str, InstanceMetrics]:
        """As in `MetricsSPI`; the latest metrics before `end`, by default before now."""
