"""Who is let in while others guess: the limit of failed sign-ins and its exceptions (api.md#access)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
from structlog.testing import capture_logs

from lcm.control_plane.auth.oidc.fetch import ProviderConnection
from lcm.control_plane.auth.oidc.jwks import JwksCache, fixed_url
from lcm.control_plane.auth.oidc.verifier import OidcConfig, OidcVerifier
from lcm.control_plane.auth.rate_limit import MAX_FAILURES
from lcm.control_plane.auth.tokens import TokenService, load_static_tokens
from lcm.control_plane.http.deps import Authenticator
from lcm.control_plane.records.kinds import AUDIT
from lcm.http.callers import mark_in_process
from tests.support.auth.issuer import AUDIENCE, ISSUER, document, entry, private_key, signed
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ADMIN = "a-bootstrap-token-from-settings"
CONTROLLER = "a-controller-token-from-settings"


def use_static_tokens(plane: TestPlane) -> None:
    """Accept tokens of the settings, which a person may have chosen."""
    gate = plane.services.authenticator
    tokens = TokenService(plane.services.context.store, load_static_tokens(ADMIN, CONTROLLER))
    changed = Authenticator(tokens, gate.sessions, gate.rate_limiter, gate.links, gate.security_log)
    object.__setattr__(plane.services, "authenticator", changed)


async def status(app: Callable[..., Awaitable[None]], token: str, address: str = "127.0.0.1", **headers: str) -> int:
    transport = httpx.ASGITransport(app, client=(address, 9))
    async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test") as client:
        response = await client.get("/api/whoami", headers={"Authorization": f"Bearer {token}", **headers})
        return response.status_code


async def guess(app: Any, address: str = "127.0.0.1") -> None:
    for number in range(MAX_FAILURES + 5):
        await status(app, f"guess-{number}", address)


async def test_guesses_on_the_host_do_not_stop_controllers_of_this_process() -> None:
    async with serving_plane() as plane:
        use_static_tokens(plane)
        await guess(plane.app)
        assert await status(plane.app, CONTROLLER) == 429, "a right guess looks like a wrong one"
        assert await status(mark_in_process(plane.app), CONTROLLER) == 200
        for number in range(MAX_FAILURES + 5):
            assert await status(mark_in_process(plane.app), f"wrong-{number}") == 401, "it counts for nobody"
        assert await status(plane.app, ADMIN, "192.0.2.9") == 200


async def test_a_credential_that_worked_before_passes_at_its_address() -> None:
    async with serving_plane() as plane:
        use_static_tokens(plane)
        assert await status(plane.app, CONTROLLER, "192.0.2.1") == 200
        await guess(plane.app, "192.0.2.1")
        assert await status(plane.app, CONTROLLER, "192.0.2.1") == 200
        assert await status(plane.app, ADMIN, "192.0.2.1") == 429, "it was never used here"
        await guess(plane.app, "192.0.2.2")
        assert await status(plane.app, CONTROLLER, "192.0.2.2") == 429, "it worked elsewhere"


async def test_a_person_with_a_valid_jwt_and_no_role_is_in_audit_and_log_with_their_groups() -> None:
    """At the API, and pasted at the sign-in page."""
    async with serving_plane() as plane:
        key = private_key("one", "P-256")
        published = httpx.MockTransport(lambda _: httpx.Response(200, content=document(entry(key, "one"))))
        keys = JwksCache(fixed_url("https://id.example/keys"), ProviderConnection(HttpxTransport(published)))
        gate = replace(plane.services.authenticator, oidc=OidcVerifier(OidcConfig(ISSUER, AUDIENCE), keys))
        object.__setattr__(plane.services, "authenticator", gate)
        jwt = signed(key, "one", "ES256", roles=["students"])
        with capture_logs() as logged:
            for _ in range(2 * MAX_FAILURES):
                assert await status(plane.app, jwt, "192.0.2.7") == 403, "it was no guess"
            pasted = await plane.ask("POST", "/sign-in", role=None, data={"token": jwt})
        assert pasted.status_code == 403
        refusals = [each for each in logged if each["event"] == "sign-in refused"]
        assert [(each["name"], each["groups"]) for each in refusals] == [("ann", ["students"])] * (2 * MAX_FAILURES + 1)
        await gate.security_log.flush()
        lines = [json.loads(each.body) for each in await plane.services.context.store.read_journal(topics=(AUDIT,))]
        found = [(each["actor"]["identity"], each["details"]) for each in lines if each["action"] == "sign_in_refused"]
        assert found == [
            (f"oidc:{ISSUER}#u-1", {"address": address, "claim": "roles", "groups": ["students"]})
            for address in ("192.0.2.7", "127.0.0.1")
        ]


async def test_no_header_claims_to_be_in_process() -> None:
    async with serving_plane() as plane:
        use_static_tokens(plane)
        await guess(plane.app)
        assert await status(plane.app, CONTROLLER, **{"lcm.in_process": "true", "X-Forwarded-For": "in-process"}) == 429
