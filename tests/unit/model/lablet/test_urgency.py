"""Sort order of lablets by urgency."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lcm.model.lablet.record import Placement
from lcm.model.lablet.urgency import FAILED_SHOWN_FOR, LabletUrgency, lablet_problem, lablet_urgency, shown_until
from tests.support.records.lablet_records import a_lablet
from tests.support.records.workers import NOW

LOOKED = Placement(at=NOW, reason="no worker has room. ")
COMING = LOOKED.model_copy(update={"scale_up_worker_id": "w-2"})
LATER = NOW + timedelta(hours=1)


@pytest.mark.parametrize(
    ("facts", "urgency", "problem"),
    [
        ({}, LabletUrgency.IN_PROGRESS, None),
        ({"placement": LOOKED}, LabletUrgency.WAITING, "no worker has room"),
        ({"placement": COMING}, LabletUrgency.IN_PROGRESS, None),
        ({"starts_at": LATER}, LabletUrgency.PLANNED, None),
        ({"starts_at": LATER, "placement": LOOKED}, LabletUrgency.PLANNED, None),
        ({"starts_at": NOW, "placement": LOOKED}, LabletUrgency.WAITING, "no worker has room"),
        ({"status": "SCHEDULED", "worker_id": "w-1"}, LabletUrgency.IN_PROGRESS, None),
        (
            {"status": "INSTANTIATING", "message": "waiting until all nodes have booted"},
            LabletUrgency.IN_PROGRESS,
            None,
        ),
        ({"status": "RUNNING"}, LabletUrgency.HEALTHY, None),
        ({"status": "RUNNING", "message": "CML cannot be queried"}, LabletUrgency.DEGRADED, "CML cannot be queried"),
        ({"status": "RUNNING", "message": "on hold by ada: her disks"}, LabletUrgency.HEALTHY, None),
        ({"status": "STOPPING", "message": "Stuck: its lab stays"}, LabletUrgency.STUCK, "its lab stays"),
        ({"status": "FAILED", "ending_reason": "no license"}, LabletUrgency.FAILED, "no license"),
        ({"status": "FAILED"}, LabletUrgency.FAILED, "failed"),
        ({"status": "EXPIRED", "ending_reason": "its time was over"}, LabletUrgency.ENDED, None),
        ({"status": "TERMINATED"}, LabletUrgency.ENDED, None),
    ],
)
def test_the_order_of_urgency(facts: dict[str, Any], urgency: LabletUrgency, problem: str | None) -> None:
    lablet = a_lablet(**facts)
    assert lablet_urgency(lablet) is urgency
    assert lablet_problem(lablet) == problem


def test_a_failed_lablet_is_listed_for_a_while() -> None:
    moment = (NOW + timedelta(minutes=1)).isoformat()
    assert shown_until(a_lablet()) > moment
    assert shown_until(a_lablet(status="FAILED")) > moment
    assert shown_until(a_lablet(status="FAILED")) < (NOW + FAILED_SHOWN_FOR + timedelta(minutes=1)).isoformat()
    assert shown_until(a_lablet(status="TERMINATED")) < moment
