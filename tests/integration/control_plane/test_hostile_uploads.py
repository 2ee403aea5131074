"""Large, slow and aborted uploads without a token, against a real process."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.servers.control_plane import ControlPlaneProcess
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers.etcd import EtcdServer

HUNDRED_MEGABYTES = 100_000_000
CHUNK = bytes(64 * 1024)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, etcd_server: EtcdServer) -> Iterator[ControlPlaneProcess]:
    made = ControlPlaneProcess(tmp_path_factory.mktemp("plane"), etcd_server, "hostile-uploads")
    try:
        yield made.start()
    finally:
        made.process.end()


def resident_kib(plane: ControlPlaneProcess) -> int:
    status = Path(f"/proc/{plane.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def open_upload(plane: ControlPlaneProcess, path: str, headers: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", plane.port), timeout=60)
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: lcm\r\n{headers}\r\n\r\n".encode())
    return connection


def status_line(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n" not in received and (some := connection.recv(4096)):
        received += some
    return received.partition(b"\r\n")[0]


@pytest.mark.parametrize("path", ["/api/workers", "/sign-in", "/api/lablet-definitions", "/api/internal/audit"])
@pytest.mark.parametrize(
    "headers", [f"Content-Length: {HUNDRED_MEGABYTES}", "Transfer-Encoding: chunked"], ids=["announced", "chunked"]
)
def test_a_hundred_megabytes_without_a_token_are_refused(plane: ControlPlaneProcess, path: str, headers: str) -> None:
    before = resident_kib(plane)
    with open_upload(plane, path, headers) as connection:
        framed = b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK) if "chunked" in headers else CHUNK
        sent = 0
        with suppress(ConnectionError):  # the server may close before everything is sent
            while sent < HUNDRED_MEGABYTES:
                connection.sendall(framed)
                sent += len(CHUNK)
        with suppress(ConnectionError):
            assert status_line(connection) == b"HTTP/1.1 413 Request Entity Too Large" or sent < HUNDRED_MEGABYTES
    assert plane.process.get("/health")[0] == 200
    assert resident_kib(plane) - before < 10_000, "the peak of its memory"


def test_an_upload_of_which_nothing_is_sent_is_refused_at_once(plane: ControlPlaneProcess) -> None:
    with open_upload(plane, "/api/workers", f"Content-Length: {HUNDRED_MEGABYTES}") as connection:
        assert b" 413 " in status_line(connection)


def test_slow_and_aborted_uploads_leave_others_alone_and_no_traceback(plane: ControlPlaneProcess) -> None:
    with ExitStack() as stack:
        for number in range(200):
            connection = stack.enter_context(open_upload(plane, "/api/workers", "Content-Length: 1000"))
            connection.sendall(b"{")
            if number % 2:
                connection.close()
        assert plane.process.get("/health")[0] == 200
        wait_until(lambda: len(plane.process.logged("upload aborted by the client")) >= 100, "aborts are logged")
    log = plane.process.log_path.read_text()
    assert "Traceback" not in log
    assert "ClientDisconnect" not in log


def test_forwarded_addresses_of_this_machine_are_not_believed(plane: ControlPlaneProcess) -> None:
    """No proxy is configured: a client that changes X-Forwarded-For stays one client to the limit of sign-ins."""
    statuses = []
    for number in range(15):
        headers = {"Authorization": f"Bearer guess-{number}", "X-Forwarded-For": f"192.0.2.{number}"}
        statuses.append(httpx.get(f"{plane.url}/api/whoami", headers=headers, timeout=60).status_code)
    assert statuses[0] == 401
    assert statuses[-1] == 429
