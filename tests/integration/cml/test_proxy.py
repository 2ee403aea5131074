"""CML servers behind a proxy: reached by CONNECT, and no less distrusted."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lcm.cml.client.cml_session import Session
from lcm.cml.client.cml_system import CMLSystemClient
from lcm.cml.client.proxy import HttpProxy
from lcm.cml.client.tls import FirstUse, Insecure, Pinned, Pins, Trust
from lcm.cml.client.transport import Transport
from lcm.cml.errors import NotReady, TlsError
from lcm.cml.simulator.listener import make_identity
from tests.integration.cml.conftest import ADDRESS, ADMIN
from tests.support.network.connect_proxy import ConnectProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.cml.simulator import CmlSimulator


@pytest.fixture(params=["insecure", "first use"])
def trust(request: pytest.FixtureRequest) -> Trust:
    return Insecure() if request.param == "insecure" else FirstUse(Pins())


@pytest.fixture
async def proxy(simulator: CmlSimulator) -> AsyncIterator[ConnectProxy]:
    place = httpx.URL(simulator.url)
    assert place.port is not None
    async with ConnectProxy({f"{ADDRESS}:443": (place.host, place.port)}) as made:
        yield made


async def version(trust: Trust, proxy_url: str, address: str = ADDRESS) -> str:
    proxy = HttpProxy(proxy_url)
    transport = Transport(trust, wire=proxy.wire, open_tls=proxy.open_tls)
    try:
        session = Session(transport, registry=CollectorRegistry())
        return (await CMLSystemClient(session).get_system_information(address)).version
    finally:
        await transport.aclose()


async def test_a_server_is_reached_at_its_own_address(proxy: ConnectProxy, trust: Trust) -> None:
    assert await version(trust, proxy.url) == "2.9.1+build.7"
    assert set(proxy.asked) == {f"{ADDRESS}:443"}


async def test_the_certificate_seen_first_through_it_is_the_servers_own(
    simulator: CmlSimulator, proxy: ConnectProxy
) -> None:
    pins = Pins()
    assert await version(FirstUse(pins), proxy.url)
    assert pins.get(ADDRESS) == simulator.identity.pem
    with pytest.raises(TlsError):
        await version(Pinned(make_identity().pem), proxy.url)


async def test_no_way_is_not_ready(proxy: ConnectProxy, trust: Trust) -> None:
    with pytest.raises(NotReady, match="No way"):
        await version(trust, proxy.url, "10.0.0.99")


async def test_a_proxy_that_is_away_is_not_ready(trust: Trust) -> None:
    async with ConnectProxy({}) as gone:
        url = gone.url
    with pytest.raises(NotReady):
        await version(trust, url)


async def test_what_does_not_answer_as_a_proxy_is_not_ready(proxy: ConnectProxy) -> None:
    proxy.talk_nonsense = True
    with pytest.raises(NotReady, match="the proxy refused"):
        await version(FirstUse(Pins()), proxy.url)


async def test_it_is_told_who_we_are(simulator: CmlSimulator, trust: Trust) -> None:
    place = httpx.URL(simulator.url)
    assert place.port is not None
    credentials = base64.b64encode(b"lcm:s@cret").decode()
    async with ConnectProxy({f"{ADDRESS}:443": (place.host, place.port)}, credentials=credentials) as guarded:
        with pytest.raises(NotReady):
            await version(trust, guarded.url)
        assert await version(trust, guarded.url.replace("http://", "http://lcm:s%40cret@"))


async def test_calls_with_an_account_and_many_at_once(proxy: ConnectProxy) -> None:
    way = HttpProxy(proxy.url)
    transport = Transport(FirstUse(Pins()), wire=way.wire, open_tls=way.open_tls)
    try:
        system = CMLSystemClient(Session(transport, registry=CollectorRegistry()))
        states = await asyncio.gather(*(system.get_license(ADDRESS, ADMIN) for _ in range(20)))
        assert len(states) == 20
    finally:
        await transport.aclose()
