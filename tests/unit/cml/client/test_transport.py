"""One exchange: what is sent, what is refused, what is tried again. The network is a function."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from lcm.cml.client.responses import CMLResponse, RawResponse, parse_response
from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import Insecure, PinnedCertificate
from lcm.cml.client.transport import CMLTransport, https_base_url, is_address
from lcm.cml.errors import (
    CMLAuthenticationError,
    CMLConflictError,
    CMLError,
    CMLInvalidRequestError,
    CMLNotFoundError,
    CMLNotReadyError,
    CMLOutcomeUnknownError,
    CMLProtocolError,
    CMLThrottledError,
    CMLTlsError,
    CMLUnauthorizedError,
)
from lcm.cml.simulator.listener import make_server_identity
from lcm.cml.types import Credentials

ADMIN = Credentials("admin", "secret")
Handler = Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]


@asynccontextmanager
async def transport(handler: Handler) -> AsyncIterator[CMLTransport]:
    made = CMLTransport(Insecure(), wire=lambda _context: httpx.MockTransport(handler))
    yield made
    await made.aclose()


def answering(*answers: httpx.Response | Exception) -> tuple[Handler, list[httpx.Request]]:
    requests: list[httpx.Request] = []

    async def handler(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        answer = answers[min(len(requests), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handler, requests


async def test_a_broken_get_is_sent_once_more_and_no_more() -> None:
    handler, requests = answering(httpx.ReadError("reset"), httpx.Response(200, json={"a": 1}))
    async with transport(handler) as wire:
        assert (await wire.exchange("10.0.0.1", "GET", "/x")).content == {"a": 1}
    assert len(requests) == 2
    handler, requests = answering(httpx.ReadError("reset"))
    async with transport(handler) as wire:
        with pytest.raises(CMLNotReadyError):
            await wire.exchange("10.0.0.1", "GET", "/x")
    assert len(requests) == 2


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "failure", [httpx.ReadError("reset"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("Server disconnected")]
)
async def test_a_change_whose_answer_is_lost_is_never_repeated(method: str, failure: Exception) -> None:
    handler, requests = answering(failure)
    async with transport(handler) as wire:
        with pytest.raises(CMLOutcomeUnknownError, match="may have taken effect"):
            await wire.exchange("10.0.0.1", method, "/x")
    assert len(requests) == 1


@pytest.mark.parametrize("failure", [httpx.ConnectError("refused"), httpx.ConnectTimeout("")])
async def test_without_a_connection_nothing_happened(failure: Exception) -> None:
    handler, requests = answering(failure)
    async with transport(handler) as wire:
        with pytest.raises(CMLNotReadyError) as caught:
            await wire.exchange("10.0.0.1", "POST", "/x")
    assert not isinstance(caught.value, CMLOutcomeUnknownError)
    assert len(requests) == 1


async def test_a_tls_error_is_found_behind_others() -> None:
    error = httpx.ConnectError("bad handshake")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    async with transport(answering(error)[0]) as wire:
        with pytest.raises(CMLTlsError, match="self-signed"):
            await wire.exchange("10.0.0.1", "GET", "/x")


async def test_a_server_that_talks_nonsense_is_no_server_that_starts() -> None:
    async with transport(answering(httpx.RemoteProtocolError("illegal status line"))[0]) as wire:
        with pytest.raises(CMLProtocolError, match="illegal status line"):
            await wire.exchange("10.0.0.1", "GET", "/x")


async def test_an_answer_that_never_ends_ends() -> None:
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


async def test_an_endless_answer_is_cut_off_while_it_comes() -> None:
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


async def test_a_packed_answer_is_refused_before_it_is_unpacked() -> None:
    packed = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"\x1f\x8b"))
    async with transport(answering(packed)[0]) as wire:
        with pytest.raises(CMLProtocolError, match="packed"):
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
async def test_what_is_no_address_is_not_dialled(address: str) -> None:
    handler, requests = answering(httpx.Response(200))
    async with transport(handler) as wire:
        with pytest.raises(CMLInvalidRequestError):
            await wire.exchange(address, "GET", "/x")
    assert not requests


async def test_an_address_that_nobody_has_is_not_ready() -> None:
    def dial(_address: str) -> str:
        raise OSError("no machine there")

    wire = CMLTransport(Insecure(), dial=dial)
    with pytest.raises(CMLNotReadyError, match="no machine there"):
        await wire.exchange("10.0.0.1", "GET", "/x")


async def test_a_pin_that_is_none_is_a_tls_error() -> None:
    wire = CMLTransport(PinnedCertificate("no certificate"))
    with pytest.raises(CMLTlsError, match="PEM"):
        await wire.exchange("10.0.0.1", "GET", "/x")


def test_addresses_are_dialled_over_https() -> None:
    assert https_base_url("10.0.0.1") == "https://10.0.0.1"
    assert https_base_url("cml.example") == "https://cml.example"
    assert https_base_url("fd00::1") == "https://[fd00::1]"
    assert all(is_address(address) for address in ("10.0.0.1", "10.0.0.1:8443", "cml-1.example.", "fd00::1", "::1"))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, CMLInvalidRequestError),
        (401, CMLUnauthorizedError),
        (403, CMLAuthenticationError),
        (404, CMLNotFoundError),
        (409, CMLConflictError),
        (422, CMLInvalidRequestError),
        (429, CMLThrottledError),
        (500, CMLProtocolError),
        (502, CMLNotReadyError),
        (503, CMLNotReadyError),
        (504, CMLNotReadyError),
        (301, CMLProtocolError),
        (101, CMLProtocolError),
    ],
)
def test_each_status_has_its_error(status: int, error: type[CMLError]) -> None:
    answer = RawResponse(
        status, "application/json", b'{"code": 1, "description": "because"}', "https://elsewhere.invalid/"
    )
    with pytest.raises(error) as caught:
        parse_response("10.0.0.1", "GET", answer)
    assert type(caught.value) is error
    assert caught.value.address == "10.0.0.1"
    assert ("because" in caught.value.cause) is (status not in (502, 503, 504, 301))


@pytest.mark.parametrize(
    ("method", "status", "error"),
    [
        ("GET", 200, CMLNotReadyError),
        ("GET", 403, CMLNotReadyError),
        ("GET", 404, CMLNotReadyError),
        ("GET", 500, CMLNotReadyError),
        ("DELETE", 404, CMLNotReadyError),
        ("DELETE", 200, CMLOutcomeUnknownError),
        ("PUT", 500, CMLOutcomeUnknownError),
        ("POST", 413, CMLInvalidRequestError),
        ("POST", 429, CMLThrottledError),
    ],
)
def test_a_web_page_is_not_the_word_of_cml(method: str, status: int, error: type[CMLError]) -> None:
    with pytest.raises(error) as caught:
        parse_response("10.0.0.1", method, RawResponse(status, "text/html; charset=utf-8", b"<html>"))
    assert type(caught.value) is error


def test_only_cml_itself_can_say_that_something_is_not_there() -> None:
    for kind in ("text/plain", ""):
        with pytest.raises(CMLProtocolError, match="proves the absence of nothing"):
            parse_response("10.0.0.1", "DELETE", RawResponse(404, kind, b"Not Found"))


@pytest.mark.parametrize(
    ("status", "error"), [(502, CMLOutcomeUnknownError), (503, CMLNotReadyError), (504, CMLOutcomeUnknownError)]
)
def test_a_gateway_may_have_passed_a_change_on(status: int, error: type[CMLError]) -> None:
    with pytest.raises(CMLNotReadyError) as caught:
        parse_response("10.0.0.1", "POST", RawResponse(status, "text/html", b"<html>"))
    assert type(caught.value) is error


@given(
    st.integers(100, 599),
    st.sampled_from(["application/json", "text/html", "", "application/json; charset=utf-8", "x"]),
    st.binary(max_size=60) | st.text(max_size=30).map(str.encode),
)
def test_whatever_comes_is_a_reply_or_one_of_our_errors(status: int, kind: str, body: bytes) -> None:
    told = ""
    try:
        assert isinstance(parse_response("a", "GET", RawResponse(status, kind, body)), CMLResponse)
    except CMLError as error:
        told = str(error)
    assert told.isprintable()


async def test_a_session_that_ended_is_renewed_once() -> None:
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


async def test_labs_that_cannot_be_counted_hide_nothing_else() -> None:
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


async def test_a_password_is_shown_nowhere() -> None:
    assert "secret" not in repr(ADMIN)
    async with transport(answering(httpx.Response(403))[0]) as wire:
        with pytest.raises(CMLAuthenticationError) as caught:
            await CMLSystemClient(CMLSession(wire, registry=CollectorRegistry())).get_license("10.0.0.1", ADMIN)
    assert "secret" not in str(caught.value)


async def test_many_servers_are_spread_over_pools_and_each_stays_with_its_own() -> None:
    asked: list[tuple[int, str]] = []
    contexts: set[int] = set()

    def wire(context: ssl.SSLContext) -> httpx.AsyncBaseTransport:
        pool = len(pools)
        pools.append(pool)
        contexts.add(id(context))

        async def handler(request: httpx.Request) -> httpx.Response:
            asked.append((pool, request.url.host))
            return httpx.Response(200, json={})

        return httpx.MockTransport(handler)

    pools: list[int] = []
    made = CMLTransport(Insecure(), wire=wire)
    addresses = [f"198.18.{number // 250}.{number % 250 + 1}" for number in range(1000)]
    for address in addresses + addresses:
        await made.exchange(address, "GET", "/api/v0/system_information")
    await made.aclose()
    by_server = {host: {pool for pool, other in asked if other == host} for host in addresses[:50]}
    assert all(len(used) == 1 for used in by_server.values())
    assert 16 < len(pools) < 64
    most = max(sum(pool == each for each, _ in asked) for pool in pools)
    assert most < 5 * len(asked) / len(pools)
    assert len(contexts) == 1


async def test_a_pool_of_a_pinned_server_is_closed_when_another_machine_has_its_address() -> None:
    closed: list[str] = []

    class Closing(httpx.MockTransport):
        async def aclose(self) -> None:
            closed.append("once")

    async def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={})

    made = CMLTransport(PinnedCertificate(make_server_identity().pem), wire=lambda _: Closing(handler))
    await made.exchange("198.18.0.1", "GET", "/")
    await made.exchange("198.18.0.2", "GET", "/")
    made.forget("198.18.0.1")
    await made.exchange("198.18.0.2", "GET", "/")
    assert not closed
    made.forget("198.18.0.2")
    await made.exchange("198.18.0.3", "GET", "/")
    assert closed == ["once"]
    await made.aclose()
