"""Headers of every response: security headers for browsers, and what our clock shows."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence
    from typing import Any, TypeAlias

    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

TIME_HEADER = b"x-lcm-time"
"""What the clock of the control plane shows, by which controllers measure the moments in records."""

EARLIEST_TIME_HEADER = b"x-lcm-earliest-time"
"""The time that the control plane measures deadlines with."""

CACHEABLE_PATHS = ("/static/",)
"""Paths whose responses are the same for everyone. Others may depend on who is signed in and must not be cached."""

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "manifest-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)
_BASE_HEADERS = (
    ("content-security-policy", "; ".join(_CONTENT_SECURITY_POLICY)),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),  # for browsers that do not know frame-ancestors
    # Not no-referrer: browsers would then send the origin of our own forms as null, and sign-in would fail.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)
_ONE_YEAR_SECONDS = 365 * 24 * 3600


def security_headers(
    path: str, *, secure: bool, cacheable: Sequence[str] = CACHEABLE_PATHS
) -> tuple[tuple[str, str], ...]:
    """The headers of a response for a path; `secure` means it is sent over TLS."""
    headers: tuple[tuple[str, str], ...] = _BASE_HEADERS
    if not path.startswith(tuple(cacheable)):
        headers += (("cache-control", "no-store"),)
    if secure:
        # Only over TLS: browsers must ignore it otherwise, and it would block other plaintext ports of the same host.
        headers += (("strict-transport-security", f"max-age={_ONE_YEAR_SECONDS}"),)
    return headers


@cache
def _encoded(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[bytes, bytes], ...]:
    """Cached, because there are only a few different sets of headers."""
    return tuple((name.encode(), value.encode()) for name, value in headers)


def _times() -> tuple[tuple[bytes, bytes], ...]:
    """Read anew for each response: after a restart, a controller may be the only one that knows of a jump."""
    shown, earliest = clock.now().isoformat(), clock.earliest_known().isoformat()
    return (TIME_HEADER, shown.encode()), (EARLIEST_TIME_HEADER, earliest.encode())


class SecurityHeadersMiddleware:
    """ASGI middleware that sets the headers on every response, replacing those of the same name. It buffers nothing."""

    def __init__(self, app: App, cacheable: Sequence[str] = CACHEABLE_PATHS) -> None:
        self._app = app
        self._cacheable = cacheable

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        secure = scope.get("scheme") == "https"
        added = _encoded(security_headers(scope["path"], secure=secure, cacheable=self._cacheable))
        replaced = {name for name, _ in added}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in replaced]
                message["headers"] = [*others, *added, *_times()]
            await send(message)

        await self._app(scope, receive, send_with_headers)
