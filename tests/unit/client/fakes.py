"""Networks and servers that fail on purpose."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

URL = "http://lcm.test"


@dataclass
class FakeResponse:
    """A response of a server."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


def json_response(data: Any, status: int = 200, **headers: str) -> FakeResponse:
    """A JSON response."""
    return FakeResponse(status, json.dumps(data).encode(), {"content-type": "application/json", **headers})


def problem_response(
    status: int, code: str, detail: str = "not now", *, retry_after: int | None = None, **more: Any
) -> FakeResponse:
    """A problem document."""
    headers = {"content-type": "application/problem+json"}
    if retry_after is not None:
        headers["retry-after"] = str(retry_after)
    body = {"title": "No", "status": status, "code": code, "detail": detail, **more}
    return FakeResponse(status, json.dumps(body).encode(), headers)


class ScriptedServer:
    """An ASGI app that returns its responses in turn, then the last one again, and records the requests."""

    def __init__(self, *responses: FakeResponse) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self._responses = list(responses)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((scope["method"], scope["path"], headers, body))
        response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
        names = [(name.encode(), value.encode()) for name, value in response.headers.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": names})
        await send({"type": "http.response.body", "body": response.body})


Fault = str | None


class FaultyNetwork(httpx.AsyncBaseTransport):
    """The network to an app. Faults apply in turn: `refused` and `hangs` before the app gets the request, `lost` and
    `late` after it.
    """

    def __init__(self, app: Any, *faults: Fault) -> None:
        self._app = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._faults = list(faults)
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        fault = self._faults.pop(0) if self._faults else None
        if fault == "refused":
            raise httpx.ConnectError("connection refused", request=request)
        if fault == "hangs":
            await asyncio.Event().wait()
        response = await self._app.handle_async_request(request)
        if fault == "late":
            await asyncio.sleep(3600)
        if fault == "lost":
            raise httpx.ReadError("the connection broke", request=request)
        return response


class ScriptedBody(httpx.AsyncByteStream):
    """A body that comes piece by piece: bytes, seconds to wait, or an error."""

    def __init__(self, pieces: Sequence[bytes | float | Exception]) -> None:
        self._pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                yield piece
            elif isinstance(piece, Exception):
                raise piece
            else:
                await asyncio.sleep(piece)

    async def aclose(self) -> None:
        self.closed = True


class FakeStreamServer(httpx.AsyncBaseTransport):
    """Serves one scripted connection after another; when there are no more it refuses."""

    def __init__(self, *scripts: Sequence[bytes | float | Exception] | Callable[[], httpx.Response]) -> None:
        self._scripts = list(scripts)
        self.requests: list[httpx.Request] = []
        self.times: list[float] = []
        self.bodies: list[ScriptedBody] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        if not self._scripts:
            raise httpx.ConnectError("connection refused", request=request)
        script = self._scripts.pop(0)
        if callable(script):
            return script()
        self.bodies.append(ScriptedBody(script))
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=self.bodies[-1])
