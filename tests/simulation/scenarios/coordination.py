"""Handwritten scenarios in which etcd is away or replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.scenarios.steps import FIRST, at, day, worker

if TYPE_CHECKING:
    from tests.simulation.script import Script

COORDINATION_DAYS: dict[str, Script] = {
    "people command while etcd is away": day(
        worker(),
        worker(0.3, "w1"),
        at(3, "etcd-outage", seconds=240),
        at(4, "stop", **FIRST),
        at(5, "hold-fleet", seconds=30),
        worker(6, "w2"),
        at(6.5, "terminate", which=0.5),
        polls=None,
    ),
    "etcd is replaced": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(4)),
        at(3, "replace-etcd", down=5, revision=1, same_id=True),
        at(5, "stop", **FIRST),
        polls=None,
    ),
    "etcd is replaced by one that has counted further": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(4)),
        at(3, "replace-etcd", down=5, revision=100_000, same_id=True),
        at(5, "stop", **FIRST),
        polls=None,
    ),
}
