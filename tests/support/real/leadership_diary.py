"""A controller for processes under test: it logs every time at which it believed to lead, and each action."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

from lcm.core import clock
from lcm.core.controller.reconciliation import ReconciliationResult
from lcm.core.controller.watch import WatchTriggeredHostedService

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.wiring.controllers import ControllerRuntime

_EVERY = 0.02


class Diarist(WatchTriggeredHostedService[str]):
    """Reconciles keys under /tasks/ by writing a line about each. The diary's path is in DIARY."""

    def __init__(self, runtime: ControllerRuntime) -> None:
        super().__init__(
            runtime.coordination, runtime.election("diarist"), runtime.watch("/tasks/"), runtime.reconciliation
        )
        self._diary = open(os.environ["DIARY"], "a", buffering=1, encoding="utf-8")  # noqa: SIM115, PTH123 - for life

    def _write(self, what: str, checked_at: float, term: int, **facts: object) -> None:
        self._diary.write(json.dumps({"what": what, "at": checked_at, "term": term, **facts}) + "\n")

    async def start(self) -> None:
        await super().start()
        self._spawn(self._keep_diary(), "diary")

    async def _keep_diary(self) -> None:
        """The time is taken before the check: a stop between the two must not count as an error."""
        while True:
            checked_at = clock.boottime()
            term = self.term
            if term:
                self._write("leads", checked_at, term)
            await asyncio.sleep(_EVERY)

    async def list_resources(self) -> Sequence[str]:
        listing = await self.coordination.list_prefix("/tasks/")
        return [item.key.removeprefix("/tasks/") for item in listing.items]

    async def fetch_single_resource(self, resource_id: str) -> str | None:
        item = await self.coordination.get(f"/tasks/{resource_id}")
        return resource_id if item else None

    async def reconcile_resource(self, resource: str) -> ReconciliationResult:
        async def act() -> None:
            self._write("acts", checked_at, self.term, task=resource)

        checked_at = clock.boottime()
        await self.effect(act)
        return ReconciliationResult.success()

    def get_resource_id(self, resource: str) -> str:
        return resource
