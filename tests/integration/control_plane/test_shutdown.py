"""SIGTERM to a real control plane: what runs is finished, streams end with a notice, and nothing is left unsaid."""

from __future__ import annotations

import json
import signal
import socket
import threading
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.servers.control_plane import ADMIN, ControlPlaneProcess
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers.etcd import EtcdServer


@pytest.fixture
def plane(tmp_path: Path, etcd_server: EtcdServer) -> Iterator[ControlPlaneProcess]:
    made = ControlPlaneProcess(tmp_path, etcd_server, "lcm-shutdown", SHUTDOWN_SECONDS="300")
    yield made.start()
    made.process.end()


class EventReader(threading.Thread):
    """Reads the event stream until the server ends it."""

    def __init__(self, plane: ControlPlaneProcess) -> None:
        super().__init__()
        self._url = f"{plane.url}/api/events/stream"
        self.connected = threading.Event()
        self.received = ""
        self.problem: Exception | None = None

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        try:
            with httpx.stream("GET", self._url, headers=headers, timeout=180) as stream:
                self.connected.set()
                for text in stream.iter_text():
                    self.received += text
        except httpx.HTTPError as error:
            self.problem = error


def accepts(plane: ControlPlaneProcess) -> bool:
    try:
        socket.create_connection(("127.0.0.1", plane.port), timeout=30).close()
    except ConnectionRefusedError:
        return False
    return True


def test_sigterm_finishes_what_runs_ends_streams_and_exits_with_0(plane: ControlPlaneProcess) -> None:
    reader = EventReader(plane)
    reader.start()
    assert reader.connected.wait(180)
    body = json.dumps({"name": "half-sent", "template_name": "small"}).encode()
    head = (
        f"POST /api/workers HTTP/1.1\r\nHost: lcm\r\nAuthorization: Bearer {ADMIN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", plane.port), timeout=180) as connection:
        connection.sendall(head.encode())
        assert b"100 Continue" in connection.recv(65536), "the request runs and waits for its body"
        plane.process.signal(signal.SIGTERM)
        wait_until(lambda: not accepts(plane), "no more connections are accepted")
        reader.join(180)
        assert (reader.problem, "event: shutdown" in reader.received) == (None, True)
        connection.settimeout(3)
        with pytest.raises(TimeoutError):
            connection.recv(1)  # it would be cut off here: the longer this waits, the surer
        connection.settimeout(180)
        connection.sendall(body)
        response = b""
        while chunk := connection.recv(65536):
            response += chunk
    assert response.startswith(b"HTTP/1.1 201"), response
    assert plane.process.wait() == 0
    log = plane.process.log_path.read_text()
    assert [words for words in ("never retrieved", "Traceback", "did not stop cleanly") if words in log] == []
    plane.start()
    assert plane.worker("half-sent").name == "half-sent"
