"""HTTP between simulated nodes: requests and responses may be slow or lost.

The handler runs as a task of the server: it continues when the client has given up, and ends when the server dies.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lcm.http.in_process import asgi_scope
from lcm.http.transport import ConnectionFailedError, ConnectionLostError, ResponseTimeoutError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

    from lcm.http.transport import HttpRequest
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

    def fate(self, client: str, request: HttpRequest) -> Fate:
        """The fate of this request."""

    def serving(self) -> tuple[Node, Any] | None:
        """The node that serves and its ASGI app; None if there is none."""

    def arrived(self, request: HttpRequest) -> Callable[[int], None]:
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


class _Response:
    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange
        self.status = exchange.status
        self._headers: dict[bytes, bytes] = {}
        for name, value in exchange.headers:
            self._headers.setdefault(name.lower(), value)

    def header(self, name: str) -> str | None:
        value = self._headers.get(name.lower().encode("latin-1"))
        return None if value is None else value.decode("latin-1")

    async def chunks(self) -> AsyncIterator[bytes]:
        exchange = self._exchange
        while True:
            while exchange.chunks:
                yield exchange.chunks.pop(0)
            if exchange.broken:
                raise ConnectionLostError("the connection broke")
            if exchange.complete:
                return
            exchange.changed.clear()
            await exchange.changed.wait()

    async def aclose(self) -> None:
        pass


class SimulatedWire:
    """The HTTP transport of one client: its connection to the serving node."""

    def __init__(self, network: Network, client: str) -> None:
        self._network = network
        self._client = client

    async def send(self, request: HttpRequest) -> _Response:
        """Send a request and wait for the headers of its response."""
        if request.before_send is not None:
            request.before_send()
        fate = self._network.fate(self._client, request)
        try:
            async with asyncio.timeout(request.read_seconds):
                return await self._exchange(request, fate)
        except TimeoutError:
            raise ResponseTimeoutError("the response timed out") from None

    def discard(self, tls: ssl.SSLContext) -> None:
        """Nothing to do: there is no TLS."""

    async def aclose(self) -> None:
        """Nothing to do."""

    async def _exchange(self, request: HttpRequest, fate: Fate) -> _Response:
        exchange = _Exchange()
        if fate.lost_there:
            await asyncio.sleep(fate.there)
            await _lost(fate.lost_there)
        # A sent request arrives even if its sender no longer waits, or has died.
        self._network.loop.call_globally(fate.there, lambda: self._deliver(request, exchange))
        await exchange.started.wait()
        if exchange.refused:
            raise ConnectionFailedError("connection refused")
        await asyncio.sleep(fate.back)
        await _lost(fate.lost_back)
        if exchange.broken and not exchange.status:
            raise ConnectionLostError("the connection broke")
        return _Response(exchange)

    def _deliver(self, request: HttpRequest, exchange: _Exchange) -> None:
        serving = self._network.serving()
        if serving is None:
            exchange.refuse()
            return
        node, app = serving
        arrived = _connections(node)
        arrived.append(exchange)
        on_response = self._network.arrived(request)
        node.run(_serve(app, asgi_scope(request), request.body or b"", exchange, arrived, on_response), "request")


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


async def _lost(how: str) -> None:
    if how == "refused":
        raise ConnectionFailedError("connection refused")
    if how == "broken":
        raise ConnectionLostError("the connection broke")
    if how == "silent":
        await asyncio.Event().wait()
