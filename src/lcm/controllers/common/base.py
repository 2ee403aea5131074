"""Writes to the control plane in the name of a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

import structlog

from lcm.client.base import Leader
from lcm.client.errors import ClientError, StaleLeaderError
from lcm.core.controller.leader_election import StaleTermError
from lcm.core.controller.resources import ReconciliationResult
from lcm.core.controller.watch import WatchTriggeredHostedService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client import CollectorRegistry

    from lcm.client.client import Client
    from lcm.core.controller.leader_election import LeaderElectionConfig
    from lcm.core.controller.resources import ReconciliationConfig
    from lcm.core.controller.watch import WatchConfig
    from lcm.core.coordination import Coordination


R = TypeVar("R")


async def as_stale_term(write: Awaitable[R]) -> R:
    """The answer to a write; a newer leader is told in the words of the election."""
    try:
        return await write
    except StaleLeaderError as error:
        raise StaleTermError(str(error)) from error


T = TypeVar("T")
log = structlog.get_logger(__name__)


class Controller(WatchTriggeredHostedService[T]):
    """It watches coordination, and lists, reads and writes through the control plane in the name of its term."""

    foreseen: ClassVar[tuple[type[Exception], ...]] = (ClientError,)
    """What others could not do for us: no riddle, so it is told in a line, once, and tried again."""

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
        await as_stale_term(self.internal.announce_leadership(Leader(self.name, term)))

    async def on_startup_sweep_done(self) -> None:
        """Others may know."""
        await as_stale_term(self.internal.announce_leadership(self._leader(), startup_sweep_done=True))

    def _leader(self) -> Leader:
        return Leader(self.name, self.term)

    def _failed(self, key: str, error: Exception) -> ReconciliationResult:
        if not isinstance(error, self.foreseen):
            return super()._failed(key, error)
        reason = f"{type(error).__name__}: {error}"
        state = self.resource_states.get(key)
        if state is None or state.last_error != reason:
            log.warning("pass not finished; trying again", controller=self.name, resource=key, error=reason)
        return ReconciliationResult.retry(reason)

    async def _effect_outside_pass(self, key: str, call: Callable[[], Awaitable[R]]) -> R:
        """A call that changes the world and belongs to no pass; it starts only while we surely lead."""
        limit = self._max_effect_seconds()
        self._check_may_act(limit)
        return await self._effects.run(key, call, limit)

    async def _step_down_if_stale(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop of the leader; whoever learns there of a newer term steps down."""
        try:
            await loop()
        except StaleTermError as refusal:
            self.step_down(refusal)
        except StaleLeaderError as refusal:
            self.step_down(StaleTermError(str(refusal)))
