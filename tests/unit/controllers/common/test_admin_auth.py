"""Admin authentication: roles, the cache, and the limit of failed attempts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from lcm.client.errors import TooManyAttemptsError, UnauthenticatedError, UnreachableError
from lcm.controllers.common.admin_auth import (
    FAILED_ATTEMPTS_WINDOW,
    IDENTITY_CACHE_SECONDS,
    MAX_CACHED_IDENTITIES,
    MAX_FAILED_ATTEMPTS,
    MAX_FAILED_ATTEMPTS_IN_ALL,
    WHOAMI_TIMEOUT,
    AdminAuthenticator,
    AdminAuthError,
)
from lcm.core import clock
from lcm.model.access import CallerIdentity, CallerKind, Role
from lcm.model.problems import ProblemCode


class Plane:
    """A control plane that knows some tokens."""

    def __init__(self) -> None:
        self.tokens = {"good": Role.ADMIN, "reader": Role.VIEWER}
        self.requests: list[str] = []
        self.error: Exception | None = None
        self.delay = 0.0
        self.lasts: float | None = None

    async def whoami(self, token: str) -> CallerIdentity:
        self.requests.append(token)
        await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        if token not in self.tokens:
            raise UnauthenticatedError(401, ProblemCode.UNAUTHENTICATED, "This token is not known.")
        expires = None if self.lasts is None else clock.now() + timedelta(seconds=self.lasts)
        return CallerIdentity(name="me", role=self.tokens[token], kind=CallerKind.TOKEN, expires_at=expires)


async def refused(authenticator: AdminAuthenticator, authorization: str | None) -> AdminAuthError:
    with pytest.raises(AdminAuthError) as caught:
        await authenticator.authenticate(authorization)
    return caught.value


async def test_a_valid_token_is_cached_for_ten_seconds() -> None:
    plane = Plane()
    authenticator = AdminAuthenticator(plane.whoami)
    for _ in range(5):
        assert (await authenticator.authenticate("Bearer good")).name == "me"
    assert plane.requests == ["good"]
    await asyncio.sleep(IDENTITY_CACHE_SECONDS + 0.1)
    plane.tokens.clear()
    assert (await refused(authenticator, "bearer  good ")).code is ProblemCode.UNAUTHENTICATED
    assert plane.requests == ["good", "good"]


async def test_a_token_that_expires_sooner_is_cached_until_then() -> None:
    plane = Plane()
    plane.lasts = 2.0
    authenticator = AdminAuthenticator(plane.whoami)
    await authenticator.authenticate("Bearer good")
    await asyncio.sleep(2.1)
    await authenticator.authenticate("Bearer good")
    assert len(plane.requests) == 2


async def test_the_cache_is_bounded() -> None:
    plane = Plane()
    plane.tokens = {f"t{n}": Role.ADMIN for n in range(MAX_CACHED_IDENTITIES + 10)}
    authenticator = AdminAuthenticator(plane.whoami)
    for token in plane.tokens:
        await authenticator.authenticate(f"Bearer {token}")
    assert len(authenticator._cache) == MAX_CACHED_IDENTITIES
    assert not any("t1" in key for key in authenticator._cache if len(key) < 64), "no token is kept in clear"


async def test_the_role_counts() -> None:
    error = await refused(AdminAuthenticator(Plane().whoami), "Bearer reader")
    assert (error.code, str(error)) == (
        ProblemCode.FORBIDDEN,
        "This needs the role admin; me has the role viewer.",
    )


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic Z29vZA=="])
async def test_without_a_token_no_request_is_sent(header: str | None) -> None:
    plane = Plane()
    assert (await refused(AdminAuthenticator(plane.whoami), header)).code is ProblemCode.UNAUTHENTICATED
    assert plane.requests == []


async def test_failed_attempts_are_limited() -> None:
    """The control plane blocks an address after ten failures a minute, and it is the controller's own address."""
    plane = Plane()
    plane.delay = 0.01
    authenticator = AdminAuthenticator(plane.whoami)
    await authenticator.authenticate("Bearer good")
    errors = await asyncio.gather(*(refused(authenticator, f"Bearer guess{n}") for n in range(20)))
    codes = [error.code for error in errors]
    assert codes.count(ProblemCode.UNAUTHENTICATED) == MAX_FAILED_ATTEMPTS
    assert codes.count(ProblemCode.TOO_MANY_ATTEMPTS) == 20 - MAX_FAILED_ATTEMPTS
    assert len(plane.requests) == 1 + MAX_FAILED_ATTEMPTS
    assert (await authenticator.authenticate("Bearer good")).name == "me", "who was let in already is not kept out"
    waits = [error.retry_after for error in errors if error.retry_after is not None]
    await asyncio.sleep(max(waits))
    plane.tokens["late"] = Role.ADMIN
    assert (await authenticator.authenticate("Bearer late")).name == "me"
    assert max(waits) <= FAILED_ATTEMPTS_WINDOW


async def test_waiting_callers_are_limited() -> None:
    plane = Plane()
    plane.delay = 1.0
    authenticator = AdminAuthenticator(plane.whoami)
    waiting = [asyncio.create_task(refused(authenticator, f"Bearer x{n}")) for n in range(100)]
    errors = await asyncio.gather(*waiting)
    assert sum(error.code is ProblemCode.UNAVAILABLE for error in errors) >= 60


@pytest.mark.parametrize(
    ("error", "code", "retry_after"),
    [
        (UnreachableError("down"), ProblemCode.UNAVAILABLE, 5),
        (
            TooManyAttemptsError(429, ProblemCode.TOO_MANY_ATTEMPTS, "slow", retry_after=7.2),
            ProblemCode.TOO_MANY_ATTEMPTS,
            8,
        ),
        (ValueError("no header"), ProblemCode.UNAUTHENTICATED, None),
    ],
)
async def test_errors_of_the_control_plane_are_translated(
    error: Exception, code: ProblemCode, retry_after: int | None
) -> None:
    plane = Plane()
    plane.error = error
    found = await refused(AdminAuthenticator(plane.whoami), "Bearer x")
    assert (found.code, found.retry_after) == (code, retry_after)


async def test_a_missing_response_times_out() -> None:
    plane = Plane()
    plane.delay = 3600.0
    began = asyncio.get_running_loop().time()
    assert (await refused(AdminAuthenticator(plane.whoami), "Bearer x")).code is ProblemCode.UNAVAILABLE
    assert asyncio.get_running_loop().time() - began <= WHOAMI_TIMEOUT + 0.1


async def test_guesses_of_others_lock_no_admin_out() -> None:
    plane = Plane()
    generated = f"lcm_t-1_{'0a' * 32}"
    plane.tokens[generated] = Role.ADMIN
    authenticator = AdminAuthenticator(plane.whoami)
    await authenticator.authenticate("Bearer good", client="192.0.2.1")
    await asyncio.sleep(IDENTITY_CACHE_SECONDS + 1)
    for number in range(30):
        with pytest.raises(AdminAuthError):
            await authenticator.authenticate(f"Bearer guess{number}", client=f"198.51.100.{number % 5}")
    assert len(plane.requests) == 1 + MAX_FAILED_ATTEMPTS_IN_ALL, "the control plane sees only a few of them"
    assert (await authenticator.authenticate("Bearer good", client="192.0.2.1")).name == "me", "it was accepted before"
    assert (await authenticator.authenticate(f"Bearer {generated}", client="192.0.2.2")).name == "me", "not guessable"


async def test_guesses_from_one_address_do_not_count_for_another() -> None:
    plane = Plane()
    authenticator = AdminAuthenticator(plane.whoami)
    for number in range(20):
        with pytest.raises(AdminAuthError):
            await authenticator.authenticate(f"Bearer guess{number}", client="198.51.100.1")
    assert (await authenticator.authenticate("Bearer good", client="192.0.2.1")).name == "me"
