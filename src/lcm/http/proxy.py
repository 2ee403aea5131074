"""HTTP proxies that open tunnels (CONNECT): they forward bytes, and TLS is end to end."""

from __future__ import annotations

import base64
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

MAX_PROXY_HEADER_BYTES: Final = 16 * 1024
_HTTP_PORT: Final = 80


class ProxyAddress:
    """Where a proxy listens, and the account from its URL."""

    def __init__(self, url: str) -> None:
        parsed = urlsplit(url)
        self.host = parsed.hostname or ""
        self.port = parsed.port or _HTTP_PORT
        account = parsed.netloc.rpartition("@")[0]
        self._authorization = base64.b64encode(unquote(account).encode()).decode() if account else ""

    def connect_request(self, host: str, port: int) -> bytes:
        """The request for a tunnel to a server."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self._authorization:
            lines.append(f"Proxy-Authorization: Basic {self._authorization}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def proxy_from_environment(url: str) -> ProxyAddress | None:
    """The proxy that the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY) names for a URL."""
    parsed = urlsplit(url)
    found = getproxies().get(parsed.scheme)
    if not found or proxy_bypass(parsed.hostname or ""):
        return None
    return ProxyAddress(found if "://" in found else f"http://{found}")


def check_connect_response(head: bytes, rest: bytes = b"") -> None:
    """Raise ConnectionError unless the proxy has opened the tunnel. Nothing may come through it before our request."""
    status = head.split(b"\r\n", 1)[0].decode(errors="replace").split(" ", 2)
    if len(status) < 2 or not status[0].startswith("HTTP/1.") or not status[1].startswith("2"):
        raise ConnectionError(f"the proxy rejected the request: {' '.join(status)[:100]!r}")
    if rest:
        raise ConnectionError("data came through the proxy that was not requested")
