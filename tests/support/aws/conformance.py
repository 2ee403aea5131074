"""A cloud with its server side in the test's hands: what the conformance suite needs, whatever stands behind it.

Each bed is one account with one region that matters. Faults act at the server, below the adapter that is tested, so
that they arrive as they would from the real provider. Nothing here depends on the speed of the machine: what must be
seen midway is held there until it is let go.

A module with a bed offers `open_bed()`, an async context manager that yields a fresh one.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from lcm.cloud.spi import CloudProviderSPI, MetricsSPI
    from lcm.cloud.types import HealthKind, InstanceMetrics, LaunchParameters

# The provider's own names of operations: what faults are aimed at and calls are counted by.
RUN = "RunInstances"
START = "StartInstances"
STOP = "StopInstances"
TERMINATE = "TerminateInstances"
DESCRIBE = "DescribeInstances"
STATUS = "DescribeInstanceStatus"
IMAGES = "DescribeImages"
METRICS = "GetMetricData"
IDENTITY = "GetCallerIdentity"

# More than any adapter tries again by itself.
ALWAYS = 1_000_000


class Refusal(Enum):
    """Definite answers of a server that could, but will not; the value is EC2's error code."""

    CAPACITY = "InsufficientInstanceCapacity"
    QUOTA = "VcpuLimitExceeded"
    DENIED = "UnauthorizedOperation"
    EXPIRED = "RequestExpired"
    INVALID = "InvalidParameterValue"
    INTERNAL = "InternalError"


class OutOfBand(Enum):
    """What somebody else may do with an instance."""

    STOP = "stop"
    START = "start"
    TERMINATE = "terminate"


class CloudBed(Protocol):
    """A cloud, its metrics, and the strings behind them."""

    @property
    def cloud(self) -> CloudProviderSPI:
        """What is tested."""

    @property
    def metrics(self) -> MetricsSPI:
        """What is tested."""

    @property
    def region(self) -> str:
        """The region where everything happens."""

    @property
    def account_id(self) -> str:
        """The account that owns the instances and the images of owner `self`."""

    @property
    def subnets(self) -> Sequence[str]:
        """Two subnets, each in a zone of its own."""

    @property
    def page_size(self) -> int:
        """How many instances a page of a sweep holds here: few, so that a dozen make several pages."""

    def parameters(self, worker_id: str, attempt: int = 1) -> LaunchParameters:
        """A launch that is allowed here, with the four `lcm:` tags and the token of worker and attempt.

        It names the first subnet and an image of our own. A test changes it with `dataclasses.replace`.
        """

    async def eventually(self, condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        """Wait, in the bed's kind of time, until the condition holds; fail by name when it never does."""

    # What is really there

    async def live_instances(self) -> list[str]:
        """Ids of all instances that exist at the server and have not begun to end, visible or not, sorted."""

    def calls(self) -> Mapping[str, int]:
        """Requests that reached the server since the bed was made, by operation; refused ones and pages included."""

    # Content

    async def add_image(self, name: str, owner: str, created_at: datetime, state: str = "available") -> str:
        """Put an image into the catalogue, readable by our account, and give its id. `owner` is an account id."""

    async def put_metrics(self, figures: InstanceMetrics) -> None:
        """Let the metrics service know these figures, at their moment; None is not put."""

    async def out_of_band(self, action: OutOfBand, instance_id: str) -> None:
        """Do something with an instance that the adapter knows nothing of. It changes by the usual transitions."""

    async def impair(self, instance_id: str, kind: HealthKind) -> None:
        """Let a status check of a running instance fail (INSTANCE_IMPAIRED or SYSTEM_IMPAIRED)."""

    async def announce_maintenance(self, instance_id: str, detail: str, not_before: datetime) -> None:
        """Schedule an event of code `system-reboot` with this description."""

    async def complete_maintenance(self, instance_id: str) -> None:
        """The events of the instance have happened; the provider still shows them, marked as completed."""

    async def heal(self, instance_id: str) -> None:
        """All checks pass again and no event is shown."""

    async def forget_terminated(self) -> None:
        """What happens an hour after a termination: terminated instances are not shown any more."""

    # Time

    def hold_transitions(self, on: bool) -> None:
        """While on, nothing that is pending, stopping or shutting down gets any further."""

    def hide_new_instances(self, seconds: float) -> None:
        """Instances launched from now on exist, but for so long no read shows them and no call by id finds them."""

    def reveal_instances(self) -> None:
        """End all hiding now."""

    # Faults

    def throttle(self, operation: str, times: int) -> None:
        """Refuse the next calls of the operation with RequestLimitExceeded, without doing anything."""

    def refuse(self, operation: str, refusal: Refusal, times: int) -> None:
        """Refuse the next calls of the operation, without doing anything."""

    def lose_replies(self, times: int) -> None:
        """Do what the next calls that change something ask for, and cut the connection instead of answering."""

    def fail_page(self, number: int) -> None:
        """Until `clear_faults`, page `number` (from 1) of every DescribeInstances fails with an internal error."""

    def outage(self, on: bool) -> None:
        """While on, the region accepts no connection."""

    def clear_faults(self) -> None:
        """All of the faults above end."""
