"""Handwritten scenarios: rare combinations, and regressions.

Each one is played like the script of a seed, with all invariants checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.scenarios.class_seeds import CLASS_SEED, LECTURE_SEED, write_classes, write_lecture
from tests.simulation.scenarios.classes import CLASS_DAYS
from tests.simulation.scenarios.coordination import COORDINATION_DAYS
from tests.simulation.scenarios.lablets import LAB_DAYS
from tests.simulation.scenarios.long import LONG_DAYS, WEEKS
from tests.simulation.scenarios.workers import WORKER_DAYS
from tests.simulation.script import write

if TYPE_CHECKING:
    from tests.simulation.script import Script

SCENARIOS: dict[str, Script] = {
    **WORKER_DAYS,
    **LAB_DAYS,
    **COORDINATION_DAYS,
    **CLASS_DAYS,
    **LONG_DAYS,
}

OUT_OF_REACH = {
    "worker pending.has_instance": "a write that gives a worker its instance also moves it on",
    "lablet scheduled.end": "a person's end of a SCHEDULED lablet is final at once; only a fixed end comes so",
    "worker pending.unresolved": "what to launch is always resolved before it is decided",
    "worker provisioning.no_instance": "PROVISIONING is written with the instance",
    "worker starting.no_instance": "an instance is taken off the record only together with the status",
    "worker stopping.no_instance": "as above",
    "worker terminating.no_instance": "without an instance a worker that is to end is TERMINATED at once",
    "worker stopped.launch": "a worker that lost its instance is PENDING, FAILED or TERMINATED, not STOPPED",
    "worker stopped.not_startable": "as above",
    "worker draining.cancelled": "whoever ends a drain writes RUNNING in the same commit",
    "lablet unassigned.skip": "the controller asks only for lablets that have a worker",
    "lablet instantiating.no_topology": "definitions are never deleted",
}
"""Rules for records that nothing writes. They are part of the decision tables and covered by unit tests."""


def script_of(seed: int | str) -> Script:
    """The scenario with this name, or the random script of the seed."""
    if str(seed).startswith(CLASS_SEED):
        return write_classes(str(seed))
    if str(seed).startswith(LECTURE_SEED):
        return write_lecture(str(seed))
    return SCENARIOS.get(str(seed)) or WEEKS.get(str(seed)) or write(seed)
