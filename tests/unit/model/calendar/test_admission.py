"""Bookings are admitted only if they fit together at every instant: compared with a check of every single hour."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.model.calendar.admission import (
    FREE_TIMES,
    BookedCapacity,
    BookingLimits,
    LiveWorker,
    Resource,
    admit,
)

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN = datetime(2026, 11, 16, tzinfo=UTC)
HOUR = timedelta(hours=1)
REGIONS, TEMPLATES, TEAMS = ("eu-west-1", "us-east-1"), ("large", "metal"), ("blue", "red")


def at(hours: float) -> datetime:
    return BEGIN + hours * HOUR


def booking(start: float, length: float, workers: int = 1, **more: Any) -> BookedCapacity:
    facts: dict[str, Any] = {"region": "eu-west-1", "template": "metal", "team": "blue", "seats": workers}
    return BookedCapacity(at(start), at(start + length), workers=workers, **(facts | more))


def launches(booked: list[BookedCapacity], usable: list[LiveWorker]) -> int:
    """How many workers are missing: whatever set of teams lacks most, counted with the workers that may serve them."""
    teams = sorted({each.team for each in booked})
    sets = [part for size in range(len(teams) + 1) for part in combinations(teams, size)]
    return max(
        0,
        *(
            sum(each.workers for each in booked if each.team in part)
            - sum(not each.team or each.team in part for each in usable)
            for part in sets
        ),
    )


def needlessly_taken(booked: list[BookedCapacity], usable: list[LiveWorker]) -> int:
    """How many workers take a license for a class that needs none, as the last choice; handed out one by one."""
    free, taken = list(usable), 0

    def hand_out(wanted: list[str], team: str, matches: Callable[[LiveWorker], bool]) -> int:
        given = 0
        for asks in [each for each in wanted if not team or each == team]:
            found = next((each for each in free if each.team == team and matches(each)), None)
            if found is not None:
                free.remove(found)
                wanted.remove(asks)
                given += 1
        return given

    exams = [each.team for each in booked if each.licensed for _ in range(each.workers)]
    others = [each.team for each in booked if not each.licensed for _ in range(each.workers)]
    for team in (*TEAMS, ""):
        hand_out(exams, team, lambda each: each.registered)
        hand_out(exams, team, lambda each: each.registers)
        hand_out(others, team, lambda each: not each.registered and not each.registers)
        hand_out(others, team, lambda each: each.registered)
        taken += hand_out(others, team, lambda each: each.registers)
        hand_out(exams, team, lambda each: True)
    return taken


def is_overcommitted(
    booked: list[BookedCapacity], live: list[LiveWorker], limits: BookingLimits, moment: datetime, asks: BookedCapacity
) -> set[Resource]:
    """What is exceeded at an instant, of what a booking asks for; written without any of the code under test."""
    now = [each for each in booked if each.start <= moment < each.end]
    free = [each for each in live if each.free_from is not None and each.free_from <= moment]
    exceeded: set[Resource] = set()
    here = [each for each in live if each.region == asks.region]
    workers, licenses = len(here), sum(each.registered for each in live)
    takes = asks.licensed
    for region in REGIONS:
        for template in TEMPLATES:
            alike = [each for each in now if (each.region, each.template) == (region, template)]
            usable = [each for each in free if (each.region, each.template) == (region, template)]
            if region == asks.region:
                workers += launches(alike, usable)
            registered = [each for each in usable if each.registered]
            licenses += launches([each for each in alike if each.licensed], registered)
            needless = needlessly_taken(alike, usable)
            licenses += needless
            takes = takes or (needless > 0 and (region, template) == (asks.region, asks.template))
    if workers > limits.max_workers_per_region:
        exceeded.add(Resource.WORKERS)
    if takes and limits.license_pool is not None and licenses > limits.license_pool:
        exceeded.add(Resource.LICENSES)
    seats = sum(each.seats for each in now if each.team == asks.team)
    if seats > limits.team_seats.get(asks.team, seats):
        exceeded.add(Resource.TEAM_SEATS)
    return exceeded


def hours_of(each: BookedCapacity) -> list[datetime]:
    return [each.start + number * HOUR for number in range(int((each.end - each.start) / HOUR))]


BOOKINGS = st.builds(
    booking,
    st.integers(0, 60),
    st.integers(1, 8),
    st.integers(1, 4),
    region=st.sampled_from(REGIONS),
    template=st.sampled_from(TEMPLATES),
    licensed=st.booleans(),
    team=st.sampled_from(TEAMS),
)
LIVE = st.lists(
    st.builds(
        LiveWorker,
        st.sampled_from(REGIONS),
        st.sampled_from(TEMPLATES),
        st.none() | st.integers(-1, 60).map(at),
        st.booleans(),
        st.sampled_from(("", *TEAMS)),
        st.booleans(),
    ).map(lambda each: replace(each, registers=each.registers and not each.registered)),
    max_size=5,
)
LIMITS = st.builds(
    BookingLimits,
    st.integers(1, 9),
    st.none() | st.integers(0, 9),
    st.dictionaries(st.sampled_from(TEAMS), st.integers(0, 9)),
)


@settings(max_examples=150)
@given(st.lists(BOOKINGS, max_size=8), LIVE, LIMITS, BOOKINGS, st.integers(1, 3))
def test_a_booking_is_confirmed_exactly_if_every_hour_of_it_fits(
    booked: list[BookedCapacity], live: list[LiveWorker], limits: BookingLimits, asked: BookedCapacity, repeats: int
) -> None:
    occurrences = [asked.moved(number * 9 * HOUR) for number in range(repeats)]
    exceeded = {
        resource
        for each in occurrences
        for moment in hours_of(each)
        for resource in is_overcommitted([*booked, each], live, limits, moment, each)
    }
    answer = admit(occurrences, booked, live, limits)
    assert {each.resource for each in answer.shortages} == exceeded
    assert answer.confirmed is not bool(exceeded)
    for each in answer.shortages:
        assert each.needed > each.allowed
        assert any(occurrence.start <= each.at < occurrence.end for occurrence in occurrences)


@settings(max_examples=80)
@given(st.lists(BOOKINGS, max_size=8), LIVE, LIMITS, BOOKINGS, st.integers(1, 3))
def test_the_first_free_time_is_the_earliest_and_all_of_them_fit(
    booked: list[BookedCapacity], live: list[LiveWorker], limits: BookingLimits, asked: BookedCapacity, repeats: int
) -> None:
    def fits(start: datetime) -> bool:
        moved = [asked.moved(start - asked.start + number * 9 * HOUR) for number in range(repeats)]
        return not any(
            is_overcommitted([*booked, each], live, limits, moment, each) for each in moved for moment in hours_of(each)
        )

    answer = admit([asked.moved(number * 9 * HOUR) for number in range(repeats)], booked, live, limits)
    if answer.confirmed:
        assert answer.free_times == ()
        return
    later = (asked.start + number * HOUR for number in range(1, 14 * 24 + 1))
    earliest = next((start for start in later if fits(start)), None)
    assert (answer.free_times[0] if answer.free_times else None) == earliest
    assert list(answer.free_times) == sorted(set(answer.free_times))
    assert len(answer.free_times) <= FREE_TIMES
    assert all(fits(start) for start in answer.free_times)


@settings(max_examples=60)
@given(st.lists(BOOKINGS, max_size=14), LIVE, LIMITS)
def test_what_was_admitted_one_after_the_other_never_exceeds_anything(
    requests: list[BookedCapacity], live: list[LiveWorker], limits: BookingLimits
) -> None:
    admitted: list[BookedCapacity] = []
    for each in requests:
        if admit([each], admitted, live, limits).confirmed:
            admitted.append(each)
    for each in admitted:
        for moment in hours_of(each):
            assert not is_overcommitted(admitted, live, limits, moment, each)


def test_a_refusal_says_what_is_short_and_when_it_would_fit() -> None:
    booked = [booking(9, 4, workers=6)]
    answer = admit([booking(10, 4, workers=5)], booked, [], BookingLimits(10))
    assert [str(each) for each in answer.shortages] == ["workers: 11 would be needed, 10 are allowed"]
    assert answer.shortages[0].at == at(10)
    assert answer.free_times == (at(13),)


def test_preferred_times_are_offered_if_they_are_free() -> None:
    booked = [booking(9, 4, workers=8), booking(33, 4, workers=8)]
    other_days = [at(10 + 24 * number) for number in (1, 2, 3)]
    answer = admit([booking(10, 2, workers=5)], booked, [], BookingLimits(10), preferred=other_days)
    assert answer.free_times == (at(13), at(37), at(58))


def test_times_that_cannot_be_chosen_leave_room_for_later_ones() -> None:
    """Classes of later weeks follow the clocks: where these change, they are not a whole number of days apart."""
    booked = [booking(9, 4, workers=8)]
    other_days = [at(10 + 24 * number) for number in range(1, 8)]

    def plan_from(start: datetime) -> list[tuple[datetime, datetime]]:
        return [(start, start + 2 * HOUR)] if start >= at(100) else []

    answer = admit(
        [booking(10, 2, workers=5)], booked, [], BookingLimits(10), preferred=other_days, plan_from=plan_from
    )
    assert answer.free_times == tuple(other_days[3:6])


def test_free_times_begin_at_a_quarter_of_an_hour() -> None:
    booked = [booking(9, 4.1, workers=8)]
    assert admit([booking(10, 2, workers=5)], booked, [], BookingLimits(10)).free_times == (at(13.25),)


@pytest.mark.parametrize(
    ("live", "confirmed"),
    [
        ([LiveWorker("eu-west-1", "metal", at(0))] * 8, True),  # they serve the booking, running or stopped
        ([LiveWorker("eu-west-1", "large", at(0))] * 8, False),  # of another template
        ([LiveWorker("eu-west-1", "metal", None)] * 8, False),  # held or failed
        ([LiveWorker("eu-west-1", "metal", at(0), team="red")] * 8, False),  # of another team
        ([LiveWorker("eu-west-1", "metal", at(0), team="blue")] * 8, True),
        ([LiveWorker("eu-west-1", "metal", at(12))] * 8, False),  # walk-ins last past the start
        ([LiveWorker("us-east-1", "metal", None)] * 8, True),
    ],
)
def test_workers_that_cannot_serve_take_up_places(live: list[LiveWorker], confirmed: bool) -> None:
    assert admit([booking(10, 4, workers=5)], [], live, BookingLimits(10)).confirmed is confirmed


def test_a_class_that_needs_no_license_does_not_make_workers_take_more_than_there_are() -> None:
    """A stopped worker that gave its license back takes one when it is started, for whatever class."""
    stopped, licensed = (
        LiveWorker("eu-west-1", "metal", at(0), registers=True),
        LiveWorker("us-east-1", "x", None, True),
    )
    for others, confirmed in (
        ([], True),
        ([licensed], False),
        ([licensed, LiveWorker("eu-west-1", "metal", at(0))], True),
    ):
        answer = admit([booking(10, 4)], [], [stopped, *others], BookingLimits(10, 1))
        assert answer.confirmed is confirmed
    both = [booking(10, 4, licensed=True)]
    assert admit([booking(10, 4)], both, [stopped], BookingLimits(2, 1)).confirmed, "the exam takes it"


def test_a_limit_that_was_lowered_refuses_only_what_needs_more() -> None:
    """What is booked already exceeds the limit at another time: that is no reason to refuse this one."""
    assert admit([booking(20, 2)], [booking(9, 4, workers=8)], [], BookingLimits(5)).confirmed
