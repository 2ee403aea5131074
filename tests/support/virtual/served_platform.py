"""The whole platform behind a real port, for a browser: its time passes like the machine's, or runs ahead on request.

The platform has a thread and a loop of its own. While a test looks at a page, seconds are seconds. `run_until` lets
hours pass in a moment; nobody may have a request under way then, because its time would run out too.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
import time
import urllib.request
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from lcm.control_plane.bookings import progress
from lcm.controllers.lablet.decide import running
from lcm.core import clock
from lcm.http.server import HttpServer
from lcm.model.access import Role
from tests.support.network.http_gate import PATIENCE
from tests.support.virtual.full_platform import a_whole
from tests.support.virtual.time import NoWait, VirtualClock, VirtualTimeLoop

if TYPE_CHECKING:
    import selectors
    from collections.abc import Coroutine
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from tests.support.virtual.full_platform import Whole

R = TypeVar("R")
# Thirty labs that run well, looked at each minute for hours, would take most of a test's time.
_PACE = (
    (running, "CHECK_INTERVAL", 1800.0),
    (running, "INITIAL_CHECK_INTERVAL", 1800.0),
    (progress, "UNDER_WAY_SECONDS", 60.0),
)
_REPORTS = 600.0
_HOURS_ON_A_BUSY_MACHINE = 3600.0
_SHUTDOWN_SECONDS = 1.0


class _SteeredWait(NoWait):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert isinstance(self.loop, SteeredTimeLoop)
        if self.loop.runs_ahead:
            return super().select(timeout)
        began = time.monotonic()
        ready = self.real.select(timeout)
        self.loop.wait_for(time.monotonic() - began)
        return ready


class SteeredTimeLoop(VirtualTimeLoop):
    """A loop whose time passes like the machine's, except while it runs ahead."""

    def __init__(self) -> None:
        self.runs_ahead = False
        super().__init__(_SteeredWait())

    def wait_for(self, seconds: float) -> None:
        """Time that the machine has waited."""
        self._virtual += seconds


class ServedPlatform:
    """The platform in its thread, and requests to it."""

    def __init__(self) -> None:
        self.url = ""
        self._loop = SteeredTimeLoop()
        self._thread = threading.Thread(target=self._run, name="platform", daemon=True)
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._whole: Whole | None = None
        self._context: contextvars.Context | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE), "the platform does not start"
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the platform does not end"
        if self._error is not None and error is None:
            raise self._error

    @property
    def whole(self) -> Whole:
        """Its parts; use them within `run`."""
        assert self._whole is not None
        return self._whole

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request as admin."""
        token = self.whole.fleet.plane.tokens[Role.ADMIN]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Connection": "close"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.load(response)

    def now(self) -> datetime:
        """What its clock shows."""

        async def read() -> datetime:
            return clock.now()

        return self.run(read())

    def run(self, work: Coroutine[Any, Any, R], patience: float = PATIENCE) -> R:
        """Run a coroutine in its loop, with its clock."""
        assert self._context is not None
        started = self._context.run(asyncio.run_coroutine_threadsafe, work, self._loop)
        return started.result(patience)

    def run_until(self, moment: datetime) -> None:
        """Let its time run ahead to a moment."""
        self.run(self._run_ahead(moment), _HOURS_ON_A_BUSY_MACHINE)

    async def _run_ahead(self, moment: datetime) -> None:
        self._loop.runs_ahead = True
        try:
            await asyncio.sleep((moment - clock.now()).total_seconds())
        finally:
            self._loop.runs_ahead = False

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        clock.install(VirtualClock(self._loop))
        async with AsyncExitStack() as stack:
            for module, name, seconds in _PACE:
                stack.enter_context(patch.object(module, name, seconds))
            whole = await stack.enter_async_context(a_whole(report_interval=_REPORTS))
            server = HttpServer(whole.fleet.plane.app, "127.0.0.1", 0, port_setting="CONTROL_PLANE_PORT")
            server.shutdown_seconds = _SHUTDOWN_SECONDS
            await server.start()
            self._whole, self.url, self._context = whole, server.url, contextvars.copy_context()
            self._ready.set()
            await self._end.wait()
            self._loop.runs_ahead = True  # what still waits for its time
            await server.stop()
