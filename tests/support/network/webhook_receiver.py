"""Receivers of notifications inside a test: an HTTP transport whose hosts respond as told, in virtual time too."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lcm.core import clock
from lcm.http.transport import ConnectionFailedError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from datetime import datetime

    from lcm.http.transport import HttpRequest


@dataclass(slots=True)
class ReceivedMessage:
    """A message, and when it came."""

    headers: dict[str, str]
    body: bytes
    at: datetime

    @property
    def id(self) -> str:
        """Its id."""
        return self.headers["webhook-id"]

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that it carries."""
        data: dict[str, Any] = json.loads(self.body)["data"]
        alerts: list[dict[str, Any]] = data.get("alerts", [data])
        return alerts


@dataclass(slots=True)
class Receiver:
    """One host. `status` is what it responds; None: it cannot be reached.

    It responds 413 to bodies above `max_bytes`. `hangs`: it never responds; `is_endless`: the body of its response
    never ends.
    """

    status: int | None = 200
    hangs: bool = False
    is_endless: bool = False
    seconds: float = 0.0
    max_bytes: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    text: bytes = b"ok"
    requests: int = 0
    messages: list[ReceivedMessage] = field(default_factory=list)

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """All alerts that it accepted, in order."""
        return [alert for message in self.messages for alert in message.alerts]


@dataclass(slots=True)
class _Response:
    status: int
    headers: dict[str, str]
    text: bytes
    is_endless: bool

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.text
        if self.is_endless:
            await asyncio.Event().wait()

    async def aclose(self) -> None:
        return


class Receivers:
    """A transport to receivers by host name."""

    def __init__(self) -> None:
        self.hosts: dict[str, Receiver] = {}
        self.closed = False

    def add(self, name: str, **behaviour: Any) -> Receiver:
        """A new host."""
        self.hosts[name] = Receiver(**behaviour)
        return self.hosts[name]

    async def send(self, request: HttpRequest) -> _Response:
        receiver = self.hosts.get(urlsplit(request.url).hostname or "", Receiver(status=None))
        receiver.requests += 1
        if receiver.status is None:
            raise ConnectionFailedError("connection refused")
        if request.before_send is not None:
            request.before_send()
        if receiver.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(receiver.seconds)
        assert receiver.status is not None
        if receiver.max_bytes is not None and len(request.body or b"") > receiver.max_bytes:
            return _Response(413, receiver.headers, b"too large", is_endless=False)
        if receiver.status < 300:
            receiver.messages.append(ReceivedMessage(dict(request.headers), request.body or b"", clock.now()))
        return _Response(receiver.status, receiver.headers, receiver.text, receiver.is_endless)

    def discard(self, tls: ssl.SSLContext) -> None:
        return

    async def aclose(self) -> None:
        self.closed = True
