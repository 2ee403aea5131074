"""An HTTP proxy that holds a matches request, before or after it is forwarded, and records all exchanges."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.parse
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from types import TracebackType
    from typing import Self

R = TypeVar("R")

PATIENCE = 240.0
_LONGEST_HOLD = 600.0
_HEAD_ENDS = b"\r\n\r\n"


class LoopThread:
    """An event loop in a thread of its own, for tests whose own thread waits for processes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in that loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


@dataclass(eq=False)
class Exchange:
    """A request and its response, if there was one."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float = 0.0  # when the whole request had arrived (boot time, of all processes of this machine)
    status: int = 0
    response: bytes = b""

    @property
    def form(self) -> dict[str, str]:
        """The form fields of a request to EC2."""
        return dict(urllib.parse.parse_qsl(self.body.decode()))

    @property
    def operation(self) -> str:
        """The AWS operation, or the last segment of the path, with the status that is written."""
        if "x-amz-target" in self.headers:
            return self.headers["x-amz-target"].rsplit(".", 1)[-1]
        if self.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return self.form.get("Action", "")
        name = self.path.partition("?")[0].rpartition("/")[2]
        return f"{name} {self.request_json['status']}" if name == "status" else name

    @property
    def request_json(self) -> dict[str, Any]:
        """The request body as JSON."""
        content: dict[str, Any] = json.loads(self.body)
        return content

    @property
    def response_json(self) -> dict[str, Any]:
        """The response body as JSON."""
        content: dict[str, Any] = json.loads(self.response)
        return content

    @property
    def term(self) -> int:
        """The term of the leader that writes; 0 without one."""
        return int(self.headers.get("x-lcm-leader-term", "0"))


class Hold:
    """Holds the first exchange of an operation until the test decides how it continues."""

    def __init__(self, operation: str, *, after: bool) -> None:
        self.operation = operation
        self.after = after
        self.exchange: Exchange | None = None
        self._arrived = threading.Event()
        self._decided = threading.Event()
        self._ended = threading.Event()
        self._passes = False

    def wait(self) -> Exchange | None:
        """Wait until the exchange is held."""
        assert self._arrived.wait(PATIENCE), f"no request for {self.operation}"
        return self.exchange

    def let_go(self) -> None:
        """Let it continue and wait until it has ended."""
        self._decide(passes=True)

    def drop(self) -> None:
        """Drop the held exchange."""
        self._decide(passes=False)

    def _decide(self, *, passes: bool) -> None:
        self._passes = passes
        self._decided.set()
        assert self._ended.wait(PATIENCE), f"{self.operation} did not end"

    def abandon(self) -> None:
        """End the hold without a decision."""
        self._decided.set()

    # For the proxy

    async def reached(self, exchange: Exchange | None = None) -> bool:
        """Wait for the decision; returns whether to continue."""
        self.exchange = exchange
        self._arrived.set()
        await asyncio.to_thread(self._decided.wait, _LONGEST_HOLD)
        return self._passes

    def ended(self) -> None:
        """The decision has been carried out."""
        self._ended.set()


class Holds:
    """The holds of a proxy; each applies to one exchange."""

    def __init__(self) -> None:
        self._waiting: list[Hold] = []
        self._taken: list[Hold] = []

    def add(self, operation: str, *, after: bool) -> Hold:
        """Hold the next exchange of an operation before or after it is forwarded."""
        hold = Hold(operation, after=after)
        self._waiting.append(hold)
        return hold

    def take(self, operation: str, *, after: bool) -> Hold | None:
        """Take the hold for this operation, if there is one."""
        for hold in list(self._waiting):
            if (hold.operation, hold.after) == (operation, after):
                self._waiting.remove(hold)
                self._taken.append(hold)
                return hold
        return None

    def clear(self) -> None:
        """Remove all holds; exchanges that are still held are dropped."""
        self._waiting.clear()
        while self._taken:
            self._taken.pop().abandon()


class HttpGate:
    """A proxy in front of an HTTP server. Every request is forwarded on its own connection."""

    def __init__(self, port: int) -> None:
        self.exchanges: list[Exchange] = []
        self.holds = Holds()
        self.swallows: Callable[[Exchange], bool] = lambda _: False
        """Whether a request is read and never answered."""
        self._target = port
        self._port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Cut all connections."""
        assert self._server is not None
        self.holds.clear()
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def of(self, matches: Callable[[Exchange], bool]) -> list[Exchange]:
        """The matching exchanges, in order."""
        return [exchange for exchange in list(self.exchanges) if matches(exchange)]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held: list[Hold] = []
        try:
            exchange = await _request(reader)
            self.exchanges.append(exchange)
            if self.swallows(exchange):
                await reader.read()  # until the caller has given up
                return
            await self._pass(exchange, writer, held)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            for hold in held:
                hold.ended()

    async def _pass(self, exchange: Exchange, writer: asyncio.StreamWriter, held: list[Hold]) -> None:
        if not await self._let_through(exchange, held, after=False):
            return
        response = await self._forward(exchange)
        if not await self._let_through(exchange, held, after=True):
            return
        writer.write(response)
        await writer.drain()

    async def _let_through(self, exchange: Exchange, held: list[Hold], *, after: bool) -> bool:
        hold = self.holds.take(exchange.operation, after=after) if exchange.method == "POST" else None
        if hold is None:
            return True
        held.append(hold)
        return await hold.reached(exchange)

    async def _forward(self, exchange: Exchange) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            kept = {name: value for name, value in exchange.headers.items() if name != "connection"}
            lines = [f"{exchange.method} {exchange.path} HTTP/1.1", "connection: close"]
            lines += [f"{name}: {value}" for name, value in kept.items()]
            writer.write("\r\n".join(lines).encode() + _HEAD_ENDS + exchange.body)
            response = await reader.read(-1)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        head, _, exchange.response = response.partition(_HEAD_ENDS)
        exchange.status = int(head.split(b" ", 2)[1]) if head else 0
        return response


async def _request(reader: asyncio.StreamReader) -> Exchange:
    head = (await reader.readuntil(_HEAD_ENDS)).decode("latin-1")
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Exchange(method, path, headers, body, clock.boottime())
