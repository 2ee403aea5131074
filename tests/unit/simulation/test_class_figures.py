"""What the simulation says of late seats: which fault explains them, and how many classes were whole."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.invariants.classes import CLASSES, READY, SEATS, WHOLE, seats_line
from tests.simulation.invariants.trouble import Trouble
from tests.simulation.scenarios.class_seeds import write_lecture
from tests.simulation.script import MINUTE, Event

AT = 1000.0 + 60.0  # runs begin at 1000
WORKERS, SEATS_TEXT = "9 of 10 workers are ready", "27 of 30 seats are running"


@pytest.mark.parametrize(
    ("kind", "text", "explains"),
    [
        ("no-capacity", WORKERS, True),
        ("no-capacity", SEATS_TEXT, False),
        ("lab-refused", SEATS_TEXT, True),
        ("lab-refused", WORKERS, False),
        ("slow-aws", SEATS_TEXT, True),
        ("crash", None, True),  # nobody may lead who could say it
        ("slow-aws", None, False),
    ],
)
def test_a_fault_explains_late_seats_only_if_at_risk_has_named_what_it_concerns(
    kind: str, text: str | None, explains: bool
) -> None:
    trouble = Trouble()
    trouble.begin([], [Event(60.0, kind, {})])
    said = [] if text is None else [(AT + 30.0, text)]
    assert trouble.explanation(AT + 60.0, said) == (kind if explains else None)


def test_what_was_said_before_and_stays_so_counts() -> None:
    trouble = Trouble()
    trouble.begin([], [Event(60.0, "no-capacity", {})])
    assert trouble.explanation(AT + 60.0, [(AT - 30.0, WORKERS)]) == "no-capacity"
    assert trouble.explanation(AT + 60.0, [(AT - 30.0, WORKERS), (AT + 1.0, SEATS_TEXT)]) is None


def test_whole_classes_are_counted() -> None:
    covered = Counter({CLASSES: 4, WHOLE: 3, SEATS: 120, READY: 119})
    assert next(seats_line(covered)) == "4 classes, 3 of them whole 5 minutes before the start (75.00 %)"


@pytest.mark.parametrize("number", range(20))
def test_each_lecture_has_a_fault_between_its_warm_up_and_the_moment_at_which_it_is_to_be_ready(number: int) -> None:
    script = write_lecture(f"lecture-{number}")
    (book,) = script.people
    start = book.at + book.facts["starts_in"] * MINUTE
    assert any(start - 30 * MINUTE <= fault.at <= start - 5 * MINUTE for fault in script.faults)
