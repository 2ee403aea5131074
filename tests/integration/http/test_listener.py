"""A server with TLS of its own, and one that stops while requests run."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest
from fastapi import FastAPI

from lcm.core.hosting import Host
from lcm.http.listener import CertificateFileError, ListenerOptions, ServerCertificate
from lcm.http.server import HttpServer
from tests.support.servers.certificates import CertificateAuthority

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers.certificates import Identity


def port_of(server: HttpServer) -> int:
    return int(server.url.rsplit(":", 1)[1])


async def get(server: HttpServer, path: str, context: ssl.SSLContext | None = None) -> tuple[bytes, dict[str, object]]:
    """The response, and the certificate of the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server), ssl=context)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        certificate: dict[str, object] = writer.get_extra_info("peercert") or {}
        return await reader.read(), certificate
    finally:
        writer.close()
        await writer.wait_closed()


def app() -> FastAPI:
    made = FastAPI()

    @made.get("/scheme")
    async def scheme() -> str:
        return "served"

    return made


def serial(certificate: dict[str, object]) -> object:
    return certificate["serialNumber"]


def replace(identity: Identity, by: Identity) -> None:
    for old, new in ((identity.key_file, by.key_file), (identity.cert_file, by.cert_file)):
        staged = old.with_suffix(".new")
        staged.write_bytes(new.read_bytes())
        staged.replace(old)


async def test_a_renewed_certificate_is_presented_to_new_connections(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path, "authority")
    first, second = authority.issue("first"), authority.issue("second")
    certificate = ServerCertificate(first.cert_file, first.key_file)
    server = HttpServer(app(), "127.0.0.1", 0, port_setting="PORT", options=ListenerOptions(certificate))
    await server.start()
    try:
        assert server.url.startswith("https://")
        trust = ssl.create_default_context(cafile=str(authority.ca_file))
        response, before = await get(server, "/scheme", trust)
        assert response.startswith(b"HTTP/1.1 200")
        replace(first, second)
        assert certificate.reload_if_changed()
        response, after = await get(server, "/scheme", trust)
        assert response.startswith(b"HTTP/1.1 200")
        assert serial(before) != serial(after)
        assert not certificate.reload_if_changed()
    finally:
        await server.stop()


async def test_half_of_a_renewed_pair_changes_nothing(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path, "authority")
    first, second = authority.issue("first"), authority.issue("second")
    certificate = ServerCertificate(first.cert_file, first.key_file)
    server = HttpServer(app(), "127.0.0.1", 0, port_setting="PORT", options=ListenerOptions(certificate))
    await server.start()
    try:
        trust = ssl.create_default_context(cafile=str(authority.ca_file))
        first.cert_file.write_bytes(second.cert_file.read_bytes())
        assert not certificate.reload_if_changed()
        response, _ = await get(server, "/scheme", trust)
        assert response.startswith(b"HTTP/1.1 200")
        first.key_file.unlink()
        assert not certificate.reload_if_changed()
        replace(first, second)
        assert certificate.reload_if_changed()
    finally:
        await server.stop()


def test_a_pair_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path, "authority")
    first, second = authority.issue("first"), authority.issue("second")
    with pytest.raises(CertificateFileError, match=first.cert_file.name):
        ServerCertificate(first.cert_file, second.key_file)
    with pytest.raises(CertificateFileError, match="No such file"):
        ServerCertificate(tmp_path / "missing.pem", first.key_file)


async def test_a_running_request_is_finished_when_the_process_is_asked_to_stop() -> None:
    made, entered, finish = FastAPI(), asyncio.Event(), asyncio.Event()

    @made.get("/slow")
    async def slow() -> str:
        entered.set()
        await finish.wait()
        return "finished"

    server = HttpServer(made, "127.0.0.1", 0, port_setting="PORT", options=ListenerOptions(shutdown_seconds=120))
    host = Host([server])
    running = asyncio.create_task(host.run())
    while server._serving is None or not server._server or not server._server.listening.is_set():
        await asyncio.sleep(0)
    request = asyncio.create_task(get(server, "/slow"))
    await entered.wait()
    host.request_stop("test")
    while await accepts(server):
        await asyncio.sleep(0.01)
    assert not running.done()
    finish.set()
    response, _ = await request
    assert response.startswith(b"HTTP/1.1 200")
    assert b"finished" in response
    assert await running == 0


async def accepts(server: HttpServer) -> bool:
    """Whether the server answers a new connection."""
    try:
        response, _ = await get(server, "/missing")
    except OSError:
        return False
    return bool(response)
