"""An instance metadata service on loopback (IMDSv2) that hands out credentials, or stays silent."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROLE = "lcm-controller"
_CREDENTIALS_PATH = "/latest/meta-data/iam/security-credentials/"
_LIFETIME = timedelta(hours=6)


class MetadataService:
    """While `silent`, every request fails, as on a host whose metadata service is not up yet."""

    def __init__(self) -> None:
        self.silent = False
        self.requests = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self._send("a-token")

            def do_GET(self) -> None:
                self._send(_ROLE if self.path == _CREDENTIALS_PATH else service.credentials())

            def _send(self, text: str) -> None:
                service.requests += 1
                self.send_response(500 if service.silent else 200)
                self.end_headers()
                self.wfile.write(b"" if service.silent else text.encode())

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @staticmethod
    def credentials() -> str:
        return json.dumps(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "AccessKeyId": "from-metadata",
                "SecretAccessKey": "secret",
                "Token": "token",
                "Expiration": (datetime.now(UTC) + _LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def metadata_service() -> Iterator[MetadataService]:
    """A metadata service that responds."""
    service = MetadataService()
    try:
        yield service
    finally:
        service.close()
