"""Injects faults: each one begins at its time and is reverted after its duration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.faults.aws import HarmToAws
from tests.simulation.faults.cml import HarmToCml
from tests.simulation.faults.etcd import HarmToEtcd
from tests.simulation.invariants.during import HIBERNATING
from tests.simulation.script import NODES
from tests.simulation.world.network import LinkQuality

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.simulation.script import Event, Script
    from tests.simulation.world.platform import Platform

_NO_FAULT = LinkQuality()
_NEWER_PLANE_WRITES = 20.0  # seconds between two rounds of a newer control plane


class Adversary:
    """Starts and ends faults."""

    def __init__(self, platform: Platform, script: Script) -> None:
        self._platform = platform
        self._script = script
        self._aws = HarmToAws(platform)
        self._cml = HarmToCml(platform)
        self._etcd = HarmToEtcd(platform, self._start)
        self._hibernating: dict[str, str] = {}  # workers whose status only a newer version knows, and the one before

    async def do(self, event: Event) -> str:
        """Inject a fault; returns when it is reverted, or at once if there is nothing to revert."""
        name = "_" + event.kind.replace("-", "_")
        harm = next(each for each in (self, self._aws, self._cml, self._etcd) if hasattr(each, name))
        method: Callable[..., Awaitable[str | None]] = getattr(harm, name)
        return await method(**event.facts) or "done"

    async def heal(self) -> None:
        """End all faults and restart all dead processes."""
        platform = self._platform
        self._aws.heal()
        self._cml.heal()
        platform.network.deaf_to = ""
        for name in platform.nodes:
            platform.set_clock(name, 0.0)
        for worker_id in sorted(self._hibernating):
            self._wake(worker_id)
        for line in platform.network.lines():
            line.cut, line.quality, line.queueing = False, _NO_FAULT, 0.0
            line.break_watches()
        for node in platform.nodes.values():
            node.doomed_at = None
        if platform.nodes["plane"].dead:
            await platform.start_plane()
        for name in NODES:
            if platform.nodes[name].dead:
                await self._start(name)
        await self._etcd.heal()

    # Processes

    async def _crash(self, node: str, steps: int, down: float) -> str:
        victim = self._platform.nodes[node]
        if victim.dead:
            return "dead already"
        victim.doomed_at = victim.steps + 1 + steps
        while not victim.dead:
            await asyncio.sleep(0.5)
        await asyncio.sleep(down)
        await self._start(node)
        return f"{node} died and is back"

    async def _start(self, node: str) -> None:
        if self._platform.nodes[node].dead:
            await self._platform.start_controller(
                node, rate=self._script.rates[node], offset=self._script.offsets[node]
            )

    async def _crash_plane(self, steps: int, down: float) -> str:
        victim = self._platform.nodes["plane"]
        if victim.dead:
            return "dead already"
        victim.doomed_at = victim.steps + 1 + steps
        while not victim.dead:
            await asyncio.sleep(0.5)
        await asyncio.sleep(down)
        if self._platform.nodes["plane"].dead:
            await self._platform.start_plane()
        return "the control plane died and is back"

    async def _metadata_silent(self, node: str, seconds: float) -> str:
        """A host restarts, and its metadata service gives no credentials for a while."""
        self._platform.ec2.unauthenticated[node] = "NoCredentialsError"
        result = await self._crash(node, 0, 0.5)
        await asyncio.sleep(seconds)
        self._platform.ec2.unauthenticated.pop(node, None)
        return result

    async def _pause(self, node: str, seconds: float) -> None:
        self._platform.nodes[node].pause(seconds)

    async def _pause_plane(self, seconds: float) -> None:
        self._platform.nodes["plane"].pause(seconds)

    async def _clock_jump(self, hosts: Sequence[str], by: float, seconds: float) -> None:
        """The clock of a host is set, and later it is set right again."""
        for host in hosts:
            self._platform.set_clock(host, by)
        await asyncio.sleep(seconds)
        for host in hosts:
            self._platform.set_clock(host, 0.0)

    async def _newer_writes(self, which: float, seconds: float) -> str:
        """A control plane of the next version writes a record, sometimes with a status that only it knows."""
        records, disk = self._platform.ledger.records, self._platform.disk
        if not records:
            return "no record"
        worker_id = sorted(records)[int(which * len(records))]
        before = records[worker_id]["status"]
        if before == HIBERNATING or not disk.write_as_newer(worker_id, HIBERNATING if seconds else None):
            return "nothing to write"
        if seconds:
            self._hibernating[worker_id] = before
            await asyncio.sleep(seconds)
            self._wake(worker_id)
        return "written"

    async def _newer_plane(self, seconds: float) -> str:
        """A control plane of the next version runs beside ours: it adds fields to every record that it finds."""
        disk, written = self._platform.disk, 0
        until = self._platform.loop.now + seconds
        while self._platform.loop.now < until:
            written += disk.add_newer_fields()
            await asyncio.sleep(_NEWER_PLANE_WRITES)
        return f"{written} writes"

    def _wake(self, worker_id: str) -> None:
        before = self._hibernating.pop(worker_id, None)
        if before is not None:
            self._platform.disk.write_as_newer(worker_id, before)

    async def _resign(self, node: str) -> str:
        controller = self._platform.controllers.get(node)
        if controller is None or self._platform.nodes[node].dead:
            return "no such node"
        return f"resigned: {self._platform.nodes[node].call(controller.resign)}"

    # Lines

    async def _cut(self, line: tuple[str, str], seconds: float) -> None:
        broken = self._platform.network.line(*line)
        broken.cut = True
        await asyncio.sleep(seconds)
        broken.cut = False
        broken.break_watches()

    async def _flaky(self, line: tuple[str, str], seconds: float, there: float, back: float, slowest: float) -> None:
        bad = self._platform.network.line(*line)
        bad.quality = LinkQuality(there, back, slowest=slowest)
        await asyncio.sleep(seconds)
        bad.quality = _NO_FAULT

    async def _break_watches(self, node: str) -> None:
        self._platform.network.line(node, "etcd").break_watches()

    async def _deaf(self, part: str, seconds: float) -> None:
        self._platform.network.deaf_to = part
        await asyncio.sleep(seconds)
        self._platform.network.deaf_to = ""
