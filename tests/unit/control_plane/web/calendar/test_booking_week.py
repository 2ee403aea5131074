"""The week of the Bookings page: days follow the clocks of the viewer, and what is booked is summed at its greatest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lcm.control_plane.http.openapi import load_examples
from lcm.control_plane.web.calendar.booking_week import choose_week, week_days, worker_usage
from lcm.model.booking.record import Booking
from lcm.model.calendar.admission import BookedCapacity

NOW = datetime(2026, 3, 29, 23, 30, tzinfo=UTC)  # Sunday, and Monday in Brussels since two hours before


def test_this_week_is_that_of_the_viewer() -> None:
    assert str(choose_week("America/New_York", "", NOW).monday) == "2026-03-23"
    assert str(choose_week("Europe/Brussels", "", NOW).monday) == "2026-03-30"
    assert str(choose_week("Europe/Brussels", "2026-11-19", NOW).monday) == "2026-11-16"
    for wrong in ("tomorrow", "0001-01-01", "9999-12-31"):
        week = choose_week("Mars/Base", wrong, NOW)
        assert (week.zone.key, week.unknown_zone) == ("UTC", "Mars/Base")
        assert week.previous <= week.monday <= week.following
        begin, end = week.span
        assert begin < end


def test_a_day_on_which_clocks_change_is_as_long_as_it_is() -> None:
    week = choose_week("Europe/Brussels", "2026-03-29", NOW)
    begin, end = week.bounds(week.days[-1])
    assert (end - begin).total_seconds() == 23 * 3600


def test_times_of_a_class_in_which_clocks_change_say_which_ones_are_meant() -> None:
    week = choose_week("Europe/Brussels", "2026-10-25", NOW)

    def shown(begins: datetime, hours: int) -> str:
        booking = Booking.model_validate(load_examples()["Booking"])
        times = {"starts_at": begins, "ends_at": begins + timedelta(hours=hours)}
        booking = booking.model_copy(update={"occurrences": (booking.occurrences[0].model_copy(update=times),)})
        return week_days([booking], week, NOW)[-1].classes[0].times

    assert shown(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), 1) == "02:30 CEST to 02:30 CET"
    assert shown(datetime(2026, 10, 25, 8, tzinfo=UTC), 4) == "09:00 to 13:00"
    assert shown(datetime(2026, 10, 24, 20, tzinfo=UTC), 8) == "00:00 CEST to 05:00 CET"


def test_usage_is_the_greatest_sum_of_each_day_and_counts_what_began_before() -> None:
    week = choose_week("UTC", "2026-03-23", NOW)

    def booked(
        start: str, end: str, workers: int, region: str = "us-east-1", *, licensed: bool = False
    ) -> BookedCapacity:
        begins, ends = (datetime.fromisoformat(f"2026-03-{each}:00+00:00") for each in (start, end))
        return BookedCapacity(begins, ends, region, "micro", workers, licensed)

    found = [
        booked("23T22:00", "24T02:00", 3),
        booked("24T01:00", "24T03:00", 4, licensed=True),
        booked("24T03:00", "24T05:00", 5),
        booked("25T00:00", "25T01:00", 1, "eu-west-1"),
    ]
    east, west, licenses = worker_usage(found, ["us-east-1"], 10, 6, week)
    assert [day.amount for day in east.days] == [3, 7, 0, 0, 0, 0, 0]
    assert east.days[1].at == datetime(2026, 3, 24, 1, tzinfo=UTC)
    assert (west.name, [day.amount for day in west.days][2]) == ("eu-west-1", 1)
    assert (licenses.limit, max(day.amount for day in licenses.days)) == (6, 4)
