"""Short responses are not delayed until the client has acknowledged their first part."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import httpx
from uvicorn.protocols.http.h11_impl import H11Protocol

from lcm.http.server import HttpServer, make_process_app

if TYPE_CHECKING:
    import asyncio

    import pytest


async def test_connections_send_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the socket option: the delay itself depends on the client's kernel."""
    at_once: list[bool] = []
    made = H11Protocol.connection_made

    def noted(self: H11Protocol, transport: asyncio.Transport) -> None:
        accepted = transport.get_extra_info("socket")
        at_once.append(bool(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        made(self, transport)

    monkeypatch.setattr(H11Protocol, "connection_made", noted)
    server = HttpServer(make_process_app([], {"version": "0"}), "127.0.0.1", 0, port_setting="PORT")
    await server.start()
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"{server.url}/health")).status_code == 200
    finally:
        await server.stop()
    assert at_once == [True]
