"""Who decides what a worker is to be: calendar.md#precedence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from lcm.model.calendar.precedence import Authority, Claim, OtherClaims, decide_desired, outranking_claim
from lcm.model.worker.record import Hold, Override, Worker
from lcm.model.worker.status import DesiredStatus

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
RUNNING, STOPPED = DesiredStatus.RUNNING, DesiredStatus.STOPPED


def worker(**fields: object) -> Worker:
    base = {"id": "w-1", "name": "alpha", "template_name": "large", "aws_region": "eu-west-1"}
    times = {"status_since": NOW, "created_at": NOW, "updated_at": NOW}
    return Worker.model_validate(base | times | fields)


def hold(until: datetime | None = None) -> Hold:
    return Hold(reason="look", by="ann", since=NOW - HOUR, until=until)


def override(desired: DesiredStatus, until: datetime | None = None) -> Override:
    return Override(desired=desired, until=until, by="bob", since=NOW - HOUR)


def test_the_order_is_that_of_the_contract() -> None:
    """Every combination of claims: the first that is there, in this order, wins."""
    booking = Claim(Authority.BOOKING, RUNNING, "class")
    maintenance = Claim(Authority.MAINTENANCE, STOPPED, "reboot")
    schedule = Claim(Authority.SCHEDULE, STOPPED, "office hours")
    for present in product((False, True), repeat=6):
        terminated, held, booked, overridden, maintained, scheduled = present
        subject = worker(
            desired_status=DesiredStatus.TERMINATED if terminated else RUNNING,
            hold=hold() if held else None,
            override=override(STOPPED) if overridden else None,
        )
        others = OtherClaims(
            booking=booking if booked else None,
            maintenance=maintenance if maintained else None,
            schedule=schedule if scheduled else None,
        )
        expected = next((each for each, here in zip(Authority, present, strict=False) if here), Authority.POLICY)
        assert decide_desired(subject, NOW, others).authority is expected


def test_every_authority_is_outranked_by_those_before_it_only() -> None:
    subject = worker(override=override(RUNNING, NOW + HOUR))
    outranked = [each for each in Authority if outranking_claim(each, subject, NOW) is not None]
    assert outranked == [Authority.MAINTENANCE, Authority.SCHEDULE, Authority.POLICY]


def test_a_hold_keeps_what_is_desired_until_the_later_end() -> None:
    subject = worker(desired_status=STOPPED, hold=hold(NOW + HOUR))
    claim = decide_desired(subject, NOW, OtherClaims(fleet_hold=hold(NOW + 2 * HOUR)))
    assert (claim.desired, claim.until) == (STOPPED, NOW + 2 * HOUR)
    assert decide_desired(subject, NOW, OtherClaims(fleet_hold=hold())).until is None
    assert decide_desired(subject, NOW + HOUR).authority is Authority.POLICY


@pytest.mark.parametrize(("until", "wins"), [(None, True), (NOW + HOUR, True), (NOW, False), (NOW - HOUR, False)])
def test_an_override_counts_until_its_end(until: datetime | None, wins: bool) -> None:
    claim = decide_desired(worker(override=override(STOPPED, until)), NOW)
    assert (claim.authority is Authority.PERSON) is wins
    assert claim.desired is (STOPPED if wins else RUNNING)


def test_an_override_says_who_wants_what_and_until_when() -> None:
    wish = Override(desired=RUNNING, until=NOW + HOUR, by="bob", since=NOW, reason="demo for a customer")
    assert decide_desired(worker(override=wish), NOW).reason == (
        "bob requested RUNNING until 13:00 UTC (demo for a customer)"
    )
