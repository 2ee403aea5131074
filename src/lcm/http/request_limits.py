"""Limits on request bodies, checked before a request is routed, authenticated or parsed.

Every app of ours reads a body as a whole, so this layer reads it first: up to a number of bytes that depends on the
path, within a number of seconds, and up to a total over all requests. What is too large, too slow or aborted never
reaches the app.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from typing import TypeAlias

    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

log = structlog.get_logger(__name__)

MAX_BODY_BYTES: Final = 1024 * 1024
BODY_SECONDS: Final = 30.0
MAX_BUFFERED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all bodies that are held at a time. It bounds what many slow or simultaneous uploads can take."""

_DRAIN_SECONDS: Final = 1.0


def default_max_body(_path: str) -> int:
    """The same limit for every path."""
    return MAX_BODY_BYTES


class _RejectedRequestError(Exception):
    """The request is refused; the parts of the response."""

    def __init__(self, status: int, title: str, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.code = code
        self.detail = detail


_INVALID_QUERY: Final = _RejectedRequestError(
    400, "Bad request", "invalid", "query: must be percent-encoded; only ASCII is allowed in a URL"
)


@dataclass(slots=True)
class _Body:
    """What has arrived of a body."""

    content: bytearray = field(default_factory=bytearray)
    is_complete: bool = False


class RequestLimitsMiddleware:
    """ASGI middleware that hands the app only requests whose body has arrived and is small enough."""

    def __init__(
        self,
        app: App,
        max_body: Callable[[str], int] = default_max_body,
        *,
        seconds: float = BODY_SECONDS,
        max_buffered: int = MAX_BUFFERED_BYTES,
    ) -> None:
        self._app = app
        self._max_body = max_body
        self._seconds = seconds
        self._max_buffered = max_buffered
        self._buffered = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["query_string"].isascii():
            await _refuse(scope, _INVALID_QUERY, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        body = _Body()
        try:
            if await self._read(scope, receive, body):
                await self._app(scope, _replay(bytes(body.content), receive), send)
            else:
                log.info("upload aborted by the client", path=scope["path"], received_bytes=len(body.content))
        except _RejectedRequestError as refused:
            log.info("request body refused", path=scope["path"], status=refused.status, client=_client(scope))
            await _refuse(scope, refused, send)
            if not body.is_complete:
                await _drain(receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._buffered -= len(body.content)

    async def _read(self, scope: Message, receive: Receive, body: _Body) -> bool:
        """Read the body; False if the client has gone away."""
        largest = self._max_body(scope["path"])
        if _announced_length(scope) > largest:
            raise _too_large(largest)  # before a byte of it is read
        try:
            async with asyncio.timeout(self._seconds):
                return await self._receive_all(receive, body, largest)
        except TimeoutError:
            detail = f"body: must arrive within {self._seconds:g} s; send it again"
            raise _RejectedRequestError(408, "Request timeout", "request_timeout", detail) from None

    async def _receive_all(self, receive: Receive, body: _Body, largest: int) -> bool:
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return False
            chunk = message.get("body", b"")
            body.content += chunk
            body.is_complete = not message.get("more_body", False)
            self._buffered += len(chunk)
            if len(body.content) > largest:
                raise _too_large(largest)
            if body.is_complete:
                return True
            if self._buffered > self._max_buffered:
                detail = "too many large requests at once; try again in a moment"
                raise _RejectedRequestError(503, "Service unavailable", "unavailable", detail)


def _has_body(scope: Message) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


def _announced_length(scope: Message) -> int:
    """The Content-Length; 0 if it is missing or not a number: then the bytes that arrive are counted."""
    values = [value for name, value in scope["headers"] if name == b"content-length"]
    return max((int(value[:20]) for value in values if value.isdigit()), default=0)


def _client(scope: Message) -> str:
    return str((scope.get("client") or ("",))[0])


def _too_large(largest: int) -> _RejectedRequestError:
    return _RejectedRequestError(413, "Too large", "too_large", f"body: must have at most {largest} bytes here")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out the body once, and then waits for the disconnect."""
    waiting = [body]

    async def receive_again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receive_again


async def _refuse(scope: Message, refused: _RejectedRequestError, send: Send) -> None:
    """Respond, and close the connection: what is left of the body must not be read as the next request."""
    problem = {
        "type": "about:blank",
        "title": refused.title,
        "status": refused.status,
        "code": refused.code,
        "detail": refused.detail,
        "instance": scope["path"],
        "errors": [],
    }
    content = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(content)),
        (b"connection", b"close"),
    ]
    if refused.status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": True})


async def _drain(receive: Receive) -> None:
    """Drop what still arrives for a moment. A connection closed with unread bytes may lose the response on its way."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            message = await receive()
            while message["type"] == "http.request" and message.get("more_body", False):
                message = await receive()
    except TimeoutError:
        return
