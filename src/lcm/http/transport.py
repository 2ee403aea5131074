"""The port for HTTP calls: what a transport takes, returns and raises. `network` and `in_process` are its adapters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping


class HttpTransportError(Exception):
    """A call got no complete response; its kind says how far it came."""


class ConnectionFailedError(HttpTransportError):
    """There was no connection, so nothing of the request was sent. `__cause__` may be the error of TLS."""


class ConnectTimeoutError(ConnectionFailedError):
    """The connection was not there in time."""


class ProxyError(ConnectionFailedError):
    """The proxy did not connect."""


class ResponseTimeoutError(HttpTransportError):
    """The request was sent, and then nothing arrived in time."""


class ConnectionLostError(HttpTransportError):
    """The connection ended between the request and the end of its response."""


class InvalidHttpError(HttpTransportError):
    """What arrived is not valid HTTP, or exceeds the limits on headers."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `url` is absolute and encoded; `tls` verifies the server of an https URL.

    `before_send` is called when the connection exists, right before the first byte; an error that it raises leaves the
    request unsent. With `keep=False` the connection serves this request only.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    connect_seconds: float = 5.0
    read_seconds: float = 30.0  # the longest silence
    tls: ssl.SSLContext | None = None
    before_send: Callable[[], None] | None = None
    keep: bool = True


class HttpResponse(Protocol):
    """A response whose headers have arrived. Close it, whatever was read of it."""

    @property
    def status(self) -> int:
        """The status code."""

    def header(self, name: str) -> str | None:
        """The first header of this name, in any case."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, still encoded as its content-encoding says."""

    async def aclose(self) -> None:
        """Stop reading. Unless everything was read, the connection is closed."""


class HttpTransport(Protocol):
    """Sends requests: no redirects, no cookies, no second attempts, nothing from the environment."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request and wait for the headers of its response; raises HttpTransportError."""

    def discard(self, tls: ssl.SSLContext) -> None:
        """Use no connection any more that was verified with this context."""

    async def aclose(self) -> None:
        """Close all connections, and wait until they are closed."""
