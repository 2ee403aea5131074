"""A cloud whose server side is under the control of the test: the interface that the conformance suite needs.

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

# The provider's names of operations, for faults and for counting calls.
RUN = "RunInstances"
START = "StartInstances"
STOP = "StopInstances"
TERMINATE = "TerminateInstances"
DESCRIBE = "DescribeInstances"
STATUS = "DescribeInstanceStatus"
IMAGES = "DescribeImages"
METRICS = "GetMetricData"
IDENTITY = "GetCallerIdentity"

# More than any adapter retries.
ALWAYS = 1_000_000


class Refusal(Enum):
    """Definite rejections by a server; the value is EC2's error code."""

    CAPACITY = "InsufficientInstanceCapacity"
    QUOTA = "VcpuLimitExceeded"
    DENIED = "UnauthorizedOperation"
    EXPIRED = "RequestExpired"
    INVALID = "InvalidParameterValue"
    UNSUPPORTED = "Unsupported"
    INTERNAL = "InternalError"


class OutOfBand(Enum):
    """A change of an instance outside LCM."""

    STOP = "stop"
    START = "start"
    TERMINATE = "terminate"


class CloudBed(Protocol):
    """A cloud, its metrics, and the control of its server side."""

    @property
    def cloud(self) -> CloudProviderSPI:
        """The adapter under test."""

    @property
    def metrics(self) -> MetricsSPI:
        """The adapter under test."""

    @property
    def region(self) -> str:
        """The region where everything happens."""

    @property
    def account_id(self) -> str:
        """The account that owns the instances and the images of owner `self`."""

    @property
    def subnets(self) -> Sequence[str]:
        """Two subnets in different zones."""

    @property
    def page_size(self) -> int:
        """The page size of a sweep: small, so that a dozen instances give several pages."""

    def parameters(self, worker_id: str, attempt: int = 1) -> LaunchParameters:
        """Return valid launch parameters, with the four `lcm:` tags and the client token of worker and attempt.

        It names the first subnet and an image of our own. A test changes it with `dataclasses.replace`.
        """

    async def eventually(self, condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        """Wait (in virtual or real time) until the condition holds; fail with the name of the condition otherwise."""

    # State of the server

    async def live_instances(self) -> list[str]:
        """Return the sorted ids of all instances that are not terminated or shutting down, visible or not."""

    def calls(self) -> Mapping[str, int]:
        """Return the number of requests to the server so far by operation, including failed ones and pages."""

    # Content

    async def add_image(self, name: str, owner: str, created_at: datetime, state: str = "available") -> str:
        """Add an image to the catalog, readable by our account, and return its id. `owner` is an account id."""

    async def put_metrics(self, figures: InstanceMetrics) -> None:
        """Store metrics with their timestamp; values that are None are left out."""

    async def out_of_band(self, action: OutOfBand, instance_id: str) -> None:
        """Change an instance outside the adapter. It goes through the usual transitions."""

    async def impair(self, instance_id: str, kind: HealthKind) -> None:
        """Let a status check of a running instance fail (INSTANCE_IMPAIRED or SYSTEM_IMPAIRED)."""

    async def announce_maintenance(self, instance_id: str, detail: str, not_before: datetime) -> None:
        """Schedule an event of code `system-reboot` with this description."""

    async def move_maintenance(self, instance_id: str, not_before: datetime) -> None:
        """Move the events of the instance to another time."""

    async def cancel_maintenance(self, instance_id: str) -> None:
        """Mark the events of the instance as canceled; the provider still lists them."""

    async def complete_maintenance(self, instance_id: str) -> None:
        """Mark the events of the instance as completed; the provider still lists them."""

    async def heal(self, instance_id: str) -> None:
        """Let all checks pass again, and remove the events."""

    async def forget_terminated(self) -> None:
        """Remove terminated instances, as EC2 does an hour after the termination."""

    # Time

    def hold_transitions(self, on: bool) -> None:
        """While on, transitional states do not end."""

    def hide_new_instances(self, seconds: float) -> None:
        """Instances launched from now on exist, but are invisible to reads and calls for so long."""

    def reveal_instances(self) -> None:
        """Make all instances visible now."""

    # Faults

    def throttle(self, operation: str, times: int) -> None:
        """Fail the next calls of the operation with RequestLimitExceeded, without executing them."""

    def refuse(self, operation: str, refusal: Refusal, times: int) -> None:
        """Fail the next calls of the operation, without executing them."""

    def lose_replies(self, times: int) -> None:
        """Execute the next mutating calls, and cut the connection instead of responding."""

    def fail_page(self, number: int) -> None:
        """Until `clear_faults`, page `number` (from 1) of every DescribeInstances fails with an internal error."""

    def outage(self, on: bool) -> None:
        """While on, the region accepts no connections."""

    def clear_faults(self) -> None:
        """End all of the faults above."""
