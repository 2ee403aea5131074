"""What must happen at least once in a bounded number of runs: every fault, every user action, every rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.invariants.decision_rules import missing, rules
from tests.simulation.invariants.lablets import WAITS_FOR_CLASS
from tests.simulation.scenarios.catalog import OUT_OF_REACH
from tests.simulation.script import FAULTS, PEOPLE

if TYPE_CHECKING:
    from collections import Counter

CLASS_STEPS = (
    *(f"class {what}" for what in ("booked", "extended", "moved", "cancelled")),
    *(f"class not booked: {what}" for what in ("workers", "licenses", "team_seats")),
    "class CONFIRMED WARMING",
    "class WARMING ACTIVE",
    "class ACTIVE ENDED",
    "class CONFIRMED CANCELLED",
    "class ACTIVE CANCELLED",
    "a class is at risk",
    "a class is at risk no longer",
    "a failed seat is made anew",
    *(f"a worker is booked and {how}" for how in ("launched", "started", "used")),
    WAITS_FOR_CLASS,
    "a user must not stop a booked worker",
    "audit booking_ended",
    "wish STOPPED by schedule_stop",
    "wish RUNNING by schedule_start",
)
"""What becomes of bookings and schedules."""


def never(covered: Counter[str]) -> list[str]:
    """What should have happened but did not."""
    events = {f"event {kind}" for kind in (*FAULTS, *PEOPLE)}
    events |= set(CLASS_STEPS)
    return [*sorted(events - covered.keys()), *missing(covered, rules() - _out_of_reach())]


def after_all(covered: Counter[str]) -> list[str]:
    """What happened although it is listed as impossible."""
    return sorted(_out_of_reach() & covered.keys())


def _out_of_reach() -> set[str]:
    return {f"rule {rule}" for rule in OUT_OF_REACH}
