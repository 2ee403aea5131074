"""Reconciling resources towards their desired state: many in parallel, never one resource twice at once.

Every trigger (polling, a watch, a timer) only adds a key to the queue; workers take keys, read the current state of the
resource and reconcile it. There is no cycle to wait for: a slow resource delays only itself.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextvars import ContextVar
from functools import partial
from math import inf
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError, SendAuthorization
from lcm.core.controller.config import ReconciliationConfig
from lcm.core.controller.effects import EffectTracker
from lcm.core.controller.listed_copies import ListedCopies
from lcm.core.controller.metrics import controller_metrics
from lcm.core.controller.pass_schedule import PassSchedule
from lcm.core.controller.resources import Outcome, ReconciliationResult, ResourceState, ResourceStatus
from lcm.core.controller.turns import Turns
from lcm.core.hosting import HostedService, cancel_and_wait, keep_running, wait_for_event
from lcm.core.workqueue import Priority

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from datetime import datetime

T = TypeVar("T")
R = TypeVar("R")
log = structlog.get_logger(__name__)

__all__ = [
    "Outcome",
    "ReconciliationConfig",
    "ReconciliationHostedService",
    "ReconciliationResult",
    "ResourceState",
    "ResourceStatus",
]

STOP_GRACE_SECONDS = 5.0
_QUEUED_AT_ONCE = 500


_CHANGES_LANE = ReconciliationResult.requeue("continues in its lane")
_current_key: ContextVar[str | None] = ContextVar("lcm_reconciled_key", default=None)


class ReconciliationHostedService(HostedService, Generic[T]):
    """Polls for resources and reconciles each. Subclasses define the resources and how to reconcile them."""

    expected_errors: ClassVar[tuple[type[Exception], ...]] = ()
    """Failures of other services: logged in one line, without a traceback, and retried."""

    def __init__(
        self, name: str, config: ReconciliationConfig | None = None, *, registry: CollectorRegistry = REGISTRY
    ) -> None:
        super().__init__(name)
        self.config = config or ReconciliationConfig()
        self._schedule = PassSchedule(self.config, lane_of=self.lane_of, group_of=self.group_of)
        self.queue = self._schedule.queue
        self.last_reconciliation: datetime | None = None
        self._backoff = self.config.backoff
        self._copies: ListedCopies[T] = ListedCopies()
        self._effects = EffectTracker()
        self._turns = Turns()
        self._workers: list[asyncio.Task[None]] = []
        self._loops: list[asyncio.Task[None]] = []
        self._late_finishes: set[asyncio.Task[None]] = set()
        self._poll_now = asyncio.Event()
        self._polled = False  # whether a list was started since this process began to act
        self._epoch = 0  # incremented when this process stops acting; results of an earlier epoch are ignored
        self._list_error = ""
        self.listed_at: datetime | None = None  # when all resources were last listed, and how long that took
        self.listing_seconds: float | None = None
        self._registry = registry
        self._families = controller_metrics(self.config.metric_prefix, registry)
        self._families.attach(self)
        self._duration = self._families.duration.labels(name)
        self._totals = {outcome: self._families.reconciles.labels(name, outcome.value) for outcome in Outcome}

    # Implemented by a controller

    @abstractmethod
    async def list_resources(self) -> Sequence[T]:
        """All resources that may need a pass."""

    @abstractmethod
    async def fetch_single_resource(self, resource_id: str) -> T | None:
        """The current state of one resource, or None if it is gone."""

    @abstractmethod
    async def reconcile_resource(self, resource: T) -> ReconciliationResult:
        """Bring one resource closer to its desired state. It must be idempotent: it may be called at any time."""

    @abstractmethod
    def get_resource_id(self, resource: T) -> str:
        """The key of a resource."""

    def get_generation(self, resource: T) -> int | None:
        """A number that changes with the desired state; such a change ends a backoff."""
        return None

    def get_version(self, resource: T) -> int | None:
        """A number that grows with every change of a resource; a pass makes reports of earlier changes obsolete."""
        return None

    @property
    def lanes(self) -> Sequence[str]:
        """The lanes, besides the one without a name. Each has `max_concurrent` slots for passes of its own."""
        return ()

    def lane_of(self, resource_id: str) -> str:
        """The lane of a resource, as far as it is known; empty for one that was not read yet."""
        return ""

    def group_of(self, resource_id: str) -> str:
        """The group of a resource, as far as it is known. A group takes only a part of the slots, an empty name any."""
        return ""

    # Lifecycle

    async def start(self) -> None:
        """Start to poll and reconcile."""
        self._start_acting()

    async def stop(self) -> None:
        """Take no more keys, let running passes finish within the grace period, then end."""
        await self._drain_and_stop(STOP_GRACE_SECONDS)

    @property
    def is_leader(self) -> bool:
        """Whether this process may act; always true without an election."""
        return True

    @property
    def term(self) -> int:
        """The leader's term; 0 without an election."""
        return 0

    @property
    def resource_states(self) -> dict[str, ResourceState]:
        """The reconciliation state of each resource, for display."""
        return self._schedule.states

    def trigger(self, resource_id: str | None = None) -> None:
        """Reconcile one resource, or all, as soon as possible, ending any backoff."""
        if resource_id is None:
            self._schedule.end_all_backoffs()
            self._poll_now.set()
            return
        self._copies.invalidate(resource_id)
        self._schedule.enqueue_now(resource_id)

    def authorize(self, timeout: float | None = None) -> SendAuthorization:
        """Authorize one call with an external effect, if this process may act until the call's deadline.

        Authorize before reading what the call is based on: then no call is based on anything older than its limit.
        """
        limit = self._max_effect_seconds() if timeout is None else min(timeout, self._max_effect_seconds())
        return SendAuthorization(clock.boottime(), limit, self._prove_may_act(limit))

    async def effect(
        self,
        call: Callable[[], Awaitable[R]],
        *,
        timeout: float | None = None,
        authorization: SendAuthorization | None = None,
    ) -> R:
        """Make a call with an external effect, once, from within a pass; by default it is authorized now.

        The deadline ends the waiting, not the call: the key stays busy until the call has really ended.
        """
        key = _current_key.get()
        if key is None:
            raise RuntimeError("an effect belongs to a pass: call it from reconcile_resource")
        return await self._effects.run(key, call, authorization or self.authorize(timeout))

    def _max_effect_seconds(self) -> float:
        return self.config.reconcile_timeout

    def _prove_may_act(self, limit: float) -> Callable[[], float]:
        """Raise if this process may not act for the next `limit` seconds. The result says for how long it still may."""
        return lambda: inf

    # Listing resources

    async def _poll_loop(self) -> None:
        """List and queue all resources every `interval_seconds`; a failed list is retried with growing delays."""
        loop = asyncio.get_running_loop()
        pause = self._first_poll_delay()
        failures = 0
        while True:
            await wait_for_event(self._poll_now, pause)
            self._poll_now.clear()
            began = loop.time()
            if not await self._poll_once():
                pause = min(self._backoff.delay(failures), self.config.interval_seconds)
                failures += 1
            else:
                failures = 0
                pause = self.config.interval_seconds - (loop.time() - began) if self.config.polling_enabled else None

    def _first_poll_delay(self) -> float | None:
        """Seconds until the first list; None: only on request."""
        return self.config.initial_delay if self.config.polling_enabled else None

    async def _poll_once(self) -> bool:
        self._polled = True
        self._copies.begin_list()
        began = clock.boottime()
        try:
            async with asyncio.timeout(self.config.reconcile_timeout):
                resources = await self.list_resources()
            self.listed_at, self.listing_seconds = clock.now(), clock.boottime() - began
            await self._process_listing(resources)
        except Exception as error:  # noqa: BLE001 - a list may fail in any way; polling goes on
            self._log_list_state(str(error) or type(error).__name__)
            return False
        finally:
            self._copies.end_list()
        self._log_list_state("")
        return True

    async def _process_listing(self, resources: Sequence[T]) -> None:
        listed = {self.get_resource_id(resource): resource for resource in resources}
        self._copies.replace(listed)
        for number, (resource_id, resource) in enumerate(listed.items(), 1):
            self._schedule.enqueue(resource_id, self.get_generation(resource), Priority.LOW)
            if number % _QUEUED_AT_ONCE == 0:
                await asyncio.sleep(0)  # a large list must not block the loop
        self._schedule.begin_cycle(listed)

    def _learns_of_changes(self) -> bool:
        """Whether changes are reported, and all is listed soon in any case: then a copy serves many passes."""
        return False

    def _log_list_state(self, error: str) -> None:
        if error and not self._list_error:
            log.warning("cannot list resources; retrying", controller=self.name, error=error)
        elif self._list_error and not error:
            log.info("resources can be listed again", controller=self.name)
        self._list_error = error

    # Reconciling

    async def _work_loop(self, lane: str = "") -> None:
        while True:
            key = await self.queue.get(lane)
            if not self.is_leader:
                self.queue.done(key)
                return
            await self._pass(key, lane)
            # A pass may never wait. A resync of thousands of those must not block other tasks, least of all the one
            # that renews the lease, nor delay each request of a pass that a person waits for.
            await self._turns.next()

    async def _pass(self, key: str, lane: str) -> None:
        """One pass over one resource, from reading it to scheduling the next pass."""
        loop = asyncio.get_running_loop()
        state = self._schedule.begin_pass(key)
        began = loop.time()
        result: ReconciliationResult | None = None
        token = _current_key.set(key)
        try:
            result = await self._reconcile(key, state, lane)
        finally:
            _current_key.reset(token)
            if result is _CHANGES_LANE:
                self.queue.add(key, Priority.HIGH)
                result = None
            elif result is None or not result.read_only:
                self._copies.invalidate(key)
            if result is not None:
                self._duration.observe(loop.time() - began)
                self._totals[result.outcome].inc()
            if self._effects.pending(key):
                self._finish_late(key, state, result)
            else:
                self._finish(key, state, result)

    async def _reconcile(self, key: str, state: ResourceState, lane: str) -> ReconciliationResult:
        try:
            async with asyncio.timeout(self.config.reconcile_timeout):
                resource = self._copies.take(key)
                if resource is None:
                    resource = await self.fetch_single_resource(key)
                    self._copies.invalidate(key)  # a list in flight may contain an older copy
                if resource is None:
                    self._schedule.states.pop(key, None)
                    return ReconciliationResult.skip("it no longer exists")
                if (lane, self.queue.busy_group(key)) != (self.lane_of(key), self.group_of(key)):
                    # It was queued before it was known where it belongs: a slot for those continues with this copy.
                    self._copies.put_back(key, resource)
                    return _CHANGES_LANE
                state.generation, state.version = self.get_generation(resource), self.get_version(resource)
                result = await self.reconcile_resource(resource)
                if result.read_only and self._learns_of_changes():
                    self._copies.leave(key, resource)
                return result
        except TimeoutError as error:
            return ReconciliationResult.retry(str(error) or f"not finished within {self.config.reconcile_timeout:g} s")
        except Exception as error:  # noqa: BLE001 - a pass may fail in any way; it is retried
            return self._failed(key, error)

    def _failed(self, key: str, error: Exception) -> ReconciliationResult:
        state = self._schedule.states.get(key)
        if isinstance(error, NotAuthorizedError):
            log.info("call not sent", controller=self.name, resource=key, why=str(error))
            return ReconciliationResult.retry(str(error))
        reason = f"{type(error).__name__}: {error}"
        if state is None or state.last_error != reason:  # logged once per error, not once per retry
            details = {"error": reason} if isinstance(error, self.expected_errors) else {"exc_info": error}
            log.warning("reconcile failed", controller=self.name, resource=key, **details)
        return ReconciliationResult.retry(reason)

    def _finish(self, key: str, state: ResourceState, result: ReconciliationResult | None) -> None:
        """The pass has ended. No result: it was aborted."""
        if result is not None:
            self.last_reconciliation = clock.now()
            state.version = state.version if result.version is None else result.version
        self._schedule.end_pass(key, state, result)
        if result is not None and result.outcome is not Outcome.RETRY:
            self._on_pass_done(key, result)

    def _on_pass_done(self, key: str, result: ReconciliationResult) -> None:
        """Called when a pass ended with another outcome than RETRY."""

    def _finish_late(self, key: str, state: ResourceState, result: ReconciliationResult | None) -> None:
        epoch = self._epoch

        async def finish() -> None:
            await self._effects.wait_settled(key)
            self._finish(key, state, result if epoch == self._epoch else None)

        task = asyncio.create_task(finish(), name=f"{self.name}:late-end:{key}")
        self._late_finishes.add(task)
        task.add_done_callback(self._late_finishes.discard)

    # Starting and stopping to act

    def _start_acting(self) -> None:
        """Start workers and polling. The queue outlives a loss of leadership: calls in flight keep their keys busy."""
        self._polled = False
        self._poll_now.clear()
        for lane in ("", *self.lanes):
            for number in range(self.config.max_concurrent):
                label = f"worker-{lane}-{number}" if lane else f"worker-{number}"
                self._workers.append(self._run_loop(label, partial(self._work_loop, lane)))
        self._start_loops()
        self._spawn_loop("poll", self._poll_loop)

    def _start_loops(self) -> None:
        """Start the loops that must run before the first list."""

    def _spawn_loop(self, name: str, run: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run a loop while this process acts."""
        self._loops.append(self._run_loop(name, run))

    def _run_loop(self, name: str, run: Callable[[], Coroutine[object, object, None]]) -> asyncio.Task[None]:
        label = f"{self.name}:{name}"
        return asyncio.create_task(keep_running(label, run, self._backoff), name=label)

    async def _drain_and_stop(self, grace: float) -> None:
        """Stop gracefully: nothing new starts, running passes get `grace` seconds, the rest is aborted."""
        if self._workers:
            await cancel_and_wait(self._loops)
            self.queue.clear()
            try:
                async with asyncio.timeout(grace):
                    await self.queue.wait_drained()
            except TimeoutError:
                log.warning("passes aborted", controller=self.name, busy=self.queue.busy)
        await self._abort()

    async def _abort(self) -> None:
        """Stop at once: drop waiting keys and cancel passes. Calls that were sent continue to their end."""
        self._epoch += 1
        self.queue.clear()
        tasks, self._workers, self._loops = [*self._workers, *self._loops], [], []
        await cancel_and_wait(tasks)
        self._schedule.clear()
        self._copies.clear()
