"""Exponential backoff with jitter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lcm.core.backoff import Backoff


def test_delays_grow_exponentially_up_to_the_maximum() -> None:
    """controllers.md#work-queue: 1, 2, 4, 8, 16, 32 and then 60 seconds."""
    backoff = Backoff()
    assert [backoff.delay_without_jitter(retries) for retries in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_very_many_retries_do_not_overflow() -> None:
    assert Backoff().delay_without_jitter(100_000) == 60.0


@given(st.integers(0, 5000), st.floats(0.01, 10), st.floats(1, 4), st.floats(10, 600))
def test_jitter_stays_within_ten_percent(retries: int, base: float, multiplier: float, max_delay: float) -> None:
    backoff = Backoff(base, multiplier, max_delay)
    exact = backoff.delay_without_jitter(retries)
    assert 0.9 * exact <= backoff.delay(retries) <= 1.1 * exact


def test_jitter_spreads() -> None:
    assert len({Backoff().delay(3) for _ in range(20)}) > 10
