"""The conformance suite's bed on the simulated cloud, in virtual time."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider, fault_injection, monitoring
from lcm.cloud.simulated.faults import (
    AnnounceMaintenance,
    CancelMaintenance,
    ExternalAction,
    ExternalChange,
    FailPage,
    FailStatusCheck,
    HideNewInstances,
    LoseResponses,
    Outage,
    RefuseCalls,
    RescheduleMaintenance,
)
from lcm.cloud.types import (
    ATTEMPT_TAG,
    INSTALLATION_TAG,
    MANAGED_BY,
    MANAGED_BY_TAG,
    METADATA_HOP_LIMIT,
    WORKER_TAG,
    InstanceState,
    LaunchParameters,
    launch_token,
)
from lcm.core import clock
from tests.support.aws.conformance import ALWAYS, OutOfBand, Refusal
from tests.support.virtual.time import VirtualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from lcm.cloud.types import HealthKind, InstanceMetrics

REGION = "eu-central-1"
SUBNETS = {"subnet-a": "eu-central-1a", "subnet-b": "eu-central-1b"}

_PATIENCE = 7200.0
_FOREVER = 1e9


class SimulatedBed:
    """One region of a simulated cloud, pages of five."""

    def __init__(self, seed: int = 1) -> None:
        self.world = SimulatedCloud(seed=seed, page_size=5, load=False)
        self._place = self.world.add_region(REGION, subnets=SUBNETS)
        # Older than any image that a test adds.
        created_at = clock.now() - timedelta(days=3650)
        self._image = self.world.add_image(REGION, "lcm-bed", created_at=created_at)
        self.cloud = SimulatedProvider(self.world)
        self.metrics = self.cloud

    @property
    def region(self) -> str:
        return REGION

    @property
    def account_id(self) -> str:
        return self._place.account_id

    @property
    def subnets(self) -> Sequence[str]:
        return tuple(SUBNETS)

    @property
    def page_size(self) -> int:
        return self.world.page_size

    def parameters(self, worker_id: str, attempt: int = 1) -> LaunchParameters:
        return launch_of(worker_id, attempt, region=REGION, image_id=self._image, subnet_id="subnet-a")

    async def eventually(self, condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE
        while loop.time() < deadline:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return
            await asyncio.sleep(1)
        raise AssertionError(f"not within {_PATIENCE:g} s: {what}")

    async def live_instances(self) -> list[str]:
        return self.world.live_instances()

    def calls(self) -> Mapping[str, int]:
        return self.world.calls()

    async def add_image(self, name: str, owner: str, created_at: datetime, state: str = "available") -> str:
        return self.world.add_image(REGION, name, owner_id=owner, created_at=created_at, state=state)

    async def put_metrics(self, figures: InstanceMetrics) -> None:
        monitoring.put_metrics(self._place, figures)

    async def out_of_band(self, action: OutOfBand, instance_id: str) -> None:
        self.world.inject_fault(REGION, ExternalChange(ExternalAction(action.value), instance_id))

    async def impair(self, instance_id: str, kind: HealthKind) -> None:
        self.world.inject_fault(REGION, FailStatusCheck(kind, instance_id))

    async def announce_maintenance(self, instance_id: str, detail: str, not_before: datetime) -> None:
        ahead = not_before.timestamp() - self.world.time()
        self.world.inject_fault(REGION, AnnounceMaintenance(detail, ahead, instance_id))

    async def move_maintenance(self, instance_id: str, not_before: datetime) -> None:
        ahead = not_before.timestamp() - self.world.time()
        self.world.inject_fault(REGION, RescheduleMaintenance(instance_id, ahead))

    async def cancel_maintenance(self, instance_id: str) -> None:
        self.world.inject_fault(REGION, CancelMaintenance(instance_id))

    async def complete_maintenance(self, instance_id: str) -> None:
        fault_injection.complete_maintenance(self._place, instance_id)

    async def heal(self, instance_id: str) -> None:
        fault_injection.heal_instance(self._place, instance_id)

    async def forget_terminated(self) -> None:
        for machine in self._place.machines.values():
            if self._place.settle(machine, self.world.time()).state is InstanceState.TERMINATED:
                machine.ended_at = 0.0

    def hold_transitions(self, on: bool) -> None:
        self._place.faults.hold_transitions = on

    def hide_new_instances(self, seconds: float) -> None:
        self.world.inject_fault(REGION, HideNewInstances(seconds))

    def reveal_instances(self) -> None:
        fault_injection.reveal_instances(self._place, self.world.time())

    def throttle(self, operation: str, times: int) -> None:
        self.world.inject_fault(REGION, RefuseCalls(operation, "RequestLimitExceeded", times))

    def refuse(self, operation: str, refusal: Refusal, times: int) -> None:
        self.world.inject_fault(REGION, RefuseCalls(operation, refusal.value, times))

    def lose_replies(self, times: int) -> None:
        self.world.inject_fault(REGION, LoseResponses(times))

    def fail_page(self, number: int) -> None:
        self.world.inject_fault(REGION, FailPage(number, ALWAYS))

    def outage(self, on: bool) -> None:
        self.world.inject_fault(REGION, Outage(_FOREVER if on else 0.0))

    def clear_faults(self) -> None:
        fault_injection.clear_faults(self._place)


@asynccontextmanager
async def open_bed() -> AsyncIterator[SimulatedBed]:
    """A fresh bed with a virtual clock, on a virtual-time loop."""
    with clock.use(VirtualClock(asyncio.get_running_loop())):
        yield SimulatedBed()


def launch_of(worker_id: str, attempt: int, *, region: str, image_id: str, subnet_id: str | None) -> LaunchParameters:
    """Return launch parameters with the `lcm:` tags, as a controller would store them."""
    return LaunchParameters(
        region=region,
        client_token=launch_token(worker_id, attempt),
        image_id=image_id,
        instance_type="t3.large",
        subnet_id=subnet_id,
        security_group_ids=(),
        key_name=None,
        tags={
            WORKER_TAG: worker_id,
            ATTEMPT_TAG: str(attempt),
            MANAGED_BY_TAG: MANAGED_BY,
            INSTALLATION_TAG: "bed",
            "Name": f"cml-{worker_id}",
        },
        metadata_hop_limit=METADATA_HOP_LIMIT,
    )
