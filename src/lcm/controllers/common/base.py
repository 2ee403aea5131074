"""The base class of the platform's controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from lcm.client.base import Leader
from lcm.client.errors import ClientError
from lcm.core.controller.leader_election import StaleTermError
from lcm.core.controller.watch import WatchTriggeredHostedService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client import CollectorRegistry

    from lcm.client.client import Client
    from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
    from lcm.core.coordination import Coordination

R = TypeVar("R")
T = TypeVar("T")


class Controller(WatchTriggeredHostedService[T]):
    """Watches coordination, and reads and writes records through the control plane under its term."""

    expected_errors: ClassVar[tuple[type[Exception], ...]] = (ClientError,)

    def __init__(
        self,
        coordination: Coordination,
        election: LeaderElectionConfig,
        watch: WatchConfig,
        config: ReconciliationConfig,
        control: Client,
        registry: CollectorRegistry,
    ) -> None:
        super().__init__(coordination, election, watch, config, registry=registry)
        self.internal = control.internal

    async def announce_leadership(self, term: int) -> None:
        """Announce the term, before anything is listed."""
        await self.internal.announce_leadership(Leader(self.name, term))

    async def on_startup_sweep_done(self) -> None:
        """Report to the control plane that the startup sweep is done."""
        await self.internal.announce_leadership(self._leader(), startup_sweep_done=True)

    def _leader(self) -> Leader:
        return Leader(self.name, self.term)

    async def _effect_outside_pass(self, key: str, call: Callable[[], Awaitable[R]]) -> R:
        """Make a call with an external effect outside a pass; it starts only while the lease outlasts its deadline."""
        return await self._effects.run(key, call, self.authorize())

    async def _step_down_if_stale(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop of the leader; step down if it learns of a newer term."""
        try:
            await loop()
        except StaleTermError as error:
            self.step_down(error)
