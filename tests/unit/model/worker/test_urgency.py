"""Sort order of workers by urgency."""

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
HIDDEN = Condition.model_validate(
    {"type": "InstanceReady", "status": "Unknown", "reason": "NotVisible", "message": "not listed", "since": NOW}
)
SILENT = condition("CmlReady", "False", "502", minutes=5)
BOOTS = condition("CmlReady", "False", "boots")
REFUSED = BOOTS.model_copy(update={"reason": "AccountRefused"})
NO_TELEMETRY = condition("TelemetryMissing", "True", "no activity could be read for 7 hours")


@pytest.mark.parametrize(
    ("facts", "urgency"),
    [
        ({"status": "FAILED"}, WorkerUrgency.FAILED),
        ({"status": "STOPPING", "conditions": (condition("Stuck", "True", "for an hour"),)}, WorkerUrgency.STUCK),
        ({"status": "UNKNOWN"}, WorkerUrgency.UNKNOWN),
        ({"status": "RUNNING", "conditions": (READY,), "drifted": True}, WorkerUrgency.DEGRADED),
        ({"status": "RUNNING", "conditions": (READY,), "license_status": "failed"}, WorkerUrgency.DEGRADED),
        (
            {"status": "RUNNING", "conditions": (IMPAIRED, READY)},
            WorkerUrgency.DEGRADED,
        ),
        ({"status": "STOPPED", "desired_status": "STOPPED", "conditions": (HIDDEN,)}, WorkerUrgency.DEGRADED),
        ({"status": "RUNNING", "conditions": (HIDDEN, READY)}, WorkerUrgency.DEGRADED),
        (
            {
                "status": "RUNNING",
                "last_resumed_at": NOW,
                "conditions": (WELL, SILENT),
            },
            WorkerUrgency.DEGRADED,
        ),
        ({"status": "RUNNING", "last_resumed_at": NOW, "conditions": (WELL, REFUSED)}, WorkerUrgency.DEGRADED),
        ({"status": "RUNNING", "conditions": (WELL, READY, NO_TELEMETRY)}, WorkerUrgency.DEGRADED),
        (
            {"status": "RUNNING", "conditions": (READY,), "hold": Hold(reason="x", by="a", since=NOW)},
            WorkerUrgency.HELD,
        ),
        ({"status": "PENDING"}, WorkerUrgency.IN_PROGRESS),
        ({"status": "PENDING", "desired_status": "STOPPED"}, WorkerUrgency.SETTLED),
        ({"status": "RUNNING", "desired_status": "STOPPED", "conditions": (READY,)}, WorkerUrgency.IN_PROGRESS),
        (
            {
                "status": "RUNNING",
                "last_resumed_at": NOW,
                "conditions": (WELL, BOOTS),
            },
            WorkerUrgency.IN_PROGRESS,
        ),
        ({"status": "RUNNING", "conditions": (READY,)}, WorkerUrgency.HEALTHY),
        ({"status": "STOPPED", "desired_status": "STOPPED"}, WorkerUrgency.SETTLED),
        ({"status": "TERMINATED", "desired_status": "TERMINATED", "drifted": True}, WorkerUrgency.ENDED),
    ],
)
def test_urgency(facts: dict[str, Any], urgency: WorkerUrgency) -> None:
    worker = a_worker(**facts)
    assert worker_urgency(worker) is urgency
    assert (worker_problem(worker) is not None) == (urgency <= WorkerUrgency.DEGRADED)


def test_a_problem_has_the_message_of_its_condition() -> None:
    assert (
        worker_problem(a_worker(status="STOPPING", conditions=(condition("Stuck", "True", "for an hour."),)))
        == "for an hour"
    )


def test_a_failed_worker_whose_instance_runs_says_that_it_costs_money() -> None:
    """worker-lifecycle.md#failed."""
    quiet = a_worker(status="FAILED", instance_id="i-1", conditions=(IMPAIRED,))
    costly = a_worker(status="FAILED", instance_id="i-1", conditions=(WELL,))
    assert worker_problem(quiet) == "Failed; action required"
    assert worker_problem(costly) == "Failed; action required; its instance runs and costs money"
