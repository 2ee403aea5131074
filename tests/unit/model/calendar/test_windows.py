"""Weekly windows: calendar.md#windows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.model.calendar.windows import (
    DateException,
    TimeRange,
    Timetable,
    WeeklyWindow,
    make_timetable,
    parse_exception,
    parse_window,
)

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)

# Days on which clocks are changed, among them two zones where a date, or midnight, does not exist.
CHANGES = (
    ("Europe/Brussels", date(2026, 3, 29)),
    ("Europe/Brussels", date(2026, 10, 25)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("Africa/Casablanca", date(2026, 2, 15)),
    ("Africa/Casablanca", date(2026, 3, 22)),
    ("Pacific/Apia", date(2011, 12, 30)),
    ("Pacific/Chatham", date(2026, 9, 27)),
    ("America/New_York", date(2026, 11, 1)),
    ("America/Sao_Paulo", date(2018, 11, 4)),
    ("America/Havana", date(2026, 11, 1)),
    ("Antarctica/Troll", date(2026, 10, 25)),
    ("Asia/Kathmandu", date(2026, 6, 1)),
)


@cache
def clock(zone_name: str, middle: date) -> list[datetime]:
    """What a clock in the zone shows in each minute of eight days, from four days before on."""
    zone, first = ZoneInfo(zone_name), _first_minute(middle)
    return [(first + n * MINUTE).astimezone(zone).replace(tzinfo=None, fold=0) for n in range(8 * 24 * 60)]


def _first_minute(middle: date) -> datetime:
    return datetime.combine(middle, time(), tzinfo=UTC) - 4 * DAY


def open_minutes(timetable: Timetable, zone_name: str, middle: date) -> set[int]:
    """The open minutes, found by watching the clock.

    A window opens when the clock first reaches or passes its start, and closes when it last shows or passes its end.
    """
    shown = clock(zone_name, middle)
    # The first minute with at least a time, and the first after which all have: sorted, so that both can be searched.
    highest, lowest = list(shown), list(shown)
    for n in range(1, len(shown)):
        highest[n] = max(highest[n - 1], shown[n])
    for n in range(len(shown) - 2, -1, -1):
        lowest[n] = min(lowest[n + 1], shown[n])
    found: set[int] = set()
    day = middle - 6 * DAY
    while day <= middle + 6 * DAY:
        exception = next((each for each in reversed(timetable.exceptions) if each.first <= day <= each.last), None)
        ranges = (
            [each for window in timetable.windows if day.weekday() in window.days for each in window.times]
            if exception is None
            else exception.times
        )
        for each in ranges:
            end_day = day if each.end > each.start else day + DAY
            start = bisect_left(highest, datetime.combine(day, each.start))
            closing = datetime.combine(end_day, each.end)
            end = bisect_right(lowest, closing)  # after the last minute that is not later than the end
            end -= bool(end and shown[end - 1] == closing)
            found.update(range(start, end))
        day += DAY
    return found


TIMES = st.sampled_from([time(hour, minute) for hour in (0, 1, 2, 3, 8, 18, 22, 23) for minute in (0, 15, 30, 59)])
RANGES = st.lists(st.builds(TimeRange, TIMES, TIMES), min_size=1, max_size=2).map(tuple)
WINDOWS = st.builds(WeeklyWindow, st.sets(st.integers(0, 6), min_size=1).map(sorted).map(tuple), RANGES)


@st.composite
def timetables(draw: st.DrawFn) -> tuple[Timetable, str, date]:
    zone_name, middle = draw(st.sampled_from(CHANGES))
    days = st.integers(-3, 3).map(lambda n: middle + n * DAY)
    exceptions = draw(
        st.lists(st.builds(lambda day, times: DateException(day, day, times), days, RANGES | st.just(())), max_size=2)
    )
    windows = draw(st.lists(WINDOWS, min_size=1, max_size=2))
    windows.append(WeeklyWindow((middle.weekday(),), draw(RANGES)))  # on the day itself, too
    return Timetable(ZoneInfo(zone_name), tuple(windows), tuple(exceptions)), zone_name, middle


@settings(max_examples=120)
@given(timetables())
def test_states_and_boundaries_are_those_of_a_clock_that_is_watched(
    given_timetable: tuple[Timetable, str, date],
) -> None:
    timetable, zone_name, middle = given_timetable
    expected = open_minutes(timetable, zone_name, middle)
    first, last = 24 * 60, 7 * 24 * 60
    minute = first
    while minute < last:
        state = timetable.state(_first_minute(middle) + minute * MINUTE)
        changes = (n for n in range(minute + 1, last) if (n in expected) != (minute in expected))
        end = next(changes, last)
        assert state.is_open == (minute in expected), (zone_name, minute)
        boundary = None if end == last else _first_minute(middle) + end * MINUTE
        if boundary is not None:
            assert state.next_boundary == boundary, (zone_name, minute)
        elif state.next_boundary is not None:
            assert state.next_boundary >= _first_minute(middle) + last * MINUTE, (zone_name, minute)
        minute = end


@settings(max_examples=40)
@given(timetables(), st.lists(st.integers(0, 6 * 24 * 60), min_size=2, max_size=6))
def test_an_answer_does_not_depend_on_earlier_questions(
    given_timetable: tuple[Timetable, str, date], offsets: list[int]
) -> None:
    asked, _, middle = given_timetable
    for offset in offsets:
        now = _first_minute(middle) + (24 * 60 + offset) * MINUTE
        assert asked.state(now) == Timetable(asked.zone, asked.windows, asked.exceptions).state(now)


@given(WINDOWS)
def test_the_text_of_a_window_is_read_as_the_same_window(window: WeeklyWindow) -> None:
    read = parse_window(str(window))
    assert (read.days, read.times) == (window.days, tuple(sorted(set(window.times))))


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("mon-fri 08:00-18:00", "mon-fri 08:00-18:00"),
        ("MON,tue , wed 08:00-12:00,13:00-17:00", "mon-wed 08:00-12:00, 13:00-17:00"),
        ("fri-mon 22:00-06:00", "mon,fri-sun 22:00-06:00"),
        ("daily 00:00-24:00", "daily 00:00-24:00"),
        ("sun 10:00-10:00", "sun 10:00-10:00"),
    ],
)
def test_windows_have_a_shortest_text(text: str, shortest: str) -> None:
    assert str(parse_window(text)) == shortest


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must be days and times such as mon-fri 08:00-18:00"),
        ("08:00-18:00", "must be days and times such as mon-fri 08:00-18:00"),
        ("mon-fry 08:00-18:00", "'fry' is not a day; use mon, tue, wed, thu, fri, sat, sun or daily"),
        ("mon 8-18", "'8-18' is not a range of times; use one such as 08:00-18:00"),
        ("mon 08:00-25:00", "'08:00-25:00' has a time that does not exist"),
        ("mon 24:00-08:00", "'24:00-08:00' has a time that does not exist"),
    ],
)
def test_a_wrong_window_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_window(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("christmas closed", "must be a date with times or closed"),
        ("2026-12-25", "must be a date with times or closed"),
        ("2026-02-30 closed", "2026-02-30 is not a date"),
        ("0999-02-03 closed", "must be a date from the year 1970 to 2999"),
        ("2026-12-25..2026-12-24 closed", "2026-12-24 is before 2026-12-25; give the earlier date first"),
        ("2026-12-25 shut", "'shut' is not a range of times"),
    ],
)
def test_a_wrong_exception_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_exception(text)


def test_an_exception_replaces_the_windows_of_its_dates_and_the_last_one_counts() -> None:
    exceptions = ("2026-12-24..2027-01-02 closed", "2026-12-31 10:00-12:00")
    timetable = make_timetable("Europe/Brussels", ("mon-fri 08:00-18:00",), exceptions)
    holiday = timetable.state(datetime(2026, 12, 25, 10, tzinfo=UTC))
    assert (holiday.is_open, holiday.rule) == (False, "2026-12-24..2027-01-02 closed")
    assert holiday.next_boundary == datetime(2026, 12, 31, 9, tzinfo=UTC)
    eve = timetable.state(datetime(2026, 12, 31, 10, tzinfo=UTC))
    assert (eve.is_open, eve.rule) == (True, "2026-12-31 10:00-12:00")
    after = timetable.state(datetime(2026, 12, 31, 12, tzinfo=UTC))
    assert after.next_boundary == datetime(2027, 1, 4, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("day", "window", "opens", "closes"),
    [
        ("2026-10-25", "sun 01:00-02:30", "2026-10-24T23:00", "2026-10-25T01:30"),  # the second 02:30
        ("2026-10-25", "sun 02:30-05:00", "2026-10-25T00:30", "2026-10-25T04:00"),  # the first 02:30
        ("2026-10-25", "sat 22:00-06:00", "2026-10-24T20:00", "2026-10-25T05:00"),  # nine hours
        ("2026-03-29", "sun 02:30-06:00", "2026-03-29T01:00", "2026-03-29T04:00"),
        ("2026-03-29", "sun 00:00-02:30", "2026-03-28T23:00", "2026-03-29T01:00"),
        ("2026-03-29", "sat 22:00-06:00", "2026-03-28T21:00", "2026-03-29T04:00"),  # seven hours
        ("2026-03-29", "sun 02:10-02:50", "2026-04-05T00:10", "2026-04-05T00:50"),  # skipped as a whole
    ],
)
def test_windows_of_a_night_in_which_clocks_are_changed(day: str, window: str, opens: str, closes: str) -> None:
    before = datetime.fromisoformat(f"{day}T12:00+00:00") - DAY
    timetable = make_timetable("Europe/Brussels", (window,))
    opening = timetable.state(before).next_boundary
    assert opening == datetime.fromisoformat(f"{opens}+00:00")
    assert timetable.state(opening).next_boundary == datetime.fromisoformat(f"{closes}+00:00")


def test_windows_that_touch_are_one_opening() -> None:
    timetable = make_timetable("UTC", ("mon 08:00-12:00", "mon 12:00-18:00", "mon 17:00-24:00", "tue 00:00-01:00"))
    state = timetable.state(datetime(2026, 11, 16, 9, tzinfo=UTC))
    assert state.next_boundary == datetime(2026, 11, 17, 1, tzinfo=UTC)
    openings = timetable.openings(datetime(2026, 11, 16, 9, tzinfo=UTC), datetime(2026, 11, 24, tzinfo=UTC))
    assert [(each.start.day, each.end.day) for each in openings] == [(16, 17), (23, 24)]


def test_what_never_changes_has_no_boundary() -> None:
    now = datetime(2026, 11, 16, 9, tzinfo=UTC)
    always = make_timetable("Europe/Brussels", ("daily 00:00-24:00",)).state(now)
    assert (always.is_open, always.next_boundary) == (True, None)
    never = make_timetable("Europe/Brussels", ("mon 08:00-09:00",), ("2020-01-01..2999-12-31 closed",)).state(now)
    assert (never.is_open, never.next_boundary) == (False, None)
    closed_once = make_timetable("Europe/Brussels", ("daily 00:00-24:00",), ("2027-06-01 closed",)).state(now)
    assert closed_once.next_boundary == datetime(2027, 5, 31, 22, tzinfo=UTC)
