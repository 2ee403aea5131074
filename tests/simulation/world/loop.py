"""An event loop that owns time, the order of callbacks, and which simulated process they belong to.

A callback belongs to the node in whose context it was created. The callbacks of a dead node are dropped: nothing of it
runs any more, not even `finally`, as after kill -9. The callbacks of a paused node wait. A node's clock may be skewed.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import random
import struct
import weakref
from asyncio import base_events, events
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

BEGIN = datetime(2026, 1, 17, 10, 30, tzinfo=UTC)
_EPOCH = 1000.0
_STEP = struct.Struct("<dH").pack
_NODE: ContextVar[Node | None] = ContextVar("simulated_node", default=None)


class StalledError(Exception):
    """Nothing is ready and no timer is set: the simulation would wait forever."""


class HaltedError(Exception):
    """The run cannot come to an end in reasonable time."""


class NodeClock:
    """`lcm.core.clock` of one node, with its own rate, wall-clock offset and random numbers."""

    def __init__(self, loop: SeededLoop, node: Node, offset: float) -> None:
        self._loop = loop
        self._node = node
        self._offset = timedelta(seconds=offset)
        self.jumped = 0.0  # by how many seconds somebody has set the clock of its host
        self.rng = loop.stream(f"chance of {node.name}")

    def now(self) -> datetime:
        return self._loop.begins + timedelta(seconds=self.boottime() - _EPOCH + self.jumped) + self._offset

    def boottime(self) -> float:
        return self._node.local(self._loop.now)


class Node:
    """One simulated process."""

    def __init__(self, loop: SeededLoop, name: str, *, rate: float = 1.0, offset: float = 0.0) -> None:
        self.loop = loop
        self.name = name
        self.rate = rate
        self.began = loop.now
        self.dead = False
        self.paused_until: float | None = None
        self.resumed_at = float("-inf")
        self.steps = 0
        self.doomed_at: int | None = None
        self.on_death: Callable[[], None] = lambda: None
        self._held: list[events.Handle] = []
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.clock = NodeClock(loop, self, offset)
        self._context: Context = copy_context()
        self._context.run(_NODE.set, self)
        self._context.run(clock.install, self.clock)
        self.number = loop.number_of(self)

    def local(self, moment: float) -> float:
        """Convert a time of the simulation to this node's clock."""
        return self.began + (moment - self.began) * self.rate

    def globally(self, moment: float) -> float:
        """Convert a time of this node's clock to the simulation's time."""
        return self.began + (moment - self.began) / self.rate

    def run(self, work: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        """Run it as a task of this node."""
        return self.loop.create_task(work, name=name or self.name, context=self._context.copy())

    def call(self, work: Callable[[], Any]) -> Any:
        """Run it at once, as this node."""
        return self._context.copy().run(work)

    def note(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    def kill(self) -> None:
        """End as kill -9 does. Its tasks stay referenced: a coroutine that is collected would run its `finally`."""
        if self.dead:
            return
        self.dead = True
        self.loop.graveyard.append((list(self._tasks), self._held))
        self._held = []
        self.on_death()

    def pause(self, seconds: float) -> None:
        """Pause the node, like a machine that is suspended or collects garbage."""
        self.paused_until = self.loop.now + seconds
        self.loop.call_globally(seconds, self._resume)

    def hold(self, handle: events.Handle) -> None:
        self._held.append(handle)

    def _resume(self) -> None:
        if self.paused_until is not None and self.loop.now >= self.paused_until and not self.dead:
            self.paused_until = None
            self.resumed_at = self.loop.now
            held, self._held = self._held, []
            self.loop.requeue(held)


class SeededLoop(base_events.BaseEventLoop):
    """The seed decides the order of all events; there are no threads, no sockets and no real time."""

    def __init__(self, seed: int | str) -> None:
        super().__init__()
        self.seed = seed
        self.begins = BEGIN  # what clocks show at the beginning
        self.now = _EPOCH
        self.steps = 0
        self.graveyard: list[Any] = []
        self.failures: list[dict[str, Any]] = []
        self.watch: Callable[[], None] | None = None
        self.halted = ""  # why the run is to end now
        self._order = self.stream("order")
        self._queue: list[events.Handle] = []
        self._timers: list[tuple[float, int, events.TimerHandle]] = []
        self._serial = 0
        self._objects = 0
        self._numbers: dict[str, int] = {}
        self._hash = hashlib.sha256()
        self._running_node: Node | None = None
        self.set_task_factory(_make_task)
        self.set_exception_handler(lambda _, context: self.failures.append(context))

    def stream(self, name: str) -> random.Random:
        """Random numbers for one purpose, independent of all others."""
        return random.Random(f"{self.seed}/{name}")

    def number_of(self, node: Node) -> int:
        """The same for all nodes of one name."""
        return self._numbers.setdefault(node.name, len(self._numbers) + 1)

    def record(self, line: str) -> None:
        """Add a line to the trace, which must be the same in every run of a seed."""
        self._hash.update(line.encode())

    @property
    def trace(self) -> str:
        """The hash of the trace so far."""
        return self._hash.hexdigest()[:32]

    @property
    def wall_time(self) -> datetime:
        """What a clock that is right shows now."""
        return self.begins + timedelta(seconds=self.now - _EPOCH)

    def next_number(self) -> int:
        self._objects += 1
        return self._objects

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    # Time

    def time(self) -> float:
        node = self._running_node
        return self.now if node is None or node.rate == 1.0 else node.local(self.now)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        # Every node reads its own clock; the context of a callback decides whose timer it is.
        asking = self._running_node
        return self._timer(when if asking is None else asking.globally(when), callback, args, context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        node = context.get(_NODE) if context is not None else _NODE.get()
        return self._timer(self.now + delay / (1.0 if node is None else node.rate), callback, args, context)

    def _timer(
        self, at: float, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None
    ) -> events.TimerHandle:
        asking = self._running_node
        when = at if asking is None else asking.local(at)
        handle = events.TimerHandle(when, callback, args, self, context or copy_context())
        self._serial += 1
        heapq.heappush(self._timers, (at, self._serial, handle))
        handle._scheduled = True  # type: ignore[attr-defined]  # what asyncio itself does
        return handle

    def call_globally(self, seconds: float, callback: Callable[[], None]) -> None:
        """A timer of the world, independent of the current node."""
        self._serial += 1
        handle = events.TimerHandle(self.now + seconds, callback, (), self, Context())
        heapq.heappush(self._timers, (self.now + seconds, self._serial, handle))

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.Handle:
        handle = events.Handle(callback, args, self, context or copy_context())
        self._queue.append(handle)
        return handle

    def requeue(self, handles: list[events.Handle]) -> None:
        self._queue.extend(handles)

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Cancelled timers are skipped when they are due."""

    def _run_once(self) -> None:
        if self.halted:
            raise HaltedError(self.halted)
        if not self._queue:
            self._pass_time()
        self._move_due()
        batch, self._queue = self._queue, []
        if len(batch) > 1:
            self._order.shuffle(batch)
        for handle in batch:
            if not handle._cancelled:
                self._step(handle)

    def _step(self, handle: events.Handle) -> None:
        node: Node | None = handle._context.get(_NODE)  # type: ignore[attr-defined]  # asyncio has no public API for it
        if node is not None:
            if node.dead:
                self.graveyard.append(handle)
                return
            if node.paused_until is not None:
                node.hold(handle)
                return
            node.steps += 1
            if node.doomed_at is not None and node.steps >= node.doomed_at:
                self.graveyard.append(handle)
                node.doomed_at = None
                node.kill()
                return
        self.steps += 1
        self._hash.update(_STEP(self.now, 0 if node is None else node.number))
        self._running_node = node
        handle._run()
        self._running_node = None
        if self.watch is not None:
            self.watch()

    def _pass_time(self) -> None:
        while self._timers and self._timers[0][2]._cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            raise StalledError
        self.now = max(self.now, self._timers[0][0])

    def _move_due(self) -> None:
        while self._timers and self._timers[0][0] <= self.now:
            handle = heapq.heappop(self._timers)[2]
            if not handle._cancelled:
                self._queue.append(handle)

    def __del__(self) -> None:
        """Do nothing: the loop holds no system resources, and closing it would run callbacks of dead nodes."""

    # Operations that a simulation must not use

    def run_in_executor(self, *_: Any) -> NoReturn:  # type: ignore[override]
        raise AssertionError("threads have no place in a simulation")

    def call_soon_threadsafe(self, *_: Any, **__: Any) -> NoReturn:  # type: ignore[override]
        raise AssertionError("threads have no place in a simulation")

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: generators of dead nodes must not be closed."""

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Do nothing: an unfinished generator is closed when its last reference is dropped."""
        self.call_soon(self.create_task, agen.aclose())

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("sockets have no place in a simulation")

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""


class _Future(asyncio.Future[Any]):
    """The hash decides the order of a set of futures, and a memory address would differ from run to run."""

    __slots__ = ("_number",)

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            loop = self.get_loop()
            assert isinstance(loop, SeededLoop)
            self._number: int = loop.next_number()
            return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Task(asyncio.Task[Any]):
    """See `_Future`."""

    def __init__(self, work: Any, *, loop: SeededLoop, **options: Any) -> None:
        self._number = loop.next_number()
        super().__init__(work, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    assert isinstance(loop, SeededLoop)
    task = _Task(work, loop=loop, **options)
    context = options.get("context")
    node = context.get(_NODE) if context is not None else _NODE.get()
    if node is not None:
        node.note(task)
    return task


def current_node() -> Node | None:
    """The node that runs right now."""
    return _NODE.get()
