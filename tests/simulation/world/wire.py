"""HTTP between simulated nodes: requests and responses may be slow or lost.

The handler runs as a task of the server: it continues when the client has given up, and ends when the server dies.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.simulation.world.loop import Node, SeededLoop


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of one request. A broken connection is an error at once, silence is one after the client's timeout."""

    there: float = 0.0
    back: float = 0.0
    lost_there: str = ""  # "", "refused", "broken" or "silent"
    lost_back: str = ""  # "", "broken" or "silent"


class Network(Protocol):
    """Decides the fate of requests, and knows which node serves."""

    loop: SeededLoop

    def fate(self, client: str, request: httpx.Request) -> Fate:
        """The fate of this request."""

    def serving(self) -> tuple[Node, Any] | None:
        """The node that serves and its ASGI app; None if there is none."""

    def arrived(self, request: httpx.Request) -> Callable[[int], None]:
        """A request has reached the server. The returned callback gets the status of the response."""


class _Exchange:
    """One request at the server, and its state."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.chunks: list[bytes] = []
        self.started = asyncio.Event()
        self.changed = asyncio.Event()
        self.complete = False
        self.broken = False
        self.refused = False

    async def send(self, message: dict[str, Any]) -> None:
        """A message of the app."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message.get("headers", ()))
            return
        self.chunks.append(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        self.started.set()
        self.changed.set()

    def refuse(self) -> None:
        """There is no server."""
        self.refused = True
        self.started.set()

    def end(self) -> None:
        """The server is gone."""
        self.broken = not self.complete
        self.started.set()
        self.changed.set()


class _Body(httpx.AsyncByteStream):
    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        exchange = self._exchange
        while True:
            while exchange.chunks:
                yield exchange.chunks.pop(0)
            if exchange.broken:
                raise httpx.ReadError("the connection broke")
            if exchange.complete:
                return
            exchange.changed.clear()
            await exchange.changed.wait()


class SimulatedWire(httpx.AsyncBaseTransport):
    """The connection of one client to the serving node."""

    def __init__(self, network: Network, client: str) -> None:
        self._network = network
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        content = await request.aread()
        fate = self._network.fate(self._client, request)
        limit = request.extensions.get("timeout", {}).get("read") or 10.0
        try:
            async with asyncio.timeout(limit):
                return await self._exchange(request, content, fate)
        except TimeoutError:
            raise httpx.ReadTimeout("the response timed out", request=request) from None

    async def _exchange(self, request: httpx.Request, content: bytes, fate: Fate) -> httpx.Response:
        exchange = _Exchange()
        if fate.lost_there:
            await asyncio.sleep(fate.there)
            await _lost(fate.lost_there, request)
        # A sent request arrives even if its sender no longer waits, or has died.
        self._network.loop.call_globally(fate.there, lambda: self._deliver(request, content, exchange))
        await exchange.started.wait()
        if exchange.refused:
            raise httpx.ConnectError("connection refused", request=request)
        await asyncio.sleep(fate.back)
        await _lost(fate.lost_back, request)
        if exchange.broken and not exchange.status:
            raise httpx.ReadError("the connection broke", request=request)
        return httpx.Response(exchange.status, headers=exchange.headers, stream=_Body(exchange), request=request)

    def _deliver(self, request: httpx.Request, content: bytes, exchange: _Exchange) -> None:
        serving = self._network.serving()
        if serving is None:
            exchange.refuse()
            return
        node, app = serving
        arrived = _connections(node)
        arrived.append(exchange)
        on_response = self._network.arrived(request)
        node.run(_serve(app, _scope(request), content, exchange, arrived, on_response), "request")


async def _serve(
    app: Any,
    scope: dict[str, Any],
    content: bytes,
    exchange: _Exchange,
    arrived: list[_Exchange],
    on_response: Callable[[int], None],
) -> None:
    request_sent = False

    async def receive() -> dict[str, Any]:
        nonlocal request_sent
        if request_sent:
            await asyncio.Event().wait()
        request_sent = True
        return {"type": "http.request", "body": content, "more_body": False}

    try:
        await app(scope, receive, exchange.send)
        on_response(exchange.status)
    except Exception:  # noqa: BLE001 - the app has already reported it
        exchange.end()
    finally:
        if exchange in arrived:
            arrived.remove(exchange)


def _connections(node: Node) -> list[_Exchange]:
    """The requests in progress at a node; they break when it dies."""
    known: list[_Exchange] | None = getattr(node, "connections", None)
    if known is None:
        known = []
        node.connections = known  # type: ignore[attr-defined]
        before = node.on_death

        def died() -> None:
            before()
            for exchange in known:
                exchange.end()

        node.on_death = died
    return known


async def _lost(how: str, request: httpx.Request) -> None:
    if how == "refused":
        raise httpx.ConnectError("connection refused", request=request)
    if how == "broken":
        raise httpx.ReadError("the connection broke", request=request)
    if how == "silent":
        await asyncio.Event().wait()


def _scope(request: httpx.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": ("10.0.0.1", 40000),
        "server": (request.url.host, request.url.port),
    }
