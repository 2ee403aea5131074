"""Which workers somebody should look at first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lcm.model.worker.conditions import Condition
from lcm.model.worker.record import Hold
from lcm.model.worker.urgency import Urgency, problem_of, urgency_of
from tests.support.records.workers import NOW, a_worker


def condition(kind: str, status: str, message: str = "", minutes: float = 0) -> Condition:
    facts = {"type": kind, "status": status, "message": message, "since": NOW + timedelta(minutes=minutes)}
    return Condition.model_validate(facts)


READY = condition("CmlReady", "True")
WELL = condition("InstanceReady", "True")
IMPAIRED = condition("InstanceReady", "False", "impaired")
SILENT = condition("CmlReady", "False", "502", minutes=5)
BOOTS = condition("CmlReady", "False", "boots")


@pytest.mark.parametrize(
    ("facts", "urgency"),
    [
        ({"status": "FAILED"}, Urgency.FAILED),
        ({"status": "STOPPING", "conditions": (condition("Stuck", "True", "for an hour"),)}, Urgency.STUCK),
        ({"status": "UNKNOWN"}, Urgency.UNCLEAR),
        ({"status": "RUNNING", "conditions": (READY,), "drifted": True}, Urgency.TROUBLED),
        ({"status": "RUNNING", "conditions": (READY,), "license_status": "failed"}, Urgency.TROUBLED),
        (
            {"status": "RUNNING", "conditions": (IMPAIRED, READY)},
            Urgency.TROUBLED,
        ),
        (
            {
                "status": "RUNNING",
                "last_resumed_at": NOW,
                "conditions": (WELL, SILENT),
            },
            Urgency.TROUBLED,
        ),
        ({"status": "RUNNING", "conditions": (READY,), "hold": Hold(reason="x", by="a", since=NOW)}, Urgency.HELD),
        ({"status": "PENDING"}, Urgency.MOVING),
        ({"status": "PENDING", "desired_status": "STOPPED"}, Urgency.RESTING),
        ({"status": "RUNNING", "desired_status": "STOPPED", "conditions": (READY,)}, Urgency.MOVING),
        (
            {
                "status": "RUNNING",
                "last_resumed_at": NOW,
                "conditions": (WELL, BOOTS),
            },
            Urgency.MOVING,
        ),
        ({"status": "RUNNING", "conditions": (READY,)}, Urgency.FINE),
        ({"status": "STOPPED", "desired_status": "STOPPED"}, Urgency.RESTING),
        ({"status": "TERMINATED", "desired_status": "TERMINATED", "drifted": True}, Urgency.ENDED),
    ],
)
def test_urgency(facts: dict[str, Any], urgency: Urgency) -> None:
    worker = a_worker(**facts)
    assert urgency_of(worker) is urgency
    assert (problem_of(worker) is not None) == (urgency <= Urgency.TROUBLED)


def test_a_problem_is_told_in_the_words_of_who_found_it() -> None:
    assert (
        problem_of(a_worker(status="STOPPING", conditions=(condition("Stuck", "True", "for an hour."),)))
        == "for an hour"
    )
