"""A load balancer: each connection goes to the next of several servers."""

from __future__ import annotations

import itertools
import select
import socket
import socketserver
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_CHUNK = 65536
_TIMEOUT = 60.0


class Balancer:
    """One address for servers at these ports of this computer."""

    def __init__(self, *ports: int) -> None:
        self._next_port = itertools.cycle(ports)
        self.connections: list[int] = []
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            """Forwards one connection."""

            def handle(self) -> None:
                port = next(outer._next_port)
                outer.connections.append(port)
                with socket.create_connection(("127.0.0.1", port), _TIMEOUT) as far, suppress(OSError):
                    _forward(self.request, far)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Balancer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()  # waits for connections


def _forward(near: socket.socket, far: socket.socket) -> None:
    pairs = {near: far, far: near}
    while True:
        for each in select.select(list(pairs), [], [], _TIMEOUT)[0]:
            data = each.recv(_CHUNK)
            if not data:
                return
            pairs[each].sendall(data)
