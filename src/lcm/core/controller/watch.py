"""Controllers that react to changes at once, with polling as the fallback."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.core.controller.follower import Follower
from lcm.core.controller.leader_election import LeaderElectedHostedService
from lcm.core.controller.reconciliation import ReconciliationResult, T
from lcm.core.coordination import Coordination, EventKind, Listing, WatchEvent
from lcm.core.hosting import wait_for_event
from lcm.core.workqueue import Priority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
    from lcm.core.controller.resources import ResourceState


V = TypeVar("V")


class Debouncer(Generic[V]):
    """Passes the first change of a key on at once, and the latest of those within the window at its end.

    There is one window per key, so that a busy key does not delay another.
    """

    def __init__(self, window: float, sink: Callable[[str, V], None]) -> None:
        self._window = window
        self._sink = sink
        self._open: dict[str, asyncio.TimerHandle] = {}
        self._pending: dict[str, V] = {}

    def touch(self, key: str, value: V) -> None:
        """Pass the change on now, or at the end of the window that an earlier one opened."""
        if key in self._open:
            self._pending[key] = value
            return
        self._pass_on(key, value)

    def cancel(self) -> None:
        """Drop pending changes and close all windows."""
        for timer in self._open.values():
            timer.cancel()
        self._open.clear()
        self._pending.clear()

    def _pass_on(self, key: str, value: V) -> None:
        if self._window > 0:
            self._open[key] = asyncio.get_running_loop().call_later(self._window, self._close, key)
        self._sink(key, value)

    def _close(self, key: str) -> None:
        del self._open[key]
        if key in self._pending:
            self._pass_on(key, self._pending.pop(key))


log = structlog.get_logger(__name__)

SWEEP_CHECK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ReportedChange:
    """What a watched key says: which state is desired, and the version of the resource."""

    generation: int | None = None
    version: int | None = None


def _number_in(event: WatchEvent, name: str) -> int | None:
    if event.kind is EventKind.DELETE:
        return None
    try:
        number = json.loads(event.value)[name]
    except (ValueError, TypeError, KeyError):
        return None
    return number if isinstance(number, int) else None


class WatchTriggeredHostedService(LeaderElectedHostedService[T]):
    """While it leads, it watches a prefix, reconciles every resource once (startup sweep), and then polls."""

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
        self._debouncer: Debouncer[ReportedChange] = Debouncer(watch.debounce_seconds, self._changed)
        self._changed_in_pass: dict[str, ReportedChange] = {}
        self._follower: Follower | None = None

    # For subclasses

    def parse_watch_key(self, key: str) -> str | None:
        """The id of the resource that a watched key belongs to, or None."""
        resource_id = key.removeprefix(self.watch.prefix)
        return resource_id if resource_id and "/" not in resource_id else None

    def accept_event(self, event: WatchEvent) -> bool:
        """Whether a change is relevant for this controller."""
        return True

    def event_generation(self, event: WatchEvent) -> int | None:
        """The generation in a change; None (also for a deletion) always queues the resource."""
        return _number_in(event, "generation")

    def event_version(self, event: WatchEvent) -> int | None:
        """The version of the resource after a change; None for a change that no pass can have seen."""
        return _number_in(event, "version")

    def start_leader_loops(self) -> None:
        """Start the controller's own loops with `_spawn_loop`: after the watch, before the startup sweep."""

    async def on_startup_sweep_done(self) -> None:
        """Called once every resource was verified in this term."""

    def may_end_sweep_without(self, unverified: Sequence[str]) -> bool:
        """Whether these cannot be verified for now, so that the startup sweep need not wait for them any longer."""
        return False

    @property
    def watching(self) -> bool:
        """Whether the watch is connected; if not, polling finds changes."""
        return self._follower is not None and self._follower.connected

    # The order when leadership is won: watch, own loops, startup sweep, then polling

    def _start_loops(self) -> None:
        self._sweep_remaining = None
        self._sweep_listed.clear()
        self._sweep_passed.clear()
        self._startup_sweep_active = self.config.startup_reconcile_enabled
        if self.watch.enabled:
            self._follower = Follower(
                self.coordination,
                self.watch.prefix,
                on_list=self._on_first_list,
                on_change=self._on_event,
                on_lost=self._on_watch_lost,
                reconnect_delay=self.watch.reconnect_delay,
                max_reconnect_attempts=self.watch.max_reconnect_attempts,
            )
            self._spawn_loop("watch", self._follower.run)
        self.start_leader_loops()
        self._spawn_loop("startup-sweep", self._startup_reconcile_sweep)

    def _first_poll_delay(self) -> float | None:
        if self._startup_sweep_active:
            return self.config.startup_sweep_delay
        return super()._first_poll_delay()

    async def _abort(self) -> None:
        self._debouncer.cancel()
        await super()._abort()
        self._debouncer.cancel()  # an event may have arrived while the watch was stopping
        self._changed_in_pass.clear()
        self._follower = None
        self._startup_sweep_active = False

    # Events

    def _on_first_list(self, _: Listing) -> None:
        """A list of resources after this one shows all earlier changes; if none is due, request one."""
        if self._polled or self._first_poll_delay() is None:
            self._poll_now.set()

    def _on_watch_lost(self) -> None:
        self._families.reconnects.labels(self.name).inc()
        self._copies.clear()  # changes may be reported late from now on

    def _learns_of_changes(self) -> bool:
        return self.watching and self.config.polling_enabled

    def _on_event(self, event: WatchEvent) -> None:
        resource_id = self.parse_watch_key(event.key)
        if resource_id is not None and self.accept_event(event):
            self._copies.invalidate(resource_id)
            change = ReportedChange(self.event_generation(event), self.event_version(event))
            self._debouncer.touch(resource_id, change)

    def _changed(self, resource_id: str, change: ReportedChange) -> None:
        """Queue a resource, unless the change is one that a pass has read or made itself."""
        state = self._schedule.states.get(resource_id)
        if state is not None and state.version is not None and change.version is not None:
            if change.version <= state.version:
                return
            if self.queue.is_busy(resource_id):
                # It may be a write of this pass, which only its end will tell.
                state.note_generation(change.generation)
                self._changed_in_pass[resource_id] = change
                return
        self._schedule.enqueue(resource_id, change.generation, Priority.HIGH)

    def _finish(self, key: str, state: ResourceState, result: ReconciliationResult | None) -> None:
        super()._finish(key, state, result)
        change = self._changed_in_pass.pop(key, None)
        if change is not None:
            self._changed(key, change)

    # The startup sweep

    async def _startup_reconcile_sweep(self) -> None:
        """Wait until each resource of the term's first list had a pass that did not fail.

        A sweep that is switched off counts as done with that list: others wait for it.
        """
        await self._sweep_listed.wait()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.startup_sweep_timeout
        while not self._sweep_passed.is_set():
            left = sorted(self._sweep_remaining or ())
            if loop.time() >= deadline or self.may_end_sweep_without(left):
                log.warning("startup sweep incomplete", controller=self.name, unverified=len(left), examples=left[:5])
                break
            await wait_for_event(self._sweep_passed, min(SWEEP_CHECK_SECONDS, deadline - loop.time()))
        self._startup_sweep_active = False
        await self.on_startup_sweep_done()
        log.info("startup sweep done", controller=self.name, term=self.term)

    async def _process_listing(self, resources: Sequence[T]) -> None:
        if self._sweep_remaining is None:  # before the first pass can end
            verified = resources if self._startup_sweep_active else ()
            self._sweep_remaining = {self.get_resource_id(resource) for resource in verified}
            self._sweep_listed.set()
            self._check_sweep_done()
        await super()._process_listing(resources)

    def _on_pass_done(self, key: str, result: ReconciliationResult) -> None:
        super()._on_pass_done(key, result)
        if self._sweep_remaining is not None:
            self._sweep_remaining.discard(key)
            self._check_sweep_done()

    def _check_sweep_done(self) -> None:
        if not self._sweep_remaining:
            self._sweep_passed.set()
