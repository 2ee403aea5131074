"""Faults of EC2, caused by EC2 itself or by other users of the account."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lcm.cloud.errors import CloudError
from lcm.cloud.simulated.faults import (
    ActiveFaults,
    AnnounceMaintenance,
    CancelMaintenance,
    DropFromReads,
    ExternalAction,
    ExternalChange,
    FailPage,
    FailStatusCheck,
    HalvePages,
    HideInstances,
    HideNewInstances,
    LackCapacity,
    LagReads,
    LoseResponses,
    OmitInstanceType,
    Outage,
    RefuseCalls,
    RejectCredentials,
    RescheduleMaintenance,
    ThrottleCalls,
)
from lcm.cloud.types import WORKER_TAG, HealthKind, InstanceState, LaunchParameters
from tests.simulation.world.network import LinkQuality

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.cloud.simulated.machine import Machine
    from tests.simulation.world.platform import Platform

_PAGE, _SMALL_PAGE = 1000, 2
_ALL = 10**9
_SETTLED = 400.0  # a younger instance may be invisible for other reasons
_VISIBLE_FOR = 600.0  # between two times at which instances are hidden: only a longer absence proves anything


class HarmToAws:
    """Injects faults into EC2."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._hidden_until: dict[str, float] = {}

    def heal(self) -> None:
        """End all faults."""
        ec2 = self._platform.ec2
        for region in ec2.regions.values():
            region.faults, region.page_size = ActiveFaults(), _PAGE
            for machine in region.machines.values():
                machine.impaired.clear()
        ec2.odd.clear()
        ec2.addressless.clear()
        self._platform.ledger.sick_regions.clear()
        ec2.unauthenticated.clear()

    def _strike(self, region: str, fault: Any) -> None:
        self._platform.ec2.inject_fault(region, fault)

    async def _aws_outage(self, region: str, seconds: float) -> None:
        self._strike(region, Outage(seconds))

    async def _slow_aws(self, node: str, seconds: float, slowest: float) -> None:
        """Mutating calls are slow."""
        line = self._platform.network.line(node, "aws")
        line.quality = LinkQuality(slowest=slowest)
        await asyncio.sleep(seconds)
        line.quality = LinkQuality()

    async def _queue_calls(self, node: str, seconds: float, slowest: float) -> None:
        """Mutating calls wait in their process before they are sent: for a rate limit, a thread, credentials."""
        line = self._platform.network.line(node, "aws")
        line.queueing = slowest
        await asyncio.sleep(seconds)
        line.queueing = 0.0

    async def _swallow(self, region: str, seconds: float) -> None:
        """A region accepts calls and never responds."""
        self._strike(region, Outage(seconds, silent=True))
        self._platform.ledger.sick_regions.add(region)
        await asyncio.sleep(seconds)
        self._platform.ledger.sick_regions.discard(region)

    async def _throttle(self, operation: str, times: int, region: str) -> None:
        self._strike(region, ThrottleCalls(operation, times))

    async def _refuse(self, operation: str, code: str, times: int, region: str) -> None:
        self._strike(region, RefuseCalls(operation, code, times))

    async def _credentials(self, region: str, code: str, seconds: float) -> None:
        """The credentials for a region expire, and are renewed later."""
        self._strike(region, RejectCredentials(code, seconds))

    async def _clock_off(self, node: str, seconds: float) -> None:
        """The clock of a host is off by so many minutes that AWS rejects all its calls."""
        self._platform.ec2.unauthenticated[node] = "RequestExpired"
        await asyncio.sleep(seconds)
        self._platform.ec2.unauthenticated.pop(node, None)

    async def _no_capacity(
        self, region: str, instance_type: str | None, seconds: float, subnet_id: str | None = None
    ) -> None:
        self._strike(region, LackCapacity(seconds, instance_type, subnet_id))

    async def _zone_without_type(self, region: str, instance_type: str, subnet_id: str | None) -> None:
        self._platform.ledger.omitted_types.add((region, instance_type, subnet_id))
        self._strike(region, OmitInstanceType(instance_type, subnet_id))

    async def _lose_replies(self, times: int, silent: bool, region: str) -> None:
        self._strike(region, LoseResponses(times, silent))

    async def _hide_new(self, seconds: float, lasting: float, region: str) -> None:
        self._strike(region, HideNewInstances(seconds))
        await asyncio.sleep(lasting)
        self._strike(region, HideNewInstances(0))

    async def _lag_reads(self, seconds: float, lasting: float, region: str) -> None:
        self._strike(region, LagReads(seconds))
        await asyncio.sleep(lasting)
        self._strike(region, LagReads(0))

    async def _mix_states(self, seconds: float, lasting: float, region: str) -> None:
        """Some pages show the state of a while ago, others the present one."""
        place = self._platform.ec2.regions[region]
        place.page_size = _SMALL_PAGE
        self._strike(region, LagReads(seconds, share=0.5))
        await asyncio.sleep(lasting)
        self._strike(region, LagReads(0))
        place.page_size = _PAGE

    async def _hide_old(self, which: float, count: int, seconds: float, region: str) -> str:
        """EC2's index loses some instances for a while, however old they are. Too short to call them gone."""
        fit = self._not_hidden_lately(region)
        if not fit:
            return "none fits"
        first = int(which * len(fit))
        chosen = (fit + fit)[first : first + min(count, len(fit))]
        self._hide(region, seconds, chosen)
        return ", ".join(chosen)

    async def _hide_region(self, seconds: float, region: str) -> str:
        """EC2 answers for the region, and shows nothing."""
        live = self._platform.ec2.regions[region].live(self._platform.ec2.time())
        if len(self._not_hidden_lately(region)) < len(live):
            return "some were hidden a moment ago"
        self._hide(region, seconds, [machine.id for machine in live])
        self._strike(region, HideInstances(seconds))
        return "done"

    def _hide(self, region: str, seconds: float, instance_ids: list[str]) -> None:
        self._hidden_until |= dict.fromkeys(instance_ids, self._platform.ec2.time() + seconds)
        if instance_ids:
            self._strike(region, HideInstances(seconds, tuple(instance_ids)))

    def _not_hidden_lately(self, region: str) -> list[str]:
        now = self._platform.ec2.time()
        live = [machine.id for machine in self._platform.ec2.regions[region].live(now)]
        return [each for each in live if now >= self._hidden_until.get(each, float("-inf")) + _VISIBLE_FOR]

    async def _drop_from_reads(self, share: float, seconds: float, region: str) -> None:
        self._strike(region, DropFromReads(share, seconds))

    async def _halve_pages(self, times: int, region: str) -> None:
        self._strike(region, HalvePages(times))

    async def _halve_lists(self, seconds: float, region: str) -> None:
        """EC2's lists lack the second half of each page, for longer than an instance must be absent to be gone."""
        self._strike(region, HalvePages(_ALL, listings_only=True))
        await asyncio.sleep(seconds)
        self._strike(region, HalvePages(0))

    async def _fail_page(self, times: int, region: str) -> None:
        self._strike(region, FailPage(1, times))

    def _machines(self) -> list[tuple[str, Machine]]:
        now = self._platform.ec2.time()
        return [
            (name, region.settle(machine, now))
            for name, region in self._platform.ec2.regions.items()
            for machine in region.machines.values()
        ]

    async def _outside(self, which: float, action: ExternalAction, states: tuple[InstanceState, ...]) -> str:
        fit = [(region, machine) for region, machine in self._machines() if machine.state in states]
        if not fit:
            return "none fits"
        region, machine = fit[int(which * len(fit))]
        if action is ExternalAction.STOP:
            self._platform.ledger.stopped_outside.add(machine.id)
        with suppress(CloudError):
            self._strike(region, ExternalChange(action, machine.id))
        return machine.id

    async def _stop_outside(self, which: float) -> str:
        return await self._outside(which, ExternalAction.STOP, (InstanceState.RUNNING,))

    async def _start_outside(self, which: float) -> str:
        return await self._outside(which, ExternalAction.START, (InstanceState.STOPPED,))

    async def _terminate_outside(self, which: float) -> str:
        return await self._outside(which, ExternalAction.TERMINATE, (InstanceState.RUNNING, InstanceState.STOPPED))

    async def _launch_outside(self, region: str, ours: bool) -> str:
        """A user launches a server manually and tags it so that discovery finds it."""
        place = self._platform.ec2.region(region)
        tags = {"Name": f"by-hand-{place.serials}", "cml-managed": "true"} if ours else {"Name": "unmanaged"}
        return self._launch(region, next(iter(place.images)), "t3.medium", tags)

    async def _launch_alike(self, which: float) -> str:
        """A user launches more instances like one of ours; the EC2 console copies its tags, too."""
        fit = [(region, machine) for region, machine in self._machines() if WORKER_TAG in machine.tags]
        if not fit:
            return "none fits"
        region, model = fit[int(which * len(fit))]
        made = self._launch(region, model.image_id, model.instance_type, dict(model.tags))
        return f"{made}, like {model.id} of {model.tags[WORKER_TAG]}"

    def _launch(self, region: str, image_id: str, instance_type: str, tags: dict[str, str]) -> str:
        place = self._platform.ec2.region(region)
        parameters = LaunchParameters(
            region=region,
            client_token=f"by-hand-{place.serials}",
            image_id=image_id,
            instance_type=instance_type,
            subnet_id="subnet-a",
            security_group_ids=(),
            key_name=None,
            tags=tags,
        )
        machine = place.run_instance(parameters, self._platform.ec2.time())
        self._platform.ledger.launched_outside.add(machine.id)
        return machine.id

    async def _impair(self, which: float) -> str:
        fit = [(region, machine) for region, machine in self._machines() if machine.state is InstanceState.RUNNING]
        if not fit:
            return "none fits"
        region, machine = fit[int(which * len(fit))]
        with suppress(CloudError):
            self._strike(region, FailStatusCheck(HealthKind.INSTANCE_IMPAIRED, machine.id))
        return machine.id

    async def _keep_impaired(self, which: float, seconds: float) -> str:
        """An instance fails its status checks on every host, for a while."""
        impaired = await self._impair(which)
        until = self._platform.ec2.time() + seconds
        while self._platform.ec2.time() < until:
            await asyncio.sleep(20)
            for _, machine in self._machines():
                if machine.id == impaired and machine.state is InstanceState.RUNNING:
                    machine.impaired.add(HealthKind.SYSTEM_IMPAIRED)
        return impaired

    async def _announce(self, which: float, seconds: float, code: str) -> str:
        """EC2 announces maintenance of an instance, which also happens if nobody moves it before."""
        fit = [(region, machine) for region, machine in self._machines() if machine.state.live]
        if not fit:
            return "none fits"
        region, machine = fit[int(which * len(fit))]
        self._strike(region, AnnounceMaintenance("degraded hardware", seconds, machine.id, code))
        return machine.id

    async def _reschedule_event(self, which: float, seconds: float) -> str:
        return await self._change_event(which, lambda instance_id: RescheduleMaintenance(instance_id, seconds))

    async def _cancel_event(self, which: float) -> str:
        return await self._change_event(which, CancelMaintenance)

    async def _change_event(self, which: float, fault: Callable[[str], Any]) -> str:
        fit = [(region, machine) for region, machine in self._machines() if machine.next_event_at is not None]
        if not fit:
            return "none fits"
        region, machine = fit[int(which * len(fit))]
        self._strike(region, fault(machine.id))
        return machine.id

    async def _freeze_ec2(self, region: str, seconds: float) -> None:
        """No instance changes its state for a while: pending stays pending, stopping stays stopping."""
        faults = self._platform.ec2.regions[region].faults
        faults.hold_transitions = True
        await asyncio.sleep(seconds)
        faults.hold_transitions = False

    async def _odd_state(self, which: float, seconds: float) -> str:
        """EC2 reports an instance in an unrecognized state."""
        return await self._show_otherwise(which, seconds, self._platform.ec2.odd)

    async def _no_address(self, which: float, seconds: float) -> str:
        """EC2 reports an instance without its addresses."""
        return await self._show_otherwise(which, seconds, self._platform.ec2.addressless)

    async def _show_otherwise(self, which: float, seconds: float, marks: set[str]) -> str:
        fit = [machine for _, machine in self._machines() if machine.state is not InstanceState.TERMINATED]
        if not fit:
            return "none fits"
        machine = fit[int(which * len(fit))]
        marks.add(machine.id)
        await asyncio.sleep(seconds)
        marks.discard(machine.id)
        return machine.id

    async def _vanish(self, which: float) -> str:
        """EC2 no longer reports a terminated instance, as an hour after its end."""
        now = self._platform.ec2.time()
        fit = [
            machine
            for region in self._platform.ec2.regions.values()
            for machine in region.machines.values()
            if now - machine.launched_at > _SETTLED
        ]
        if not fit:
            return "none fits"
        machine = fit[int(which * len(fit))]
        machine.state, machine.due, machine.ended_at = InstanceState.TERMINATED, None, 0.0
        return machine.id
