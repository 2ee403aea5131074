"""The seeds' formula, with jitter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lcm.core.backoff import Backoff


def test_delays_are_those_of_the_seeds_table() -> None:
    """Seed 002, section 4: 1, 2, 4, 8, 16, 32 and then 60 seconds."""
    backoff = Backoff()
    assert [backoff.exact(retries) for retries in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_very_many_retries_do_not_overflow() -> None:
    assert Backoff().exact(100_000) == 60.0


@given(st.integers(0, 5000), st.floats(0.01, 10), st.floats(1, 4), st.floats(10, 600))
def test_jitter_stays_within_ten_percent(retries: int, base: float, multiplier: float, longest: float) -> None:
    backoff = Backoff(base, multiplier, longest)
    exact = backoff.exact(retries)
    assert 0.9 * exact <= backoff.delay(retries) <= 1.1 * exact


def test_jitter_spreads() -> None:
    assert len({Backoff().delay(3) for _ in range(20)}) > 10
