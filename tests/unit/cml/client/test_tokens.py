"""One login for all callers, renewal in time, and no repeated logins with a wrong password."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta

import pytest

from lcm.cml.client.session import DEFAULT_TOKEN_LIFETIME, TokenCache, token_lifetime
from lcm.cml.errors import CMLAuthenticationError, CMLNotReadyError, CMLProtocolError
from lcm.cml.types import Credentials
from lcm.core import clock

ADMIN = Credentials("admin", "secret")


def jwt(**claims: float) -> str:
    packed = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{packed}.c2ln"


class Server:
    """Issues tokens that are valid for `life` seconds, with a clock that may be skewed."""

    def __init__(self, life: float = 3600, skew: float = 0) -> None:
        self.life = life
        self.skew = skew
        self.logins: list[tuple[str, Credentials]] = []
        self.failure: Exception | None = None
        self.token: str | None = None

    async def log_in(self, address: str, credentials: Credentials) -> str:
        self.logins.append((address, credentials))
        await asyncio.sleep(2.2)
        if self.failure:
            raise self.failure
        issued = clock.now().timestamp() + self.skew
        return self.token or jwt(iat=issued, exp=issued + self.life, number=len(self.logins))


async def test_a_hundred_callers_log_in_once() -> None:
    server = Server()
    cache = TokenCache(server.log_in)
    tokens = await asyncio.gather(*(cache.get("a", ADMIN) for _ in range(100)))
    assert len(set(tokens)) == 1
    assert len(server.logins) == 1


async def test_tokens_are_kept_per_server_and_account() -> None:
    server = Server()
    cache = TokenCache(server.log_in)
    others = [("a", ADMIN), ("b", ADMIN), ("a", Credentials("ops", "secret")), ("a", Credentials("admin", "new"))]
    await asyncio.gather(*(cache.get(*other) for other in others))
    assert len(server.logins) == 4


async def test_a_cancelled_caller_does_not_cancel_the_login() -> None:
    server = Server()
    cache = TokenCache(server.log_in)
    impatient = asyncio.create_task(cache.get("a", ADMIN))
    patient = asyncio.create_task(cache.get("a", ADMIN))
    await asyncio.sleep(1)
    impatient.cancel()
    assert await patient
    assert len(server.logins) == 1


@pytest.mark.parametrize("skew", [0.0, -7200.0, 7200.0])
async def test_a_token_is_renewed_in_time_despite_clock_skew(skew: float) -> None:
    server = Server(life=3600, skew=skew)
    cache = TokenCache(server.log_in)
    first = await cache.get("a", ADMIN)
    await asyncio.sleep(3500)
    assert await cache.get("a", ADMIN) == first
    await asyncio.sleep(50)
    assert await cache.get("a", ADMIN) != first
    assert len(server.logins) == 2


async def test_a_rejected_token_is_replaced_but_a_newer_one_stays() -> None:
    server = Server()
    cache = TokenCache(server.log_in)
    first = await cache.get("a", ADMIN)
    cache.reject("a", ADMIN, first)
    second = await cache.get("a", ADMIN)
    assert second != first
    cache.reject("a", ADMIN, first)
    assert await cache.get("a", ADMIN) == second


async def test_a_rejected_password_is_not_retried_for_a_minute() -> None:
    server = Server()
    server.failure = CMLAuthenticationError("a", "rejected")
    cache = TokenCache(server.log_in)
    for _ in range(5):
        with pytest.raises(CMLAuthenticationError, match="rejected"):
            await cache.get("a", ADMIN)
    assert len(server.logins) == 1
    server.failure = None
    assert await cache.get("a", Credentials("admin", "right")), "another password is tried at once"
    await asyncio.sleep(61)
    assert await cache.get("a", ADMIN)


async def test_other_failures_are_not_cached() -> None:
    server = Server()
    server.failure = CMLNotReadyError("a", "booting")
    cache = TokenCache(server.log_in)
    with pytest.raises(CMLNotReadyError):
        await cache.get("a", ADMIN)
    server.failure = None
    assert await cache.get("a", ADMIN)


async def test_forget_drops_tokens_and_logins_in_progress() -> None:
    server = Server()
    cache = TokenCache(server.log_in)
    kept = await cache.get("b", ADMIN)
    old = asyncio.create_task(cache.get("a", ADMIN))
    await asyncio.sleep(1)
    cache.forget("a")
    stale = await old
    assert await cache.get("a", ADMIN) != stale, "the server that issued it is gone"
    assert await cache.get("b", ADMIN) == kept


async def test_invalid_tokens_are_rejected() -> None:
    server = Server()
    server.token = "a\r\nb: c"
    with pytest.raises(CMLProtocolError):
        await TokenCache(server.log_in).get("a", ADMIN)


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", "e30.e30.x", "e30.W10.x", "e30.!!!!.x"])
async def test_a_token_without_expiry_gets_the_default_lifetime(token: str) -> None:
    assert token_lifetime(token) == DEFAULT_TOKEN_LIFETIME


async def test_token_lifetimes_are_bounded() -> None:
    now = clock.now().timestamp()
    assert token_lifetime(jwt(iat=now, exp=now + 10)) == timedelta(seconds=5)
    assert token_lifetime(jwt(iat=now, exp=now - 10)) == timedelta(0)
    assert token_lifetime(jwt(exp=now + 1e15)) < timedelta(days=1)
