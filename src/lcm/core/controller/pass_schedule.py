"""When each resource has its next pass: the queue, what is kept of each resource, and delays after failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.core import clock
from lcm.core.controller.resources import Outcome, ReconciliationResult, ResourceState, ResourceStatus
from lcm.core.workqueue import Priority, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lcm.core.controller.config import ReconciliationConfig

GROUPS_SERVED = 3
"""How many groups together take all slots: fewer groups whose passes take long leave slots to the others."""


class PassSchedule:
    """Decides after each trigger and each pass when the resource is reconciled next."""

    def __init__(
        self, config: ReconciliationConfig, *, lane_of: Callable[[str], str], group_of: Callable[[str], str]
    ) -> None:
        self._config = config
        self._backoff = config.backoff
        self.queue: WorkQueue[str] = WorkQueue(
            promote_after=config.interval_seconds,
            lane_of=lane_of,
            group_of=group_of,
            group_limit=max(1, config.max_concurrent // GROUPS_SERVED),
        )
        self.states: dict[str, ResourceState] = {}
        self._next_cycle: set[str] = set()

    # Triggers

    def enqueue(self, resource_id: str, generation: int | None, priority: Priority) -> None:
        """Queue a key, unless it is in backoff and its desired state has not changed since."""
        state = self.states.get(resource_id)
        if state is not None:
            state.note_generation(generation)
            if state.next_retry_at is not None:
                if generation is not None and not state.has_new_generation:
                    return
                self._end_backoff(state)
            if state.has_new_generation:
                state.retry_count = 0
        self.queue.add(resource_id, priority)

    def enqueue_now(self, resource_id: str) -> None:
        """Queue a key before all others, ending any backoff."""
        if resource_id in self.states:
            self._end_backoff(self.states[resource_id])
        self.queue.add(resource_id, Priority.HIGH)

    def end_all_backoffs(self) -> None:
        """Queue all keys that are in backoff."""
        for state in self.states.values():
            if self._end_backoff(state):
                self.queue.add(state.resource_id, Priority.LOW)

    def begin_cycle(self, listed: Collection[str]) -> None:
        """A polling cycle has listed these: queue what waits for it, and forget resources that no longer exist."""
        for resource_id in [each for each in self.states if each not in listed]:
            self._forget_if_idle(resource_id)
        due, self._next_cycle = sorted(self._next_cycle), set()
        for resource_id in due:
            self.enqueue(resource_id, None, Priority.LOW)

    def _end_backoff(self, state: ResourceState) -> bool:
        """Returns whether there was one. The caller must queue the key: nothing else will."""
        waiting, state.next_retry_at = state.next_retry_at is not None, None
        return waiting and self.queue.cancel_delayed(state.resource_id)

    def _forget_if_idle(self, resource_id: str) -> None:
        """Drop the state of a resource that is no longer listed, unless work is pending for it."""
        state = self.states[resource_id]
        if not self.queue.is_busy(resource_id) and state.next_retry_at is None and resource_id not in self._next_cycle:
            del self.states[resource_id]

    # Passes

    def begin_pass(self, key: str) -> ResourceState:
        """A pass begins; it will schedule the next one."""
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = ResourceState(key)
        state.begin_pass()
        self.queue.cancel_delayed(key)
        self._next_cycle.discard(key)
        return state

    def end_pass(self, key: str, state: ResourceState, result: ReconciliationResult | None) -> None:
        """Schedule the next pass. No result: the pass was aborted and nothing is scheduled."""
        if result is None:
            state.status = ResourceStatus.PENDING
            self.queue.done(key)
            return
        if result.outcome is Outcome.RETRY:
            self._retry(key, state, result)
            return
        state.status, state.retry_count, state.last_error = ResourceStatus.SUCCESS, 0, ""
        state.last_reconciled_at = clock.now()
        if result.outcome is Outcome.REQUEUE:
            if result.after is not None:
                self.queue.add_after(key, max(result.after, 0.0))
            elif self._config.polling_enabled:
                self._next_cycle.add(key)
            else:
                self.queue.add_after(key, self._config.interval_seconds)
        self.queue.done(key)

    def _retry(self, key: str, state: ResourceState, result: ReconciliationResult) -> None:
        state.status, state.last_error = ResourceStatus.FAILED, result.reason
        if state.has_new_generation:
            state.retry_count = 0  # the desired state changed during the failed pass: try it at once
            self.queue.add(key, Priority.HIGH)
            self.queue.done(key)
            return
        delay = self._backoff.delay(state.retry_count)
        state.retry_count += 1
        state.next_retry_at = clock.after(delay)
        self.queue.done_retry_after(key, delay)

    def clear(self) -> None:
        """Nothing is scheduled any more. Busy keys stay busy until their passes end."""
        self.queue.clear()
        self._next_cycle.clear()
        for state in self.states.values():
            state.next_retry_at = None
