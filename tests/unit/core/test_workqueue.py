"""The guarantees of the queue one by one, then all together against a simple model."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lcm.core.workqueue import Priority, WorkQueue
from tests.support.virtual.time import VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine

HIGH, LOW = Priority.HIGH, Priority.LOW


async def take_all(queue: WorkQueue[str]) -> list[str]:
    taken = []
    while len(queue):
        taken.append(await queue.get())
        queue.done(taken[-1])
    return taken


async def test_a_key_added_many_times_while_waiting_runs_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5):
        queue.add("a")
    assert await take_all(queue) == ["a"]


async def test_a_busy_key_is_not_handed_out_again_and_runs_once_more_after() -> None:
    """controllers.md#work-queue: a busy key is not handed out."""
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    for _ in range(3):
        queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await take_all(queue) == ["a"]


async def test_a_key_is_handed_out_in_its_lane_only() -> None:
    queue: WorkQueue[str] = WorkQueue(lane_of=lambda key: key[0])
    consumer = asyncio.create_task(queue.get("b"))
    queue.add("a1")
    await asyncio.sleep(0)
    assert not consumer.done()
    queue.add("b1", LOW)
    assert await consumer == "b1"
    assert await queue.get("a") == "a1"
    assert (len(queue), queue.busy, queue.depth_by_lane()) == (0, 2, {"": 0, "a": 0, "b": 0})


async def test_a_waiting_key_stays_in_its_lane_and_runs_once() -> None:
    lanes = {"k": ""}
    queue: WorkQueue[str] = WorkQueue(lane_of=lanes.__getitem__)
    queue.add("k", LOW)
    lanes["k"] = "b"
    queue.add("k", HIGH)
    assert queue.depth_by_lane() == {"": 1}
    assert await queue.get() == "k"
    queue.add("k")
    queue.done("k")
    assert queue.depth_by_lane() == {"": 0, "b": 1}
    assert await queue.get("b") == "k"


async def test_clear_and_drained_mean_all_lanes() -> None:
    queue: WorkQueue[str] = WorkQueue(lane_of=lambda key: key[0])
    queue.add("a1")
    queue.add("b1")
    drained = asyncio.create_task(queue.wait_drained())
    await asyncio.sleep(0)
    assert not drained.done()
    queue.clear()
    await drained
    assert len(queue) == 0


async def test_high_overtakes_low() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("l1", "l2"):
        queue.add(key, LOW)
    queue.add("h")
    assert await take_all(queue) == ["h", "l1", "l2"]


async def test_a_waiting_low_key_added_high_moves_up_and_still_runs_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("l1", "l2", "l3"):
        queue.add(key, LOW)
    queue.add("l3", HIGH)
    queue.add("l3", LOW)
    assert await take_all(queue) == ["l3", "l1", "l2"]


async def test_a_key_added_high_while_busy_comes_back_high() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", LOW)
    await queue.get()
    queue.add("a", HIGH)
    queue.add("a", LOW)
    queue.add("b", LOW)
    queue.done("a")
    assert await take_all(queue) == ["a", "b"]


async def test_a_low_key_that_waited_too_long_takes_every_second_turn() -> None:
    queue: WorkQueue[str] = WorkQueue(promote_after=30)
    for key in ("l1", "l2"):
        queue.add(key, LOW)
    await asyncio.sleep(31)
    for key in ("h1", "h2", "h3"):
        queue.add(key, HIGH)
    assert await take_all(queue) == ["h1", "l1", "h2", "l2", "h3"]


async def test_a_lone_change_goes_first_even_when_the_whole_resync_is_overdue() -> None:
    queue: WorkQueue[str] = WorkQueue(promote_after=30)
    for number in range(100):
        queue.add(f"l{number}", LOW)
    await asyncio.sleep(60)
    for number in range(5):
        assert await queue.get() == f"l{number}"
    queue.add("change", HIGH)
    assert await queue.get() == "change"


async def test_a_delayed_key_comes_when_due_and_the_earliest_of_several_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    loop = asyncio.get_running_loop()
    began = loop.time()
    queue.add_after("a", 5)
    queue.add_after("a", 2)
    queue.add_after("a", 9)
    assert (len(queue), queue.delayed) == (0, 1)
    assert await queue.get() == "a"
    assert loop.time() - began == 2
    queue.done("a")
    await asyncio.sleep(20)
    assert len(queue) == 0


async def test_cancel_delayed_forgets_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 5)
    assert queue.cancel_delayed("a")
    assert not queue.cancel_delayed("a")
    await asyncio.sleep(10)
    assert len(queue) == 0


async def test_done_retry_after_holds_the_key_back_even_if_it_was_added_meanwhile() -> None:
    queue: WorkQueue[str] = WorkQueue()
    loop = asyncio.get_running_loop()
    queue.add("a")
    await queue.get()
    queue.add("a", HIGH)
    began = loop.time()
    queue.done_retry_after("a", 4)
    assert len(queue) == 0
    assert await queue.get() == "a"
    assert loop.time() - began == 4


def grouped(limit: int = 2) -> WorkQueue[str]:
    """The group of a key is its first letter; keys of `-` belong to no group."""
    return WorkQueue(group_of=lambda key: key[0].strip("-"), group_limit=limit)


async def test_of_a_group_only_so_many_are_busy_and_the_others_wait_in_order() -> None:
    """controllers.md#work-queue: a group whose keys take long leaves consumers to the others."""
    queue = grouped()
    for key in ("a1", "a2", "a3", "a4", "b1", "-1", "-2", "-3"):
        queue.add(key)
    assert [await queue.get() for _ in range(6)] == ["a1", "a2", "b1", "-1", "-2", "-3"]
    assert len(queue) == 2
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(1)
    assert not waiting.done()
    queue.done("a2")
    assert await waiting == "a3"
    queue.done_retry_after("a1", 100)
    assert await queue.get() == "a4"
    assert (len(queue), queue.busy, queue.busy_group("a4")) == (0, 6, "a")


async def test_a_key_that_waits_for_its_group_can_become_urgent_and_is_not_handed_out_twice() -> None:
    queue = grouped(1)
    for key in ("a1", "a2", "b1"):
        queue.add(key, LOW)
    assert [await queue.get(), await queue.get()] == ["a1", "b1"]
    queue.add("c1", LOW)
    queue.add("a2", HIGH)
    queue.done("a1")
    assert await queue.get() == "a2", "it is urgent now"
    queue.add("a2", HIGH)
    assert await queue.get() == "c1", "a busy key is not handed out"
    queue.done("a2")
    assert await queue.get() == "a2"
    assert not len(queue)


async def test_clear_forgets_keys_that_wait_for_their_group() -> None:
    queue = grouped(1)
    queue.add("a1")
    queue.add("a2")
    assert await queue.get() == "a1"
    getter = asyncio.ensure_future(queue.get())
    await asyncio.sleep(1)
    queue.clear()
    queue.done("a1")
    queue.add("a2")
    assert await getter == "a2"
    queue.done("a2")
    await queue.wait_drained()


async def test_a_cancelled_getter_passes_its_wake_up_on() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")  # wakes the first ...
    first.cancel()  # ... which is cancelled before it could take the key
    assert await asyncio.wait_for(second, 1) == "a"
    with suppress(asyncio.CancelledError):
        await first


async def test_drained_waits_for_the_last_busy_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    await queue.wait_drained()
    queue.add("a")
    await queue.get()
    drained = asyncio.create_task(queue.wait_drained())
    await asyncio.sleep(1)
    assert not drained.done()
    queue.done("a")
    await asyncio.wait_for(drained, 1)


async def test_clear_forgets_everything_but_what_is_busy() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("busy")
    await queue.get()
    queue.add("busy")
    queue.add("waiting")
    queue.add_after("delayed", 1)
    queue.clear()
    assert (len(queue), queue.busy, queue.delayed) == (0, 1, 0)
    queue.done("busy")
    assert (len(queue), queue.busy) == (0, 0)


async def test_done_for_a_key_that_is_not_busy_is_a_mistake_that_shows() -> None:
    queue: WorkQueue[str] = WorkQueue()
    with pytest.raises(KeyError):
        queue.done("a")


async def test_waiting_time_is_counted_from_the_first_add() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", LOW)
    await asyncio.sleep(3)
    queue.add("a", HIGH)
    await asyncio.sleep(1)
    await queue.get()
    assert queue.wait_total == 4
    assert sum(queue.wait_counts) == 1


KEYS = st.sampled_from(["a", "b", "c", "d"])
PRIORITIES = st.sampled_from([HIGH, LOW])
DELAYS = st.sampled_from([0.5, 1.0, 2.0, 5.0])
PROMOTE_AFTER = 3.0


class QueueAgainstModel(RuleBasedStateMachine):
    """The model is lists and dictionaries searched from front to back; the queue must agree after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.queue: WorkQueue[str] = WorkQueue(promote_after=PROMOTE_AFTER)
        self.high: list[tuple[str, float]] = []
        self.low: list[tuple[str, float]] = []
        self.busy: dict[str, Priority | None] = {}
        self.delayed: dict[str, tuple[float, Priority]] = {}
        self.overdue_turn = False
        self.getters: list[asyncio.Task[str]] = []
        self.delays_made = 0

    def apart(self, delay: float) -> float:
        """No two timers fall due at the same moment: asyncio does not say which of them would run first."""
        self.delays_made += 1
        return delay + self.delays_made * 1e-6

    def run(self, work: Coroutine[object, object, object]) -> None:
        self.loop.run_until_complete(work)

    def teardown(self) -> None:
        for getter in self.getters:
            getter.cancel()
        if self.getters:
            self.run(asyncio.wait(self.getters))
        self.loop.close()

    # The model

    def now(self) -> float:
        return self.loop.time()

    def model_add(self, key: str, priority: Priority) -> None:
        if key in self.busy:
            self.busy[key] = HIGH if HIGH in (priority, self.busy[key]) else LOW
        elif any(key == waiting for waiting, _ in self.high):
            return
        elif any(key == waiting for waiting, _ in self.low):
            if priority is HIGH:
                entry = next(entry for entry in self.low if entry[0] == key)
                self.low.remove(entry)
                self.high.append(entry)
        else:
            (self.high if priority is HIGH else self.low).append((key, self.now()))

    def model_delay(self, key: str, delay: float, priority: Priority) -> None:
        due, known = self.delayed.get(key, (float("inf"), priority))
        self.delayed[key] = (min(due, self.now() + delay), HIGH if HIGH in (known, priority) else LOW)

    def model_next(self) -> str:
        overdue = bool(self.low) and self.now() - self.low[0][1] > PROMOTE_AFTER
        from_low = not self.high or (overdue and self.overdue_turn)
        key, _ = (self.low if from_low else self.high).pop(0)
        self.overdue_turn = not from_low
        self.busy[key] = None
        return key

    def settle(self) -> None:
        """Let woken getters take what the model says they take, in order."""
        self.run(asyncio.sleep(0))
        self.run(asyncio.sleep(0))
        expected: list[str] = []
        while self.getters and len(expected) < len(self.getters) and (self.high or self.low):
            expected.append(self.model_next())
        finished = [getter for getter in self.getters if getter.done()]
        taken = [getter.result() for getter in finished if getter.exception() is None]
        assert sorted(taken) == sorted(expected)
        self.getters = [getter for getter in self.getters if not getter.done()]

    # What may happen

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: Priority) -> None:
        async def act() -> None:
            self.queue.add(key, priority)

        self.run(act())
        self.model_add(key, priority)
        self.settle()

    @rule(key=KEYS, delay=DELAYS, priority=PRIORITIES)
    def add_after(self, key: str, delay: float, priority: Priority) -> None:
        delay = self.apart(delay)

        async def act() -> None:
            self.queue.add_after(key, delay, priority)

        self.run(act())
        self.model_delay(key, delay, priority)

    @rule(key=KEYS)
    def cancel_delayed(self, key: str) -> None:
        assert self.queue.cancel_delayed(key) == (self.delayed.pop(key, None) is not None)

    @precondition(lambda self: self.high or self.low)
    @rule()
    def get(self) -> None:
        expected = self.model_next()
        assert self.loop.run_until_complete(self.queue.get()) == expected

    @precondition(lambda self: not (self.high or self.low) and len(self.getters) < 3)
    @rule()
    def wait_for_a_key(self) -> None:
        self.getters.append(self.loop.create_task(self.queue.get()))
        self.settle()

    @precondition(lambda self: self.getters)
    @rule(key=KEYS, priority=PRIORITIES, which=st.integers(0, 2))
    def add_and_cancel_a_getter_at_once(self, key: str, priority: Priority, which: int) -> None:
        getter = self.getters.pop(which % len(self.getters))

        async def act() -> None:
            self.queue.add(key, priority)
            getter.cancel()

        self.run(act())
        self.model_add(key, priority)
        self.run(asyncio.wait([getter]))
        self.settle()

    @precondition(lambda self: self.busy)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.busy)))

        async def act() -> None:
            self.queue.done(key)

        self.run(act())
        again = self.busy.pop(key)
        if again is not None:
            self.model_add(key, again)
        self.settle()

    @precondition(lambda self: self.busy)
    @rule(data=st.data(), delay=DELAYS)
    def done_retry_after(self, data: st.DataObject, delay: float) -> None:
        delay = self.apart(delay)
        key = data.draw(st.sampled_from(sorted(self.busy)))

        async def act() -> None:
            self.queue.done_retry_after(key, delay)

        self.run(act())
        self.model_delay(key, delay, self.busy.pop(key) or LOW)
        self.settle()

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def time_passes(self, seconds: float) -> None:
        until = self.now() + seconds
        for due, key, priority in sorted((due, key, p) for key, (due, p) in self.delayed.items() if due <= until):
            self.run(asyncio.sleep(max(0.0, due - self.now())))
            del self.delayed[key]
            self.model_add(key, priority)
            self.settle()
        self.run(asyncio.sleep(max(0.0, until - self.now())))
        self.settle()

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.high.clear()
        self.low.clear()
        self.delayed.clear()
        self.busy = dict.fromkeys(self.busy)

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.queue) == len(self.high) + len(self.low)
        assert self.queue.busy == len(self.busy)
        assert self.queue.delayed == len(self.delayed)
        drained = self.loop.create_task(self.queue.wait_drained())
        self.run(asyncio.sleep(0))
        assert drained.done() == (not (self.high or self.low or self.busy))
        drained.cancel()
        self.run(asyncio.wait([drained]))


TestQueueAgainstModel = QueueAgainstModel.TestCase
TestQueueAgainstModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
