"""HTTP calls to an app in the same process, without a network: for `lcm up`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import structlog

from lcm.http.transport import ConnectionLostError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp, Message

    from lcm.http.transport import HttpRequest

log = structlog.get_logger(__name__)


class InProcessTransport:
    """Calls an ASGI app. A response is complete before it is returned, so streams without an end do not work."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def send(self, request: HttpRequest) -> BufferedResponse:
        """Let the app respond."""
        if request.before_send is not None:
            request.before_send()
        collected = _Collector(request.body or b"")
        try:
            await self._app(asgi_scope(request), collected.receive, collected.send)
        except Exception as error:
            # Like a server: the app has sent its response before it passes the error on.
            log.exception("the app failed", method=request.method, path=urlsplit(request.url).path)
            if not collected.complete:
                raise ConnectionLostError("the app failed without a response") from error
        if not collected.complete:
            raise ConnectionLostError("the app sent no complete response")
        return BufferedResponse(collected.status, collected.headers, bytes(collected.body))

    def discard(self, tls: ssl.SSLContext) -> None:
        """Nothing to do: there are no connections."""

    async def aclose(self) -> None:
        """Nothing to do."""


class BufferedResponse:
    """A response that is already there."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self._headers = headers
        self._body = body

    def header(self, name: str) -> str | None:
        """The first header of this name."""
        return self._headers.get(name.lower())

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in one piece."""
        if self._body:
            yield self._body

    async def aclose(self) -> None:
        """Nothing to do."""


class _Collector:
    """What an app receives and sends."""

    def __init__(self, request_body: bytes) -> None:
        self._request: list[Message] = [{"type": "http.request", "body": request_body, "more_body": False}]
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self._completed = asyncio.Event()

    @property
    def complete(self) -> bool:
        """Whether the app has sent its whole response."""
        return self._completed.is_set()

    async def receive(self) -> Message:
        if self._request:
            return self._request.pop()
        await self._completed.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            for name, value in message.get("headers", ()):
                self.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            if not message.get("more_body", False):
                self._completed.set()


def asgi_scope(request: HttpRequest) -> dict[str, Any]:
    """The request as an ASGI app gets it."""
    parsed = urlsplit(request.url)
    headers = [(b"host", parsed.netloc.encode("latin-1"))]
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    if request.body is not None:
        headers.append((b"content-length", str(len(request.body)).encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": parsed.scheme,
        "path": unquote(parsed.path) or "/",
        "raw_path": parsed.path.encode() or b"/",
        "query_string": parsed.query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": (parsed.hostname, parsed.port),
    }
