"""An identity provider on loopback, and a verifier of its tokens."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.auth.oidc import jwks
from lcm.control_plane.auth.oidc.fetch import ProviderConnection
from lcm.control_plane.auth.oidc.verifier import OidcConfig, OidcVerifier
from lcm.http.network import NetworkTransport
from tests.support.auth.issuer import AUDIENCE, ISSUER, entry, private_key
from tests.support.servers.jwks_server import JwksServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The intervals are tested with virtual time; here every unknown key causes a fetch."""
    monkeypatch.setattr(jwks, "MIN_REFRESH_INTERVAL", 0.0)
    monkeypatch.setattr(jwks, "MIN_FIRST_REFRESH_INTERVAL", 0.0)


@pytest.fixture
async def server() -> AsyncIterator[JwksServer]:
    made = JwksServer()
    made.publish(entry(private_key("first"), "first"))
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def oidc(server: JwksServer) -> AsyncIterator[OidcVerifier]:
    async with aclosing(NetworkTransport(idle_seconds=0.0, max_idle=0)) as http:
        keys = jwks.JwksCache(jwks.fixed_url(server.url), ProviderConnection(http))
        yield OidcVerifier(OidcConfig(issuer=ISSUER, audience=AUDIENCE), keys)
        await keys.close()
