"""Failed sign-ins are limited by address and by token id."""

from __future__ import annotations

import asyncio

import pytest

from lcm.control_plane.auth.rate_limit import SignInRateLimiter
from lcm.control_plane.auth.roles import TooManyAttemptsError


def fail(throttle: SignInRateLimiter, address: str, token_id: str | None = None, *, times: int = 1) -> None:
    for _ in range(times):
        throttle.record_failure(address, token_id)


def closed(throttle: SignInRateLimiter, address: str, token_id: str | None = None) -> int:
    """For how many seconds it is blocked; 0 if it is not."""
    try:
        throttle.check(address, token_id)
    except TooManyAttemptsError as refused:
        return refused.retry_after
    return 0


async def test_the_window_slides() -> None:
    throttle = SignInRateLimiter(limit=3, window=60)
    for _ in range(3):
        assert not closed(throttle, "192.0.2.1")
        throttle.record_failure("192.0.2.1")
        await asyncio.sleep(10)
    assert closed(throttle, "192.0.2.1") == 30
    await asyncio.sleep(29.5)
    assert closed(throttle, "192.0.2.1") == 1
    await asyncio.sleep(0.5)
    assert not closed(throttle, "192.0.2.1")
    throttle.record_failure("192.0.2.1")
    assert closed(throttle, "192.0.2.1") == 10  # the second of the first three expires next
    assert not closed(throttle, "192.0.2.2")


async def test_the_error_says_when_to_retry() -> None:
    throttle = SignInRateLimiter(limit=1)
    throttle.record_failure("192.0.2.1")
    with pytest.raises(TooManyAttemptsError, match="Try again in 60 s"):
        throttle.check("192.0.2.1")


async def test_a_token_under_attack_is_blocked_for_the_attackers_but_not_for_its_owner() -> None:
    throttle = SignInRateLimiter(limit=5)
    for number in range(5):
        throttle.record_failure(f"192.0.2.{number}", "t-1")
    assert closed(throttle, "192.0.2.0", "t-1")
    assert not closed(throttle, "192.0.2.0", "t-2")
    assert not closed(throttle, "198.51.100.7", "t-1")
    throttle.record_failure("198.51.100.8", "t-1")
    assert closed(throttle, "198.51.100.8", "t-1")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("testclient", "testclient", True),
        ("testclient", "another", False),
    ],
)
async def test_who_counts_as_one_client(one: str, other: str, same: bool) -> None:
    throttle = SignInRateLimiter(limit=1)
    throttle.record_failure(one)
    assert bool(closed(throttle, other)) == same


async def test_memory_is_bounded_and_released() -> None:
    throttle = SignInRateLimiter(limit=3, max_tracked=100)
    for number in range(1000):
        fail(throttle, f"10.0.{number // 256}.{number % 256}", f"t-{number}", times=4)
    assert len(throttle._addresses._times) == 100
    assert sum(map(len, throttle._addresses._times.values())) == 300
    assert len(throttle._tokens._times) == 100
    assert closed(throttle, "10.0.3.231")
    await asyncio.sleep(60)
    throttle.record_failure("192.0.2.1", "t-x")
    assert len(throttle._addresses._times) == len(throttle._tokens._times) == 1
