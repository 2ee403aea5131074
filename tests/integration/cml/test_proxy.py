"""CML servers behind a proxy: reached by CONNECT, and verified as strictly as on a direct connection."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lcm.cml.client.proxy import HttpProxy
from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import Insecure, PinnedCertificate, PinPerServer, TrustPolicy, fingerprint
from lcm.cml.client.transport import CMLTransport, cml_network
from lcm.cml.errors import CMLNotReadyError, CMLTlsError
from lcm.cml.simulator.listener import make_server_identity
from tests.integration.cml.conftest import ADDRESS, ADMIN
from tests.support.network.connect_proxy import ConnectProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.cml.simulator import CmlSimulator


@pytest.fixture(params=["insecure", "first use"])
def trust(request: pytest.FixtureRequest) -> TrustPolicy:
    return Insecure() if request.param == "insecure" else PinPerServer()


@pytest.fixture
async def proxy(simulator: CmlSimulator) -> AsyncIterator[ConnectProxy]:
    place = httpx.URL(simulator.url)
    assert place.port is not None
    async with ConnectProxy({f"{ADDRESS}:443": (place.host, place.port)}) as made:
        yield made


async def version(trust: TrustPolicy, proxy_url: str, address: str = ADDRESS) -> str:
    proxy = HttpProxy(proxy_url)
    transport = CMLTransport(trust, http=cml_network(proxy.address), open_tls=proxy.open_tls)
    try:
        session = CMLSession(transport, registry=CollectorRegistry())
        return (await CMLSystemClient(session).get_system_information(address)).version
    finally:
        await transport.aclose()


async def test_a_server_is_reached_at_its_own_address(proxy: ConnectProxy, trust: TrustPolicy) -> None:
    assert await version(trust, proxy.url) == "2.9.1+build.7"
    assert set(proxy.targets) == {f"{ADDRESS}:443"}


async def test_the_pinned_certificate_is_that_of_the_server(simulator: CmlSimulator, proxy: ConnectProxy) -> None:
    way = HttpProxy(proxy.url)
    transport = CMLTransport(PinPerServer(), http=cml_network(way.address), open_tls=way.open_tls)
    system = CMLSystemClient(CMLSession(transport, registry=CollectorRegistry()))
    assert (await system.get_system_information(ADDRESS)).certificate == fingerprint(simulator.identity.pem)
    await transport.aclose()
    with pytest.raises(CMLTlsError):
        await version(PinnedCertificate(make_server_identity().pem), proxy.url)


async def test_an_unreachable_server_is_not_ready(proxy: ConnectProxy, trust: TrustPolicy) -> None:
    with pytest.raises(CMLNotReadyError, match="No way"):
        await version(trust, proxy.url, "10.0.0.99")


async def test_an_unreachable_proxy_is_not_ready(trust: TrustPolicy) -> None:
    async with ConnectProxy({}) as gone:
        url = gone.url
    with pytest.raises(CMLNotReadyError):
        await version(trust, url)


async def test_an_invalid_response_of_the_proxy_is_not_ready(proxy: ConnectProxy) -> None:
    proxy.talk_nonsense = True
    with pytest.raises(CMLNotReadyError, match="the proxy rejected the request"):
        await version(PinPerServer(), proxy.url)


async def test_credentials_for_the_proxy_are_sent(simulator: CmlSimulator, trust: TrustPolicy) -> None:
    place = httpx.URL(simulator.url)
    assert place.port is not None
    credentials = base64.b64encode(b"lcm:s@cret").decode()
    async with ConnectProxy({f"{ADDRESS}:443": (place.host, place.port)}, credentials=credentials) as guarded:
        with pytest.raises(CMLNotReadyError):
            await version(trust, guarded.url)
        assert await version(trust, guarded.url.replace("http://", "http://lcm:s%40cret@"))


async def test_calls_with_an_account_and_many_at_once(simulator: CmlSimulator, proxy: ConnectProxy) -> None:
    way = HttpProxy(proxy.url)
    transport = CMLTransport(PinPerServer(), http=cml_network(way.address), open_tls=way.open_tls)
    try:
        system = CMLSystemClient(CMLSession(transport, registry=CollectorRegistry()))
        system.trust(ADDRESS, fingerprint(simulator.identity.pem))
        states = await asyncio.gather(*(system.get_license(ADDRESS, ADMIN) for _ in range(20)))
        assert len(states) == 20
    finally:
        await transport.aclose()
