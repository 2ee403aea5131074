"""What the platform needs of a cloud.

Every call ends in bounded time, never blocks the event loop, and fails with an error of `lcm.cloud.errors`. Calls that
change something are tried once: whoever makes them decides whether and when to try again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lcm.cloud.types import (
        HealthNotice,
        Image,
        Instance,
        InstanceMetrics,
        InstanceSelection,
        InstanceState,
        LaunchParameters,
        Sweep,
    )


class CloudProviderSPI(Protocol):
    """Instances in the regions of one account or several."""

    @property
    def regions(self) -> Sequence[str]:
        """The regions that are configured, in order."""

    async def account_id(self, region: str) -> str:
        """The account that calls in this region run as."""

    async def sweep(self, region: str, selection: InstanceSelection) -> Sweep:
        """All instances of the selection, page by page; terminated ones as long as the provider shows them.

        A failure on the way gives an incomplete sweep with what was seen, never an exception. A selection of nothing is
        a `ValueError`: it would be taken for everything.
        """

    async def describe(self, region: str, instance_ids: Collection[str]) -> Sweep:
        """These instances alone, asked for by filter: an id that is not known leaves a gap and fails nothing.

        As with `sweep` a failure gives an incomplete look, never an exception.
        """

    async def find_launched(self, region: str, worker_id: str) -> Sweep:
        """All instances, of any attempt and in any state, that were launched for a worker, by its tag; as `sweep`."""

    async def launch_instance(self, parameters: LaunchParameters) -> Instance:
        """Launch, or, with a token that was used before, answer with that launch's instance."""

    async def start_instance(self, region: str, instance_id: str) -> InstanceState:
        """Start it. Already running or starting is no error."""

    async def stop_instance(self, region: str, instance_id: str) -> InstanceState:
        """Stop it. Already stopped or stopping is no error."""

    async def terminate_instance(self, region: str, instance_id: str) -> InstanceState:
        """Terminate it. Already terminated or shutting down is no error."""

    async def find_images(self, region: str, name_pattern: str, owners: Sequence[str]) -> Sequence[Image]:
        """Available images of these owners whose name matches, newest first. An image of another owner is left out."""

    async def health(self, region: str) -> Sequence[HealthNotice]:
        """Impaired instances and announced maintenance."""

    async def close(self) -> None:
        """Let go of connections, threads and processes."""


class MetricsSPI(Protocol):
    """Figures that the provider keeps of instances."""

    async def get_instance_metrics(self, region: str, instance_ids: Sequence[str]) -> Mapping[str, InstanceMetrics]:
        """The latest figures of each instance, gathered in batches; an instance without any is left out."""
