"""When a failed seat of a class is made anew, and what is said about it (calendar.md#carrying-out)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lcm.model.booking.failed_seats import RETRY_WAITS, failed_for_good, retry_at, retry_text
from tests.support.records.lablet_records import a_lablet
from tests.support.records.workers import NOW

BOUND = len(RETRY_WAITS)


def failed(seat: int = 3, **facts: Any) -> Any:
    known = {"id": f"l-abc-1-{seat}", "booking_id": "bk-1", "status": "FAILED", "ending": "FAILED"}
    return a_lablet(**{**known, **facts})


@pytest.mark.parametrize("retries", range(BOUND))
def test_each_retry_waits_longer(retries: int) -> None:
    assert retry_at(failed(retries=retries)) == NOW + RETRY_WAITS[retries]
    assert sorted(set(RETRY_WAITS)) == list(RETRY_WAITS)
    assert sum(RETRY_WAITS, timedelta()) < timedelta(minutes=20)


@pytest.mark.parametrize(
    "other",
    [
        failed(retries=BOUND),
        failed(wanted=False),  # its end was requested while it failed
        failed(booking_id=None),  # not of a class
        failed(status="TERMINATED"),
        failed(status="EXPIRED"),
        failed(status="STOPPING"),
        failed(ending="LATER"),  # a word of a newer version
    ],
)
def test_others_are_not_made_anew(other: Any) -> None:
    assert retry_at(other) is None


def test_the_text_says_when_and_how_often() -> None:
    assert retry_text(failed(), NOW) == f"It is made anew at {NOW + RETRY_WAITS[0]:%H:%M} UTC: try 2 of 5."
    due = NOW + RETRY_WAITS[3]
    assert retry_text(failed(retries=3), due) == "It is made anew in a moment: try 5 of 5."
    assert retry_text(failed(retries=4), NOW) == "It has failed 5 times and is not made anew by itself: reset it."
    assert retry_text(failed(wanted=False), NOW) == ""


def test_the_text_says_for_what_a_retry_waits_that_is_not_made() -> None:
    later = NOW + timedelta(hours=1)
    waits = "It waits for the scheduler or for a worker of its class: try 5 of 5."
    assert retry_text(failed(retries=3), later).endswith(waits)
    held = "It is made anew when the hold of the fleet ends: try 2 of 5."
    assert retry_text(failed(), later, on_hold=True) == held
    assert retry_text(failed(retries=BOUND), NOW, on_hold=True).endswith("reset it.")
    assert retry_text(failed(ending="LATER"), NOW) in ("", "It has failed and is not made anew by itself: reset it.")


def test_seats_that_stay_failed_are_named_with_what_to_do() -> None:
    given_up = [failed(seat, retries=BOUND) for seat in (3, 7)]
    assert failed_for_good([failed(1), failed(2, wanted=False, retries=BOUND)]) == ""
    assert failed_for_good(given_up).startswith("seats 3, 7 have failed 5 times: find out why and reset them")
    assert failed_for_good(given_up[:1]).startswith("seat 3 has failed 5 times: find out why and reset it")
    many = [failed(seat, retries=BOUND) for seat in range(1, 1001)]
    assert len(failed_for_good(many)) < 300
