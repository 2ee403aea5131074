"""What puts a class at risk while it takes place: not what people do with their seats (calendar.md#carrying-out)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lcm.model.booking.progress import WorkerChoice, assess_risk
from lcm.model.booking.record import BookingOccurrence
from lcm.model.calendar.zones import WallTime
from lcm.model.lablet.status import LabletStatus
from tests.support.records.lablet_records import a_lablet
from tests.support.records.workers import NOW
from tests.unit.model.booking.test_choose_workers import a_booking, ready

CLASS = BookingOccurrence(
    number=1,
    start=WallTime(at=NOW.replace(tzinfo=None), zone="UTC"),
    warm_up_at=NOW - timedelta(hours=2),
    starts_at=NOW - timedelta(hours=1),
    ends_at=NOW + timedelta(hours=1),
)
ENDED, FAILED = LabletStatus.TERMINATED, LabletStatus.FAILED
SEAT_FAILED = {"id": "l-abc-1-2", "booking_id": "bk-1", "status": "FAILED", "ending": FAILED}
BEFORE = NOW - timedelta(minutes=30)


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        ({"status": "RUNNING"}, None),
        ({"status": "STOPPING", "ending": ENDED, "wanted": False}, None),  # its learner has ended it
        ({"status": "STOPPING", "ending": LabletStatus.EXPIRED}, None),
        ({"status": "TERMINATED", "ending": ENDED, "wanted": False}, None),
        ({"status": "INSTANTIATING", "running_since": BEFORE}, None),  # its learner resets it
        ({"status": "INSTANTIATING", "running_since": BEFORE, "status_since": BEFORE}, "1 of 2 seats are running"),
        ({"status": "INSTANTIATING"}, "1 of 2 seats are running"),
        ({"status": "STOPPING", "ending": FAILED}, "1 of 2 seats are running"),
        ({"status": "FAILED", "ending": FAILED}, "1 of 2 seats are running"),
        ({"status": "FAILED", "ending": FAILED, "wanted": False}, None),  # its learner has ended it while it failed
        ({**SEAT_FAILED, "retries": 3}, "1 of 2 seats are running; 1 failed and will be made anew"),
    ],
)
def test_a_seat_is_missing_unless_its_learner_has_ended_or_resets_it(
    facts: dict[str, Any], missing: str | None
) -> None:
    seats = [a_lablet(id="l-1", status="RUNNING"), a_lablet(**{"id": "l-2", **facts})]
    choice = WorkerChoice((ready("alpha"), ready("beta")), (), 0)
    found = assess_risk(a_booking(2), CLASS, choice, seats, NOW)
    assert (None if found is None else found.missing) == missing


def test_workers_without_a_license_are_named_as_soon_as_they_are_there() -> None:
    later = CLASS.model_copy(update={"starts_at": NOW + timedelta(hours=1)})
    workers = (ready("alpha", has_license_token=True), ready("beta"))
    found = assess_risk(a_booking(2, licensed=True), later, WorkerChoice(workers, (), 0), [], NOW)
    assert found is not None
    assert found.missing.startswith("1 of 2 workers have no license: set SCALE_UP_LICENSE_TOKEN")
    assert assess_risk(a_booking(2), later, WorkerChoice(workers, (), 0), [], NOW) is None


def test_a_seat_that_stays_failed_is_named_long_before_the_start() -> None:
    later = CLASS.model_copy(update={"starts_at": NOW + timedelta(hours=1)})
    choice = WorkerChoice((ready("alpha"), ready("beta")), (), 0)
    seats = [a_lablet(id="l-abc-1-1"), a_lablet(**SEAT_FAILED, retries=3)]
    assert assess_risk(a_booking(2), later, choice, seats, NOW) is None, "it is made anew"
    given_up = [seats[0], a_lablet(**SEAT_FAILED, retries=4)]
    found = assess_risk(a_booking(2), later, choice, given_up, NOW)
    assert found is not None
    assert found.missing.startswith("seat 2 has failed 5 times: find out why and reset it on the page of the class")
