"""Who is let in while others guess: the limit of failed sign-ins and its exceptions (api.md#access)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from lcm.control_plane.auth.rate_limit import MAX_FAILURES
from lcm.control_plane.auth.tokens import TokenService, load_static_tokens
from lcm.control_plane.http.deps import Authenticator
from lcm.http.callers import mark_in_process
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


async def test_no_header_claims_to_be_in_process() -> None:
    async with serving_plane() as plane:
        use_static_tokens(plane)
        await guess(plane.app)
        assert await status(plane.app, CONTROLLER, **{"lcm.in_process": "true", "X-Forwarded-For": "in-process"}) == 429
