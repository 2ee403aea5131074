"""Which workers somebody should look at first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lcm.model.worker.conditions import Condition
from lcm.model.worker.record import Hold
from lcm.model.worker.urgency import WorkerUrgency, worker_problem, worker_urgency
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
        ({"status": "FAILED"}, WorkerUrgency.FAILED),
        ({"status": "STOPPING", "conditions": (condition("Stuck", "True", "for an hour"),)}, WorkerUrgency.STUCK),
        ({"status": "UNKNOWN"}, WorkerUrgency.UNCLEAR),
        ({"status": "RUNNING", "conditions": (READY,), "drifted": True}, WorkerUrgency.TROUBLED),
        ({"status": "RUNNING", "conditions": (READY,), "license_status": "failed"}, WorkerUrgency.TROUBLED),
        (
            {"status": "RUNNING", "conditions": (IMPAIRED, READY)},
            WorkerUrgency.TROUBLED,
        ),
        (
            {
                "status": "RUNNING",
                "last_resumed_at": NOW,
                "conditions": (WELL, SILENT),
            },
            WorkerUrgency.TROUBLED,
        ),
        (
            {"status": "RUNNING", "conditions": (READY,), "hold": Hold(reason="x", by="a", since=NOW)},
            WorkerUrgency.HELD,
        ),
        ({"status": "PENDING"}, WorkerUrgency.MOVING),
        ({"status": "PENDING", "desired_status": "STOPPED"}, WorkerUrgency.RESTING),
        ({"status": "RUNNING", "desired_status": "STOPPED", "conditions": (READY,)}, WorkerUrgency.MOVING),
        (
            {
                "status": "RUNNING",
                "last_resumed_at": NOW,
                "conditions": (WELL, BOOTS),
            },
            WorkerUrgency.MOVING,
        ),
        ({"status": "RUNNING", "conditions": (READY,)}, WorkerUrgency.FINE),
        ({"status": "STOPPED", "desired_status": "STOPPED"}, WorkerUrgency.RESTING),
        ({"status": "TERMINATED", "desired_status": "TERMINATED", "drifted": True}, WorkerUrgency.ENDED),
    ],
)
def test_urgency(facts: dict[str, Any], urgency: WorkerUrgency) -> None:
    worker = a_worker(**facts)
    assert worker_urgency(worker) is urgency
    assert (worker_problem(worker) is not None) == (urgency <= WorkerUrgency.TROUBLED)


def test_a_problem_is_told_in_the_words_of_who_found_it() -> None:
    assert (
        worker_problem(a_worker(status="STOPPING", conditions=(condition("Stuck", "True", "for an hour."),)))
        == "for an hour"
    )
