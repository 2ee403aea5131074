"""The first change of a key passes at once; what follows within the window is gathered into one at its end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.core.controller.follower import Follower
from lcm.core.controller.leader_election import LeaderElectedHostedService, LeaderElectionConfig
from lcm.core.controller.reconciliation import ReconciliationConfig, ReconciliationResult, T
from lcm.core.coordination import Coordination, EventKind, Listing, WatchEvent
from lcm.core.workqueue import Priority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


V = TypeVar("V")


class Debouncer(Generic[V]):
    """One window per key, so that one busy key does not delay another. Of what is gathered the latest value counts."""

    def __init__(self, window: float, sink: Callable[[str, V], None]) -> None:
        self._window = window
        self._sink = sink
        self._open: dict[str, asyncio.TimerHandle] = {}
        self._gathered: dict[str, V] = {}

    def touch(self, key: str, value: V) -> None:
        """Pass the change on now, or at the end of the window that an earlier one opened."""
        if key in self._open:
            self._gathered[key] = value
            return
        self._pass_on(key, value)

    def cancel(self) -> None:
        """Forget what was gathered and close all windows."""
        for timer in self._open.values():
            timer.cancel()
        self._open.clear()
        self._gathered.clear()

    def _pass_on(self, key: str, value: V) -> None:
        if self._window > 0:
            self._open[key] = asyncio.get_running_loop().call_later(self._window, self._close, key)
        self._sink(key, value)

    def _close(self, key: str) -> None:
        del self._open[key]
        if key in self._gathered:
            self._pass_on(key, self._gathered.pop(key))


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """What to watch and how to come back when the stream is lost."""

    enabled: bool = True
    prefix: str = ""
    reconnect_delay: float = 1.0
    max_reconnect_attempts: int = 10
    debounce_seconds: float = 0.5


class WatchTriggeredHostedService(LeaderElectedHostedService[T]):
    """While it leads, it watches a prefix, verifies everything once, and then polls."""

    def __init__(
        self,
        coordination: Coordination,
        election: LeaderElectionConfig,
        watch: WatchConfig,
        config: ReconciliationConfig | None = None,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(coordination, election, config, registry=registry)
        self.watch = watch
        self._startup_sweep_active = False
        self._sweep_remaining: set[str] | None = None  # None: not listed yet
        self._sweep_listed = asyncio.Event()
        self._sweep_passed = asyncio.Event()
        self._debouncer: Debouncer[int | None] = Debouncer(watch.debounce_seconds, self._changed)
        self._follower: Follower | None = None

    # For subclasses

    def parse_watch_key(self, key: str) -> str | None:
        """The resource a watched key is about, or None for a key that is nobody's."""
        resource_id = key.removeprefix(self.watch.prefix)
        return resource_id if resource_id and "/" not in resource_id else None

    def accept_event(self, event: WatchEvent) -> bool:
        """Whether a change is of interest to this controller."""
        return True

    def event_generation(self, event: WatchEvent) -> int | None:
        """The generation a change tells of; None (also for a deletion) always wakes the resource."""
        if event.kind is EventKind.DELETE:
            return None
        try:
            generation = json.loads(event.value)["generation"]
        except (ValueError, TypeError, KeyError):
            return None
        return generation if isinstance(generation, int) else None

    def start_leader_loops(self) -> None:
        """Start loops of the controller's own with `_spawn_loop`: they run after the watch, before the start-up sweep."""

    async def on_startup_sweep_done(self) -> None:
        """Every resource has been verified once in this term."""

    @property
    def watching(self) -> bool:
        """Whether changes arrive as they happen; if not, polling finds them."""
        return self._follower is not None and self._follower.connected

    # The order of taking office: watch, own loops, start-up sweep, then polling

    def _start_loops(self) -> None:
        self._sweep_remaining = None
        self._sweep_listed.clear()
        self._sweep_passed.clear()
        self._startup_sweep_active = self.config.startup_reconcile_enabled
        if self.watch.enabled:
            self._follower = Follower(
                self.coordination,
                self.watch.prefix,
                listed=self._on_first_list,
                changed=self._on_event,
                lost=self._families.reconnects.labels(self.name).inc,
                reconnect_delay=self.watch.reconnect_delay,
                max_reconnect_attempts=self.watch.max_reconnect_attempts,
            )
            self._spawn_loop("watch", self._follower.run)
        self.start_leader_loops()
        if self._startup_sweep_active:
            self._spawn_loop("startup-sweep", self._startup_reconcile_sweep)

    def _first_poll_delay(self) -> float | None:
        if self._startup_sweep_active:
            return self.config.startup_sweep_delay
        return super()._first_poll_delay()

    async def _abort(self) -> None:
        self._debouncer.cancel()
        await super()._abort()
        self._debouncer.cancel()  # an event may have come in while the watch was being stopped
        self._follower = None
        self._startup_sweep_active = False

    # Events

    def _on_first_list(self, _: Listing) -> None:
        """What changed before this list is found by listing the resources after it; if none is to come, ask for one."""
        if self._polled or self._first_poll_delay() is None:
            self._poll_now.set()

    def _on_event(self, event: WatchEvent) -> None:
        resource_id = self.parse_watch_key(event.key)
        if resource_id is not None and self.accept_event(event):
            self._invalidate(resource_id)
            self._debouncer.touch(resource_id, self.event_generation(event))

    def _changed(self, resource_id: str, generation: int | None) -> None:
        self._wake(resource_id, generation, Priority.HIGH)

    # The start-up sweep

    async def _startup_reconcile_sweep(self) -> None:
        """Wait until each resource of the term's first list has had a pass that did not fail, then say so."""
        await self._sweep_listed.wait()
        try:
            async with asyncio.timeout(self.config.startup_sweep_timeout):
                await self._sweep_passed.wait()
        except TimeoutError:
            left = sorted(self._sweep_remaining or ())
            log.warning("start-up sweep ends with some unverified", controller=self.name, left=len(left), some=left[:5])
        self._startup_sweep_active = False
        await self.on_startup_sweep_done()
        log.info("start-up sweep done", controller=self.name, term=self.term)

    def _take_in(self, resources: Sequence[T]) -> None:
        super()._take_in(resources)
        if self._startup_sweep_active and self._sweep_remaining is None:
            self._sweep_remaining = {self.get_resource_id(resource) for resource in resources}
            self._sweep_listed.set()
            self._check_sweep_done()

    def _passed(self, key: str, result: ReconciliationResult) -> None:
        super()._passed(key, result)
        if self._sweep_remaining is not None:
            self._sweep_remaining.discard(key)
            self._check_sweep_done()

    def _check_sweep_done(self) -> None:
        if not self._sweep_remaining:
            self._sweep_passed.set()
