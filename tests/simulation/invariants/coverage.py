"""What must happen at least once in a bounded number of runs: every fault, every user action, every rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.invariants.decision_rules import missing, rules
from tests.simulation.scenarios.catalog import OUT_OF_REACH
from tests.simulation.script import FAULTS, PEOPLE

if TYPE_CHECKING:
    from collections import Counter


def never(covered: Counter[str]) -> list[str]:
    """What should have happened but did not."""
    events = {f"event {kind}" for kind in (*FAULTS, *PEOPLE)}
    return [*sorted(events - covered.keys()), *missing(covered, rules() - _out_of_reach())]


def after_all(covered: Counter[str]) -> list[str]:
    """What happened although it is listed as impossible."""
    return sorted(_out_of_reach() & covered.keys())


def _out_of_reach() -> set[str]:
    return {f"rule {rule}" for rule in OUT_OF_REACH}
