"""Faults of etcd as a whole: an outage, a compaction, and its replacement by an empty one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from lcm.client.errors import ClientError, NotFoundError
from lcm.model.access import Role
from tests.simulation.invariants.control_plane import missing_keys
from tests.simulation.script import NODES
from tests.simulation.world.platform import SERVICES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.simulation.world.platform import Platform

_LATE_WRITES = 40.0
"""Seconds after which no write of a controller that was killed arrives any more."""
_MIRRORED_WITHIN = 30


class HarmToEtcd:
    """Injects faults into etcd."""

    def __init__(self, platform: Platform, start_controller: Callable[[str], Awaitable[None]]) -> None:
        self._platform = platform
        self._start = start_controller
        self._to_reset: set[str] = set()

    async def heal(self) -> None:
        """Do what an operator still has to do."""
        await self._reset_leaderships()

    async def _etcd_outage(self, seconds: float) -> None:
        lines = [self._platform.network.line(node, "etcd") for node in (*NODES, "plane")]
        for line in lines:
            line.cut = True
        await asyncio.sleep(seconds)
        for line in lines:
            line.cut = False
            line.break_watches()

    async def _compact(self, which: float) -> str | None:
        state = self._platform.etcd.state
        with suppress(ValueError):
            self._platform.etcd.do(state.compact, state.revision)
            return None
        return "nothing to compact"

    async def _replace_etcd(self, down: float, revision: int, *, same_id: bool) -> str:
        """Controllers are stopped, as operators are told. The control plane goes on and sees another etcd at once."""
        for node in NODES:
            self._platform.nodes[node].kill()
        self._platform.etcd.replace(revision=revision, same_id=same_id)
        for line in self._platform.network.lines():
            line.break_watches()
        if revision == 1:
            self._to_reset = set(SERVICES.values())
        filled = await self._expect_keys()
        await asyncio.sleep(down)
        for node in NODES:
            await self._start(node)
        await asyncio.sleep(_LATE_WRITES)
        await self._reset_leaderships()
        return f"replaced; {filled}"

    async def _expect_keys(self) -> str:
        """The control plane must fill the new etcd soon, unless it is disturbed meanwhile."""
        platform = self._platform
        plane, line = platform.nodes["plane"], platform.network.line("plane", "etcd")
        expected = {each["id"] for each in platform.ledger.records.values()}
        for _ in range(_MIRRORED_WITHIN):
            await asyncio.sleep(1)
            if line.cut or plane.dead or plane.paused_until is not None:
                return "the control plane was disturbed"
        if missing := missing_keys(platform, expected):
            platform.ledger.violated(
                f"{_MIRRORED_WITHIN} s after etcd was replaced {len(missing)} workers have no key: {missing[:3]}"
            )
        return "filled again"

    async def _reset_leaderships(self) -> None:
        """`lcm leadership reset`: the terms of an etcd that counts from the beginning are too low."""
        client = self._platform.client("people", Role.ADMIN)
        for service in sorted(self._to_reset):
            while True:
                try:
                    with suppress(NotFoundError):
                        await client.fleet.reset_leadership(service)
                    break
                except ClientError:
                    await asyncio.sleep(1)
        self._to_reset = set()
