"""An identity provider on loopback, and the check of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from lcm.control_plane.auth import jwks
from lcm.control_plane.auth.oidc import Oidc, OidcConfig
from tests.support.auth.issuer import AUDIENCE, ISSUER, entry, private_key
from tests.support.servers.jwks_server import KeyServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often is tested with virtual time; here every unknown key is worth a look."""
    monkeypatch.setattr(jwks, "REFRESH_EVERY", 0.0)
    monkeypatch.setattr(jwks, "FIRST_EVERY", 0.0)


@pytest.fixture
async def server() -> AsyncIterator[KeyServer]:
    made = KeyServer()
    made.publish(entry(private_key("first"), "first"))
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def oidc(server: KeyServer) -> AsyncIterator[Oidc]:
    async with httpx.AsyncClient() as client:
        keys = jwks.Jwks(server.url, client)
        yield Oidc(OidcConfig(issuer=ISSUER, audience=AUDIENCE), keys)
        await keys.close()
