"""Headers by which browsers guard our pages."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence
    from typing import Any, TypeAlias

    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

CACHEABLE_PATHS = ("/static/",)
"""Where answers are the same for everybody. All others may be about who is signed in: no cache keeps them."""

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
    # Not no-referrer: then browsers call the origin of our own forms null, and nobody could sign in with them.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)
_ONE_YEAR_SECONDS = 365 * 24 * 3600


def security_headers(
    path: str, *, secure: bool, cacheable: Sequence[str] = CACHEABLE_PATHS
) -> tuple[tuple[str, str], ...]:
    """The headers of an answer for a path; `secure`: it goes over TLS."""
    headers: tuple[tuple[str, str], ...] = _BASE_HEADERS
    if not path.startswith(tuple(cacheable)):
        headers += (("cache-control", "no-store"),)
    if secure:
        # Without TLS browsers must ignore it, and on a machine that serves other ports in clear it would lock them out.
        headers += (("strict-transport-security", f"max-age={_ONE_YEAR_SECONDS}"),)
    return headers


@cache
def _encoded(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[bytes, bytes], ...]:
    """The same few sets of headers go onto every answer."""
    return tuple((name.encode(), value.encode()) for name, value in headers)


class SecurityHeadersMiddleware:
    """ASGI middleware: puts the headers on every answer, instead of any of the same name. It holds nothing back."""

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
                kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in replaced]
                message["headers"] = [*kept, *added]
            await send(message)

        await self._app(scope, receive, send_with_headers)
