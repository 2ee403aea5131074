"""Services that start, run and stop together, and the host that runs them in one process."""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

import structlog

from lcm.core.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

R = TypeVar("R")
log = structlog.get_logger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS = 8.0
CANCEL_AGAIN_SECONDS = 5.0
"""When a task that was cancelled and goes on is cancelled again: long enough to clean up, within the grace period."""


class HostedService(ABC):
    """A service that runs for the lifetime of the process. `start` returns once it runs, `stop` once it has ended."""

    shutdown_seconds = 0.0
    """How long `stop` may wait for others, such as clients whose requests are running."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: asyncio.Future[bool] | None = None  # set when the service cannot continue
        self._background: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def start(self) -> None:
        """Start the service. An exception means that the process cannot run."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the service in bounded time. Called once, and only after `start` returned."""

    def readiness(self) -> list[str]:
        """Why this service is not ready; empty when it is."""
        return []

    def degradation(self) -> list[str]:
        """What this service cannot do at present although it is ready; empty when all is well."""
        return []

    def health(self) -> dict[str, object]:
        """What this service adds to the response of `/health`."""
        return {}

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run a background task. It must handle its own errors: an error that escapes ends the process."""
        if self.failure is None:
            self.failure = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(work, name=f"{self.name}:{name}")
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        log.error("background task failed", service=self.name, task=task.get_name(), exc_info=task.exception())
        if self.failure is not None and not self.failure.done():
            self.failure.set_result(True)


async def cancel_and_wait(tasks: Sequence[asyncio.Task[R]]) -> None:
    """Cancel the tasks and wait until all have ended, whatever their result.

    A task that goes on is cancelled again: libraries swallow a cancellation that arrives together with a response.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it


async def keep_running(name: str, run: Callable[[], Awaitable[None]], backoff: Backoff | None = None) -> None:
    """Run a loop and restart it after a growing delay whenever it fails."""
    backoff = backoff or Backoff()
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        began = loop.time()
        try:
            await run()
            return
        except Exception:
            if loop.time() - began > backoff.max_delay:
                failures = 0  # it ran well for a while: this is a new failure
            delay = backoff.delay(failures)
            failures += 1
            log.exception("loop failed; restarting", loop=name, in_seconds=round(delay, 1))
        await asyncio.sleep(delay)


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for the event for at most `seconds`; None waits without a limit."""
    try:
        async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        return


def run_process(main: Coroutine[object, object, R]) -> R:
    """Run the main coroutine of a long-lived process on uvloop.

    A request costs less CPU there than on asyncio's own loop, and an open TLS connection a fraction of the memory.
    """
    import uvloop  # imported here: short commands do not need it

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class Host:
    """Starts services in order and stops them in reverse. SIGTERM or SIGINT stops it; a second signal skips the grace.

    The signal handlers replace whatever the process inherited: a background job of a shell starts with SIGINT ignored.
    """

    def __init__(self, services: Sequence[HostedService], *, grace: float = GRACE_SECONDS) -> None:
        self._services = services
        self._grace = grace + max((service.shutdown_seconds for service in services), default=0.0)
        self._stop_requested: asyncio.Event | None = None
        self._force_stop: asyncio.Event | None = None

    async def run(self) -> int:
        """Run until a stop is requested or a service fails; returns the exit code."""
        self._stop_requested, self._force_stop = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.request_stop, signal.Signals(number).name)
        started: list[HostedService] = []
        try:
            for service in self._services:
                await service.start()
                started.append(service)
            return await self._until_stopped(started)
        finally:
            await self._stop(started)
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def request_stop(self, why: str) -> None:
        """Start a graceful stop; a second request stops waiting for it."""
        if self._stop_requested is None or self._force_stop is None:
            return
        if self._stop_requested.is_set():
            self._force_stop.set()
        else:
            log.info("stopping", why=why, grace_seconds=self._grace)
            self._stop_requested.set()

    async def _until_stopped(self, services: Sequence[HostedService]) -> int:
        assert self._stop_requested is not None
        stop: asyncio.Task[bool] = asyncio.create_task(self._stop_requested.wait())
        failures = [service.failure for service in services if service.failure is not None]
        try:
            awaited: list[asyncio.Future[bool]] = [stop, *failures]
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            return 1 if any(failure.done() for failure in failures) else 0
        finally:
            await cancel_and_wait([stop])

    async def _stop(self, started: Sequence[HostedService]) -> None:
        assert self._force_stop is not None
        forced = asyncio.create_task(self._force_stop.wait())
        stopping = asyncio.create_task(self._stop_in_reverse(started))
        try:
            await asyncio.wait([forced, stopping], timeout=self._grace, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                log.warning("not every service stopped in time", forced=self._force_stop.is_set())
        finally:
            await cancel_and_wait([forced, stopping])

    async def _stop_in_reverse(self, started: Sequence[HostedService]) -> None:
        for service in reversed(started):
            try:
                await service.stop()
            except Exception:
                log.exception("service did not stop cleanly", service=service.name)
