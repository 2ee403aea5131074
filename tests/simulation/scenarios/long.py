"""Handwritten scenarios that last hours and days: what does not come by itself, or only much later.

Those of a week take a minute or two of CPU each: `make sim LONG=1` runs them, the test suite does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.scenarios.steps import FIRST, HOME, at, days, lab, leaderless, worker

if TYPE_CHECKING:
    from tests.simulation.script import Script

_HOUR = 60.0  # of minutes
_DAY = 24 * _HOUR

LONG_DAYS: dict[str, Script] = {
    "a region has no capacity for hours": days(
        worker(),
        at(2, "stop", **FIRST),
        at(3, "no-capacity", region=HOME, instance_type=None, seconds=10 * _HOUR * 60),
        at(3.1, "start", **FIRST),
        worker(4, "w1"),
        lab(5.1, region="us-east-1"),
        *(at(hours * _HOUR, "check-waits") for hours in (1, 5, 9.5)),
        *leaderless(3 * _HOUR, 120),
        at(4 * _HOUR, "stop", which="w1"),
        at(4.1 * _HOUR, "start", which="w1"),
        at(6 * _HOUR, "crash-plane", steps=10, down=60),
        lasting=10 * _HOUR + 10,
    ),
    "one zone has no capacity for hours": days(
        worker(),
        worker(0.3, "w1"),
        *(at(2, "stop", which=name) for name in ("w0", "w1")),
        at(4, "no-capacity", region=HOME, instance_type=None, subnet_id="subnet-a", seconds=8 * _HOUR * 60),
        *(at(4.1, "start", which=name) for name in ("w0", "w1")),
        *(worker(5 + number / 20, f"w{number}") for number in range(2, 6)),
        lab(6),
        *(at(hours * _HOUR, "check-waits") for hours in (1, 7.5)),
        lasting=8 * _HOUR + 10,
    ),
    "no zone has capacity of one type for hours, and labs need workers": days(
        at(0.5, "no-capacity", region=HOME, instance_type="t3.micro", seconds=8 * _HOUR * 60),
        at(0.5, "no-capacity", region="us-east-1", instance_type="t3.micro", seconds=4 * _HOUR * 60),
        worker(0.8),
        *(lab(hours * _HOUR + 1, region=region) for hours, region in ((0, HOME), (3, None), (5, HOME))),
        *(at(hours * _HOUR, "check-waits") for hours in (1, 4, 7.5)),
        lasting=8 * _HOUR + 10,
    ),
}

WEEKS: dict[str, Script] = {
    "Cisco's license service is silent for a week": days(
        worker(token="good-token"),
        worker(0.3, "w1", token="good-token"),
        at(10, "license-server-silent", seconds=7 * _DAY * 60),
        worker(12, "w2", token="good-token"),
        worker(12.1, "w3", token="bad-token"),
        worker(12.2, "w4", token="good-token"),
        *(at(number * _DAY + _HOUR, "check-waits") for number in range(7)),
        at(2 * _DAY, "terminate", which="w1"),
        at(2.5 * _DAY, "terminate", which="w4"),
        *leaderless(3 * _DAY, 120),
        at(4 * _DAY, "stop", which="w2"),
        at(4.2 * _DAY, "start", which="w2"),
        lab(5 * _DAY),
        lasting=7 * _DAY + 20,
    ),
    "a region has no capacity for a week": days(
        worker(token="good-token"),
        at(5, "stop", which="w0"),
        at(7, "no-capacity", region=HOME, instance_type=None, seconds=7 * _DAY * 60),
        at(7.1, "start", which="w0"),
        worker(8, "w1"),
        worker(8.1, "w2"),
        lab(9),
        *(at(number * _DAY + _HOUR, "check-waits") for number in range(7)),
        at(2 * _DAY, "terminate", which="w1"),
        at(3 * _DAY, "terminate", which="w0"),
        lasting=7 * _DAY + 20,
    ),
}
"""Not in `SCENARIOS`: `make sim LONG=1`."""
