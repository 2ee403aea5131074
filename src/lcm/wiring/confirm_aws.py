"""Looking before acting on a real account: what is there, what would be done, and whether a person wants that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from lcm.client.errors import ClientError
from lcm.controllers.worker.decide.shared.hold import HELD_RULE
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
    """What a look at a region showed."""

    region: str
    account_id: str
    instances: int
    workers: int
    importable: tuple[str, ...]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class AccountPreview:
    """What is there, and what would be done now."""

    regions: tuple[RegionPreview, ...]
    would: tuple[str, ...]


class ConfirmBeforeChanges(HostedService):
    """Holds the controller still until a person has seen what it would do and has said yes.

    `ask` shows it and gives the answer; `refused` is called after a no.
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
        reconciler.known.local_hold = Hold(reason="nobody has said yes yet", by="lcm up", since=clock.now())

    async def start(self) -> None:
        self._asking = self._spawn(self._ask_once(), "ask")

    async def stop(self) -> None:
        if self._asking is not None:
            await cancel_and_wait([self._asking])

    async def _ask_once(self) -> None:
        if not await self._ask(await self._look()):
            log.info("not wanted: nothing was changed")
            self._refused()
            return
        self._reconciler.known.local_hold = None
        self._reconciler.trigger()

    async def _look(self) -> AccountPreview:
        """Wait until every worker was looked at once and each region was swept, or for as long as is decent."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _POLL_TIMEOUT
        while loop.time() < until and not self._seen():  # noqa: ASYNC110 - several parts have to be there
            await asyncio.sleep(_POLL_SECONDS)
        await asyncio.sleep(_DECISION_REPORT_DELAY)
        return AccountPreview(tuple(self._region(name) for name in self._reconciler.regions), await self._would())

    def _seen(self) -> bool:
        swept = all(watch.observer.latest is not None for watch in self._reconciler.regions.values())
        return swept and self._reconciler.startup_sweep_done

    def _region(self, name: str) -> RegionPreview:
        observer, workers = self._reconciler.regions[name].observer, self._reconciler.known.in_region(name)
        sweep = observer.latest
        if sweep is None:
            return RegionPreview(name, "", 0, len(workers), (), "it could not be looked at")
        settings = self._reconciler.known.settings
        criteria = DiscoveryCriteria.of(None if settings is None else settings.discovery)
        fitting = find_candidates(sweep.instances.values(), workers, criteria, self._reconciler.installation)
        names = tuple(instance.tags.get("Name") or instance.id for instance in fitting)
        return RegionPreview(name, sweep.account_id, len(sweep.instances), len(workers), names, sweep.trouble)

    async def _would(self) -> tuple[str, ...]:
        try:
            plan = [item async for item in self._control.fleet.plan()]
        except ClientError as error:
            return (f"the plan cannot be read: {error}",)
        return tuple(
            f"{item.name}: {item.decision.reason.partition('it would: ')[2]}"
            for item in plan
            if item.decision is not None and item.decision.rule == HELD_RULE
        )
