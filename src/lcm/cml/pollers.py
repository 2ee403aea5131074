"""Poller processes, which read CML servers outside the controller's event loop.

Each server belongs to one process. A process that died or hangs is replaced; the reads that it had are sent to its
successor, so that their callers notice nothing but a delay. The others go on meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from lcm.cml.client.session import CMLCallMetrics, cml_call_metrics
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.errors import CMLPollerError
from lcm.cml.poller_process import Forget, Ping, Pong, Request, Response, encode_message, read_message
from lcm.core.hosting import cancel_and_wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.cml.client.access import CmlAccess
    from lcm.cml.client.session import CMLSession
    from lcm.cml.reading import ServerQuery, ServerReading
    from lcm.cml.types import CMLActivity, Credentials

log = structlog.get_logger(__name__)

PING_SECONDS: Final = 5.0
MAX_MISSED_PINGS: Final = 3
"""A process that was silent for so many pings is killed and replaced: after 15 to 20 seconds."""
START_SECONDS: Final = 30.0
"""A new process may be silent for this long: on a busy host it takes a while to start."""
FIRST_RESTART_SECONDS: Final = 0.2
MAX_RESTART_SECONDS: Final = 30.0
STABLE_SECONDS: Final = 60.0
"""A process that ran this long is replaced at once; one that ends again and again, after ever longer pauses."""
RESPONSE_MARGIN: Final = 2.0  # seconds that a response may take longer than its request allows
ACTIVITY_SECONDS: Final = 145.0
USERS_SECONDS: Final = 60.0
_EXIT_GRACE: Final = 5.0
# Not `-m`: the package has imported the module by then, and Python would warn about it.
_COMMAND: Final = (sys.executable, "-c", "from lcm.cml.poller_process import main; main()")


class PollerMetrics:
    """What is exported of the poller processes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.running = Gauge("lcm_cml_pollers_running", "Poller processes that respond", registry=registry)
        self.restarts = Counter(
            "lcm_cml_poller_restarts_total", "Poller processes that died or hung and were replaced", registry=registry
        )


@dataclass(slots=True)
class _Pending:
    """A request whose response has not arrived."""

    request: Request
    deadline: float
    response: asyncio.Future[Response]


class PollerProcess:
    """One process and its replacements. It is started by the first request."""

    def __init__(
        self,
        name: str,
        access: CmlAccess,
        calls: CMLCallMetrics,
        metrics: PollerMetrics,
        *,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        self._name = name
        self._access = access
        self._calls = calls
        self._metrics = metrics
        self._ping_seconds = ping_seconds
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._process: asyncio.subprocess.Process | None = None
        self._heard = False  # whether anything arrived since the last ping
        self._supervisor: asyncio.Task[None] | None = None
        self._last_end = "it has not started yet"
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id, while a process runs."""
        return None if self._process is None else self._process.pid

    async def request(self, request: Request) -> Any:
        """Send a request and wait for its response, also if the process must be replaced meanwhile."""
        loop = asyncio.get_running_loop()
        if self._closed:
            raise CMLPollerError(request.address, f"the poller process {self._name} was stopped")
        if self._supervisor is None or self._supervisor.done():
            self._supervisor = asyncio.create_task(self._supervise(), name=f"cml-poller:{self._name}")
        self._number += 1
        pending = _Pending(request, loop.time() + request.seconds, loop.create_future())
        number = self._number
        self._pending[number] = pending
        self._send_request(number, pending)
        try:
            async with asyncio.timeout(request.seconds + RESPONSE_MARGIN):
                response = await pending.response
        except TimeoutError:
            raise CMLPollerError(
                request.address, f"the poller process {self._name} does not respond: {self._last_end}"
            ) from None
        finally:
            del self._pending[number]
        if response.error is not None:
            raise response.error
        return response.value

    def forget(self, address: str) -> None:
        """Drop what the process keeps of a server; a process that does not run keeps nothing."""
        self._send(Forget(address))

    async def close(self) -> None:
        """End the process; no other is started."""
        self._closed = True
        if self._supervisor is not None:
            await cancel_and_wait([self._supervisor])

    def _send(self, message: object) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(encode_message(message))

    def _send_request(self, number: int, pending: _Pending) -> None:
        asked = pending.request
        left = max(0.1, pending.deadline - asyncio.get_running_loop().time())
        self._send(Request(number, asked.address, asked.pin, left, asked.query, asked.method, asked.arguments))

    # The process

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_RESTART_SECONDS
        while True:
            began, pid = loop.time(), None
            try:
                process = await self._start()
                pid = process.pid
                self._last_end = await self._run(process)
            except OSError as error:
                self._last_end = f"it cannot be started: {error}"
            if loop.time() - began >= STABLE_SECONDS:
                pause = FIRST_RESTART_SECONDS
            self._metrics.restarts.inc()
            log.error(
                "a poller process ended and is replaced", poller=self._name, pid=pid, reason=self._last_end,
                reads_in_progress=len(self._pending), restart_in_seconds=pause,
            )  # fmt: skip
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RESTART_SECONDS)

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*_COMMAND, stdin=pipe, stdout=pipe)

    async def _run(self, process: asyncio.subprocess.Process) -> str:
        """Use a process until it ends or hangs; returns why that is over."""
        self._process = process
        self._send(self._access)
        for number, pending in list(self._pending.items()):
            self._send_request(number, pending)
        self._metrics.running.inc()
        reading = asyncio.create_task(self._read(process), name=f"cml-poller-read:{self._name}")
        watching = asyncio.create_task(self._watch(), name=f"cml-poller-watch:{self._name}")
        try:
            done, _ = await asyncio.wait([reading, watching], return_when=asyncio.FIRST_COMPLETED)
            return "it did not respond" if watching in done else await self._exit_reason(process)
        finally:
            self._process = None
            self._metrics.running.dec()
            await cancel_and_wait([reading, watching])
            await _end(process)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                message = cast("Response | Pong", await read_message(process.stdout))
            except (asyncio.IncompleteReadError, OSError):
                return
            self._heard = True
            if isinstance(message, Response):
                for operation, outcome, seconds in message.calls:
                    self._calls.record(operation, outcome, seconds)
                pending = self._pending.get(message.number)
                if pending is not None and not pending.response.done():
                    pending.response.set_result(message)

    async def _watch(self) -> None:
        """Returns when the process has been silent for too long.

        Pings are counted, not seconds: if this process was suspended itself, the responses have piled up meanwhile.
        """
        has_started, missed, allowed = False, 0, START_SECONDS / self._ping_seconds
        while missed < allowed:
            self._heard = False
            self._send(Ping())
            await asyncio.sleep(self._ping_seconds)
            has_started |= self._heard
            missed, allowed = (0 if self._heard else missed + 1), MAX_MISSED_PINGS if has_started else allowed

    async def _exit_reason(self, process: asyncio.subprocess.Process) -> str:
        try:
            async with asyncio.timeout(_EXIT_GRACE):
                code = await process.wait()
        except TimeoutError:
            return "it closed its output"
        return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a process, and read the rest of its output, which closes the pipes."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ProcessLookupError):
        process.kill()
    process.stdin.close()
    with suppress(OSError):
        while await process.stdout.read(2**20):
            pass
    await process.wait()


class PolledCMLClient(CMLSystemClient):
    """`CMLSystemSPI` whose regular reads are made by poller processes, and all other calls by this process."""

    def __init__(
        self,
        session: CMLSession,
        access: CmlAccess,
        processes: int,
        *,
        registry: CollectorRegistry = REGISTRY,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        super().__init__(session)
        calls, metrics = cml_call_metrics(registry), PollerMetrics(registry)
        self.pollers: Sequence[PollerProcess] = [
            PollerProcess(str(number), access, calls, metrics, ping_seconds=ping_seconds) for number in range(processes)
        ]
        self._pins: dict[str, str] = {}

    def poller_of(self, address: str) -> PollerProcess:
        """The process that reads a server; always the same one, which keeps its connection and session."""
        number = int.from_bytes(blake2b(address.encode(), digest_size=8).digest())
        return self.pollers[number % len(self.pollers)]

    async def read_server(self, query: ServerQuery, seconds: float) -> ServerReading:
        """Read several parts at once, within so many seconds; raises CMLPollerError if the poller does not respond."""
        address = query.address
        request = Request(0, address, self._pins.get(address), seconds, query=query)
        return cast("ServerReading", await self.poller_of(address).request(request))

    async def get_activity_events(self, address: str, credentials: Credentials) -> CMLActivity:
        """The newest events, oldest first."""
        request = self._request(address, "get_activity_events", credentials, ACTIVITY_SECONDS)
        return cast("CMLActivity", await self.poller_of(address).request(request))

    async def get_own_user_id(self, address: str, credentials: Credentials) -> str | None:
        """The user id of this account in the server's events, or None if the server does not report it."""
        request = self._request(address, "get_own_user_id", credentials, USERS_SECONDS)
        return cast("str | None", await self.poller_of(address).request(request))

    def trust(self, address: str, certificate: str) -> None:
        """Accept only the certificate with this SHA-256 fingerprint at an address, where certificates are pinned."""
        super().trust(address, certificate)
        self._pins[address] = certificate

    def forget(self, address: str) -> None:
        """Drop all sessions with an address, because another server now uses it."""
        super().forget(address)
        self._pins.pop(address, None)
        self.poller_of(address).forget(address)

    async def close_pollers(self) -> None:
        """End all processes."""
        await asyncio.gather(*(poller.close() for poller in self.pollers))

    def _request(self, address: str, method: str, credentials: Credentials, seconds: float) -> Request:
        return Request(0, address, self._pins.get(address), seconds, method=method, arguments=(credentials,))
