"""Fixtures of the calendar tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def booking_sets(request: pytest.FixtureRequest) -> int:
    """How many random sets of bookings are tried: --booking-sets N."""
    count: int = request.config.getoption("--booking-sets")
    return count
