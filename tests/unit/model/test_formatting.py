"""Amounts and durations as text."""

from __future__ import annotations

import pytest

from lcm.model.formatting import count_minutes


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 minutes"), (60, "1 minute"), (62.4, "1 minute"), (90 * 60, "90 minutes")]
)
def test_one_minute_is_singular(seconds: float, text: str) -> None:
    assert count_minutes(seconds) == text
