"""A poller process: it reads CML servers for the worker controller, on an event loop of its own.

It takes requests from standard input and writes responses to standard output, and exits at the end of its input, so
that it never outlives its parent. Messages are pickled, as between the processes of `multiprocessing`: both ends are
the same program. It sends no mutating call: those need the controller's lease.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.errors import CMLError, CMLPollerError
from lcm.cml.heap import release_free_memory
from lcm.core.hosting import cancel_and_wait, run_process

if TYPE_CHECKING:
    from lcm.cml.client.access import CmlAccess
    from lcm.cml.reading import ServerQuery

RELEASE_SECONDS: Final = 60.0
"""Seconds between two releases of memory that TLS handshakes have left behind; each takes a few milliseconds."""
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
_LENGTH: Final = struct.Struct(">I")

RecordedCall = tuple[str, str, float]


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks whether the event loop runs."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Another server now uses this address."""

    address: str


@dataclass(frozen=True, slots=True)
class Request:
    """A call of `CMLSystemSPI`, or the reading of a server if there is a query. `pin` is its pinned certificate."""

    number: int
    address: str
    pin: str | None
    seconds: float
    query: ServerQuery | None = None
    method: str = ""
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Response:
    """The result of a request, and the calls to CML servers since the last response."""

    number: int
    value: Any = None
    error: CMLError | None = None
    calls: tuple[RecordedCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Pong:
    """The event loop runs."""


def encode_message(message: object) -> bytes:
    """A message with its length before it."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


async def read_message(reader: asyncio.StreamReader) -> Any:
    """The next message; raises IncompleteReadError at the end."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_MESSAGE_BYTES:
        raise asyncio.IncompleteReadError(b"", length)
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 - both ends are the same program


class CallLog:
    """The calls to CML servers since they were last taken: the controller exports their metrics."""

    def __init__(self) -> None:
        self._calls: list[RecordedCall] = []

    def record(self, operation: str, outcome: str, seconds: float) -> None:
        """A call has ended."""
        self._calls.append((operation, outcome, seconds))

    def take(self) -> tuple[RecordedCall, ...]:
        """The calls since the last time."""
        calls, self._calls = tuple(self._calls), []
        return calls


class _Server:
    """Responds to requests until the input ends."""

    def __init__(self, access: CmlAccess, output: asyncio.WriteTransport) -> None:
        self._transport = access.open()
        self._calls = CallLog()
        self._session = CMLSession(self._transport, metrics=self._calls)
        self._client = CMLSystemClient(self._session)
        self._output = output
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, reader: asyncio.StreamReader) -> None:
        releasing = asyncio.create_task(_release_memory())
        try:
            while True:
                try:
                    message = await read_message(reader)
                except asyncio.IncompleteReadError:
                    return
                self._take(message)
        finally:
            await cancel_and_wait([releasing, *self._tasks])
            await self._transport.aclose()

    def _take(self, message: Ping | Forget | Request) -> None:
        if isinstance(message, Ping):
            self._output.write(encode_message(Pong()))
        elif isinstance(message, Forget):
            self._session.forget(message.address)
        else:
            task = asyncio.create_task(self._respond(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _respond(self, request: Request) -> None:
        value, failure = None, None
        try:
            value = await self._call(request)
        except CMLError as error:
            failure = error
        except TimeoutError:
            failure = CMLPollerError(request.address, f"no response within {request.seconds:g} s")
        except Exception as error:  # noqa: BLE001 - it concerns one server; the controller reports it
            failure = CMLPollerError(request.address, f"the poller failed: {type(error).__name__}: {error}")
        self._output.write(encode_message(Response(request.number, value, failure, self._calls.take())))

    async def _call(self, request: Request) -> Any:
        if request.pin is not None:
            self._session.trust(request.address, request.pin)
        if request.query is not None:
            return await self._client.read_server(request.query, request.seconds)
        async with asyncio.timeout(request.seconds):
            return await getattr(self._client, request.method)(request.address, *request.arguments)


async def _release_memory() -> None:
    while True:
        await asyncio.sleep(RELEASE_SECONDS)
        release_free_memory()


async def serve(input_file: BinaryIO, output_file: BinaryIO) -> None:
    """Run until the input ends. Its first message says how CML servers are reached."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), input_file)
    writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, output_file)
    try:
        access = await read_message(reader)
        gc.collect()
        gc.freeze()
        await _Server(access, writing).run(reader)
    except asyncio.IncompleteReadError:
        return
    finally:
        reading.close()
        writing.close()


def main() -> None:
    """Run the poller process. The parent handles signals to stop; this process exits at the end of its input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Output printed by libraries must not get between the responses.
    responses = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    run_process(serve(sys.stdin.buffer, responses))
