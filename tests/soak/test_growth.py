"""What counts as growth without bound."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from tests.soak.growth import Series, table, unbounded

if TYPE_CHECKING:
    from collections.abc import Callable

HOURS = 100


def measured(shape: Callable[[int], float], *, judged: bool = True, swings: bool = False) -> Series:
    series = Series("things", slack=5, judged=judged, swings=swings)
    for hour in range(HOURS):
        series.add(hour * 3600.0, shape(hour))
    return series


@pytest.mark.parametrize(
    "shape",
    [
        lambda hour: 100.0,
        lambda hour: 100.0 + 20 * math.sin(hour),
        lambda hour: 300.0 * (1 - math.exp(-hour / 10)),  # fills up and stays
        lambda hour: 1000.0 - hour,
        lambda hour: 100.0 + hour / 20,  # less than the slack
        lambda hour: 0.0,
    ],
)
def test_what_levels_off_is_bounded(shape: Callable[[int], float]) -> None:
    assert unbounded([measured(shape)]) == []


@pytest.mark.parametrize(
    "shape",
    [
        lambda hour: 100.0 + hour,
        lambda hour: 100.0 + hour + 20 * math.sin(hour),
        lambda hour: 100.0 + hour * hour / 50,
        lambda hour: 100.0 + 30 * (hour // 20),
    ],
)
def test_what_keeps_rising_is_not(shape: Callable[[int], float]) -> None:
    assert unbounded([measured(shape)]) == ["things"]
    assert unbounded([measured(shape, judged=False)]) == []


def test_a_pool_that_fills_and_empties_is_judged_by_its_lowest_values() -> None:
    def ever_larger_swings(hour: int) -> float:
        return 50.0 + hour * (hour % 4)

    assert unbounded([measured(ever_larger_swings)]) == ["things"]
    assert unbounded([measured(ever_larger_swings, swings=True)]) == []
    assert unbounded([measured(lambda hour: ever_larger_swings(hour) + hour, swings=True)]) == ["things"]


def test_too_few_samples_prove_nothing() -> None:
    series = Series("things", slack=5)
    assert unbounded([series]) == ["things"]
    series.add(0.0, 1.0)
    assert unbounded([series]) == ["things"]


def test_the_table_has_first_last_slope_and_verdict() -> None:
    lines = table([measured(lambda hour: 100.0 + 2 * hour)]).splitlines()
    assert lines[0].split() == ["what", "first", "last", "growth", "per", "hour", "verdict"]
    assert lines[1].split() == ["things", "100", "298", "+2.00", "GROWS"]
