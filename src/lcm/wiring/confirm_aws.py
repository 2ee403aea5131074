"""Confirmation before the first change to a real account: shows its state and the planned changes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from lcm.client.errors import ClientError
from lcm.controllers.worker.discovery.importer import DiscoveryCriteria, find_candidates
from lcm.core import clock
from lcm.core.hosting import HostedService, cancel_and_wait
from lcm.model.worker.record import Hold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.client.client import Client
    from lcm.controllers.worker.controller import WorkerReconciler

log = structlog.get_logger(__name__)

_POLL_SECONDS: Final = 0.5
_POLL_TIMEOUT: Final = 120.0
_DECISION_REPORT_DELAY: Final = 2.5


@dataclass(frozen=True, slots=True)
class RegionPreview:
    """The current state of a region."""

    region: str
    account_id: str
    instances: int
    workers: int
    importable: tuple[str, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AccountPreview:
    """The current state of all regions, and the planned changes."""

    regions: tuple[RegionPreview, ...]
    planned: tuple[str, ...]


class ConfirmBeforeChanges(HostedService):
    """Holds the controller until a person has seen its plan and has confirmed it.

    `ask` shows the plan and returns the answer; `refused` is called after a no.
    """

    def __init__(
        self,
        reconciler: WorkerReconciler,
        control: Client,
        ask: Callable[[AccountPreview], Awaitable[bool]],
        refused: Callable[[], None],
    ) -> None:
        super().__init__("question")
        self._reconciler = reconciler
        self._control = control
        self._ask = ask
        self._refused = refused
        self._asking: asyncio.Task[None] | None = None
        reconciler.cache.local_hold = Hold(reason="waiting for confirmation", by="lcm up", since=clock.now())

    async def start(self) -> None:
        self._asking = self._spawn(self._ask_once(), "ask")

    async def stop(self) -> None:
        if self._asking is not None:
            await cancel_and_wait([self._asking])

    async def _ask_once(self) -> None:
        if not await self._ask(await self._look()):
            log.info("not confirmed; no changes made")
            self._refused()
            return
        self._reconciler.cache.local_hold = None
        self._reconciler.trigger()

    async def _look(self) -> AccountPreview:
        """Wait, up to a limit, until every worker was evaluated once and every region was scanned."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _POLL_TIMEOUT
        while loop.time() < until and not self._seen():  # noqa: ASYNC110 - several parts have to be there
            await asyncio.sleep(_POLL_SECONDS)
        await asyncio.sleep(_DECISION_REPORT_DELAY)
        return AccountPreview(
            tuple(self._region(name) for name in self._reconciler.regions), await self._planned_changes()
        )

    def _seen(self) -> bool:
        swept = all(watch.region_cache.latest is not None for watch in self._reconciler.regions.values())
        return swept and self._reconciler.startup_sweep_done

    def _region(self, name: str) -> RegionPreview:
        region_cache, workers = self._reconciler.regions[name].region_cache, self._reconciler.cache.in_region(name)
        sweep = region_cache.latest
        if sweep is None:
            return RegionPreview(name, "", 0, len(workers), (), "it could not be scanned")
        settings = self._reconciler.cache.settings
        criteria = DiscoveryCriteria.of(None if settings is None else settings.discovery)
        fitting = find_candidates(sweep.instances.values(), workers, criteria, self._reconciler.installation)
        names = tuple(instance.tags.get("Name") or instance.id for instance in fitting)
        return RegionPreview(name, sweep.account_id, len(sweep.instances), len(workers), names, sweep.error)

    async def _planned_changes(self) -> tuple[str, ...]:
        try:
            plan = [item async for item in self._control.fleet.plan()]
        except ClientError as error:
            return (f"the plan cannot be read: {error}",)
        return tuple(f"{item.name}: {item.summary}" for item in plan if item.on_hold)
