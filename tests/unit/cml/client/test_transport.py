"""Single requests: what is sent, rejected and repeated. The network is replaced by a function."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import Insecure, PinnedCertificate
from lcm.cml.client.transport import CMLTransport, https_base_url, is_address
from lcm.cml.errors import (
    CMLAuthenticationError,
    CMLInvalidRequestError,
    CMLNotReadyError,
    CMLOutcomeUnknownError,
    CMLProtocolError,
    CMLTlsError,
    CMLUnauthorizedError,
)
from lcm.cml.simulator.listener import make_server_identity
from lcm.cml.types import Credentials
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError, SendAuthorization, authorized
from tests.support.network.httpx_transport import HttpxTransport

if TYPE_CHECKING:
    from tests.support.virtual.time import VirtualClock

ADMIN = Credentials("admin", "secret")
Handler = Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]


@asynccontextmanager
async def transport(handler: Handler) -> AsyncIterator[CMLTransport]:
    made = CMLTransport(Insecure(), http=HttpxTransport(httpx.MockTransport(handler)))
    yield made
    await made.aclose()


def responding(*responses: httpx.Response | Exception) -> tuple[Handler, list[httpx.Request]]:
    requests: list[httpx.Request] = []

    async def handler(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        response = responses[min(len(requests), len(responses)) - 1]
        if isinstance(response, Exception):
            raise response
        return response

    return handler, requests


async def test_a_broken_get_is_repeated_once() -> None:
    handler, requests = responding(httpx.ReadError("reset"), httpx.Response(200, json={"a": 1}))
    async with transport(handler) as wire:
        assert (await wire.exchange("10.0.0.1", "GET", "/x")).content == {"a": 1}
    assert len(requests) == 2
    handler, requests = responding(httpx.ReadError("reset"))
    async with transport(handler) as wire:
        with pytest.raises(CMLNotReadyError):
            await wire.exchange("10.0.0.1", "GET", "/x")
    assert len(requests) == 2


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "failure", [httpx.ReadError("reset"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("Server disconnected")]
)
async def test_a_mutating_call_with_a_lost_response_is_never_repeated(method: str, failure: Exception) -> None:
    handler, requests = responding(failure)
    async with transport(handler) as wire:
        with pytest.raises(CMLOutcomeUnknownError, match="may have taken effect"):
            await wire.exchange("10.0.0.1", method, "/x")
    assert len(requests) == 1


@pytest.mark.parametrize("failure", [httpx.ConnectError("refused"), httpx.ConnectTimeout("")])
async def test_a_failed_connection_means_no_effect(failure: Exception) -> None:
    handler, requests = responding(failure)
    async with transport(handler) as wire:
        with pytest.raises(CMLNotReadyError) as caught:
            await wire.exchange("10.0.0.1", "POST", "/x")
    assert not isinstance(caught.value, CMLOutcomeUnknownError)
    assert len(requests) == 1


async def test_a_mutating_call_is_not_sent_once_it_is_not_authorized_any_more() -> None:
    handler, requests = responding(httpx.Response(200, json="token"))
    async with transport(handler) as wire:
        session = CMLSession(wire, registry=(registry := CollectorRegistry()))
        lease = [60.0]
        with authorized(SendAuthorization(clock.boottime(), 60.0, lambda: lease[0])):
            await session.call("stop_lab", "10.0.0.1", ADMIN, "PUT", "/labs/1/stop", read=lambda _: None)
            lease[0] = 0.0
            with pytest.raises(NotAuthorizedError):
                await session.call("stop_lab", "10.0.0.1", ADMIN, "PUT", "/labs/1/stop", read=lambda _: None)
            await session.call("labs", "10.0.0.1", ADMIN, "GET", "/labs", read=lambda _: None)
    assert [request.method for request in requests] == ["POST", "PUT", "GET"], "a login and reads change nothing"
    labels = {"operation": "stop_lab", "outcome": "not_sent"}
    assert registry.get_sample_value("lcm_cml_calls_total", labels) == 1


async def test_a_mutating_call_is_not_sent_again_after_a_login_that_took_too_long(virtual_clock: VirtualClock) -> None:
    sent: list[str] = []

    async def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.path.rpartition("/")[2])
        if sent[-1] == "authenticate":
            virtual_clock.suspended += 30
            return httpx.Response(200, json="token")
        return httpx.Response(401)

    async with transport(handler) as wire:
        session = CMLSession(wire, registry=CollectorRegistry())
        with authorized(SendAuthorization(clock.boottime(), 60.0)), pytest.raises(NotAuthorizedError):
            await session.call("stop_lab", "10.0.0.1", ADMIN, "PUT", "/labs/1/stop", read=lambda _: None)
    assert sent == ["authenticate", "stop", "authenticate"]


async def test_a_tls_error_is_found_in_the_cause() -> None:
    error = httpx.ConnectError("bad handshake")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    async with transport(responding(error)[0]) as wire:
        with pytest.raises(CMLTlsError, match="self-signed"):
            await wire.exchange("10.0.0.1", "GET", "/x")


async def test_invalid_http_is_a_protocol_error() -> None:
    async with transport(responding(httpx.RemoteProtocolError("illegal status line"))[0]) as wire:
        with pytest.raises(CMLProtocolError, match="illegal status line"):
            await wire.exchange("10.0.0.1", "GET", "/x")


async def test_a_dripping_response_times_out() -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(20)

    async def handler(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=drip())

    began = asyncio.get_running_loop().time()
    async with transport(handler) as wire:
        with pytest.raises(CMLNotReadyError, match="35 s"):
            await wire.exchange("10.0.0.1", "GET", "/x")
    assert asyncio.get_running_loop().time() - began <= 40


async def test_an_endless_response_is_aborted() -> None:
    sent = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 1024 * 1024

    async def handler(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=flood())

    async with transport(handler) as wire:
        with pytest.raises(CMLProtocolError, match="longer than 8192 KiB"):
            await wire.exchange("10.0.0.1", "GET", "/x")
    assert sent <= 9


async def test_a_compressed_response_is_rejected() -> None:
    packed = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"\x1f\x8b"))
    async with transport(responding(packed)[0]) as wire:
        with pytest.raises(CMLProtocolError, match="compressed"):
            await wire.exchange("10.0.0.1", "GET", "/x")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a b",
        "evil.example/x",
        "user@evil.example",
        "a\r\nb",
        "a\n",
        "x" * 64,
        "x." * 200,
        "10.0.0.1:99999",
        "10.0.0.1:0",
        "10.0.0.1:",
        "fd00::1%eth0/x",
        "1:2:3",
        "[fd00::1]",
    ],
)
async def test_invalid_addresses_are_never_contacted(address: str) -> None:
    handler, requests = responding(httpx.Response(200))
    async with transport(handler) as wire:
        with pytest.raises(CMLInvalidRequestError):
            await wire.exchange(address, "GET", "/x")
    assert not requests


async def test_an_unresolvable_address_is_not_ready() -> None:
    def dial(_address: str) -> str:
        raise OSError("no server there")

    wire = CMLTransport(Insecure(), base_url_of=dial)
    with pytest.raises(CMLNotReadyError, match="no server there"):
        await wire.exchange("10.0.0.1", "GET", "/x")


async def test_an_invalid_pin_is_a_tls_error() -> None:
    wire = CMLTransport(PinnedCertificate("no certificate"))
    with pytest.raises(CMLTlsError, match="PEM"):
        await wire.exchange("10.0.0.1", "GET", "/x")


def test_base_urls_use_https() -> None:
    assert https_base_url("10.0.0.1") == "https://10.0.0.1"
    assert https_base_url("cml.example") == "https://cml.example"
    assert https_base_url("fd00::1") == "https://[fd00::1]"
    assert all(is_address(address) for address in ("10.0.0.1", "10.0.0.1:8443", "cml-1.example.", "fd00::1", "::1"))


async def test_an_expired_session_is_renewed_once() -> None:
    logins = 0

    async def handler(request: httpx.Request) -> httpx.Response:
        nonlocal logins
        if request.url.path.endswith("/authenticate"):
            logins += 1
            return httpx.Response(200, json=f"token{logins}")
        return httpx.Response(401, json={"code": 401, "description": "expired"})

    registry = CollectorRegistry()
    async with transport(handler) as wire:
        client = CMLSystemClient(CMLSession(wire, registry=registry))
        with pytest.raises(CMLUnauthorizedError):
            await client.get_license("10.0.0.1", ADMIN)
    assert logins == 2
    labels = {"operation": "license", "outcome": "unauthorized"}
    assert registry.get_sample_value("lcm_cml_calls_total", labels) == 1
    assert registry.get_sample_value("lcm_cml_call_seconds_count", {"operation": "authenticate"}) == 2


async def test_stats_are_returned_if_labs_cannot_be_counted() -> None:
    async def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/authenticate"):
            return httpx.Response(200, json="token")
        if request.url.path.endswith("/labs"):
            return httpx.Response(500)
        return httpx.Response(200, json={"computes": {}, "all": {"cpu": {"count": 4, "percent": 12.5}, "memory": None}})

    async with transport(handler) as wire:
        stats = await CMLSystemClient(CMLSession(wire, registry=CollectorRegistry())).get_system_stats(
            "10.0.0.1", ADMIN
        )
    assert (stats.labs, stats.nodes, stats.cpu_count, stats.cpu_percent, stats.memory) == (None, None, 4, 12.5, None)


async def test_passwords_are_never_shown() -> None:
    assert "secret" not in repr(ADMIN)
    async with transport(responding(httpx.Response(403))[0]) as wire:
        with pytest.raises(CMLAuthenticationError) as caught:
            await CMLSystemClient(CMLSession(wire, registry=CollectorRegistry())).get_license("10.0.0.1", ADMIN)
    assert "secret" not in str(caught.value)


async def test_servers_with_the_same_certificate_share_a_context_until_the_last_is_forgotten() -> None:
    """A context that is dropped takes its connections with it: another server may use the address by now."""

    async def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={})

    http = HttpxTransport(httpx.MockTransport(handler))
    made = CMLTransport(PinnedCertificate(make_server_identity().pem), http=http)
    await made.exchange("198.18.0.1", "GET", "/")
    await made.exchange("198.18.0.2", "GET", "/")
    made.forget("198.18.0.1")
    assert not http.discarded
    made.forget("198.18.0.2")
    assert len(http.discarded) == 1
    await made.exchange("198.18.0.2", "GET", "/")
    made.forget("198.18.0.2")
    assert len({id(context) for context in http.discarded}) == 2
    await made.aclose()
