"""The network side of a simulated server: its self-signed certificate, its port and its web server.

Like CML's own certificate, this one names no host that clients connect to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp


@dataclass(frozen=True)
class ServerIdentity:
    """A certificate (PEM) and the TLS context that presents it. Servers may share one."""

    pem: str
    context: ssl.SSLContext = field(repr=False)


def make_server_identity(name: str = "cml-controller") -> ServerIdentity:
    """Create a certificate that is valid for ten years."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    began = clock.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(clock.rng().getrandbits(120) + 1)
        .not_valid_before(began - timedelta(days=1))
        .not_valid_after(began + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return ServerIdentity(pem.decode(), _tls_context(pem + secret))


def _tls_context(chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The ssl module reads keys only from files.
    with tempfile.TemporaryDirectory(prefix="lcm-cml-") as folder:
        file = Path(folder) / "server.pem"
        file.touch(mode=0o600)
        file.write_bytes(chain)
        context.load_cert_chain(file)
    return context


_STOP_TIMEOUT = 1
_KEEP_ALIVE_SECONDS = 75  # as nginx in front of CML keeps a connection that nobody uses
_START_POLL_SECONDS = 0.005


class PortUnavailableError(Exception):
    """The port is in use or the host does not belong to this machine; the message says which."""


class ReservedPort:
    """A port that stays reserved while nothing listens on it: connections are refused in that time."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        # With SO_REUSEPORT two simulators could share one port and its connections: bind it exclusively first.
        _bind_socket(host, port, socket.SO_REUSEADDR).close()
        self._kept = _bind_socket(host, port, socket.SO_REUSEPORT)
        self.number: int = self._kept.getsockname()[1]

    def open(self) -> socket.socket:
        """A socket to listen on, besides the one that reserves the port."""
        return _bind_socket(self.host, self.number, socket.SO_REUSEPORT, socket.SO_REUSEADDR)

    def close(self) -> None:
        """Release the port."""
        self._kept.close()


class HttpListener:
    """Serves one application on one port while it is switched on."""

    def __init__(self, app: ASGIApp, port: ReservedPort, tls: ssl.SSLContext | None = None) -> None:
        self._app = app
        self._port = port
        self._tls = tls
        self._server: _UvicornServer | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it is switched on."""
        return self._task is not None

    async def start(self) -> None:
        """Start listening; returns when connections are accepted."""
        if self._task is not None:
            return
        config = uvicorn.Config(
            self._app,
            http="httptools",
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="websockets-sansio",
            timeout_graceful_shutdown=_STOP_TIMEOUT,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        config.load()
        config.ssl = self._tls
        self._server = _UvicornServer(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._port.open()]), name="cml-simulator")
        while not self._server.started and not self._task.done():
            await asyncio.wait([self._task], timeout=_START_POLL_SECONDS)

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        await asyncio.wait([self._task])
        self._server = self._task = None


class _UvicornServer(uvicorn.Server):
    """A uvicorn server without signal handlers, which stops as abruptly as a machine that loses power."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A graceful TLS shutdown waits half a minute for clients that keep their connections open.
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind_socket(host: str, port: int, *options: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise PortUnavailableError(f"cannot listen on {host}: {error.strerror}") from None
    try:
        for option in options:
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise PortUnavailableError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    made.setblocking(False)
    return made
