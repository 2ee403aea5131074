"""Wall times: calendar.md#time-zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest
from pydantic import ValidationError

from lcm.model.calendar.zones import (
    TimeOccurrence,
    WallTime,
    WallTimeError,
    describe_changed_rules,
    end_instant,
    find_gap,
    find_instants,
    load_zone,
    read_zone_rules,
    start_instant,
)

ODD_ZONES = (
    "Australia/Lord_Howe",  # half an hour of summer time
    "Africa/Casablanca",  # winter time during Ramadan
    "Asia/Kathmandu",
    "Pacific/Chatham",
    "Pacific/Apia",  # skipped 30 December 2011
    "Pacific/Kwajalein",
    "America/New_York",
    "America/St_Johns",
    "America/Caracas",
    "America/Sao_Paulo",  # put forward at midnight: some days began at 01:00
    "America/Havana",
    "America/Scoresbysund",
    "Antarctica/Troll",  # two hours of summer time
    "Asia/Tehran",
    "Asia/Amman",
    "Asia/Pyongyang",
    "Europe/Brussels",
    "Europe/Dublin",  # winter time is the exception there
    "Europe/Istanbul",
    "UTC",
)
FIRST, LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "zone_name" in metafunc.fixturenames:
        every = metafunc.config.getoption("--all-zones")
        metafunc.parametrize(
            "zone_name", sorted(available_timezones() - {"localtime", "Factory"}) if every else ODD_ZONES
        )


@cache
def transitions(name: str) -> tuple[datetime, ...]:
    """The instants of thirty years at which a zone's offset changes, found by looking at it twice a day."""
    zone, found = ZoneInfo(name), []
    moment, step = FIRST, timedelta(hours=12)
    while moment < LAST:
        early, late = moment, moment + step
        if _offset(early, zone) != _offset(late, zone):
            while late - early > timedelta(seconds=1):
                middle = early + timedelta(seconds=(late - early) // timedelta(seconds=1) // 2)
                early, late = (middle, late) if _offset(middle, zone) == _offset(moment, zone) else (early, middle)
            found.append(late)
        moment += step
    return tuple(found)


def wall_time(text: str, zone: str) -> WallTime:
    return WallTime.model_validate({"at": text, "zone": zone})


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _wall(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def test_instants_agree_with_the_clock_over_thirty_years(zone_name: str) -> None:
    zone = ZoneInfo(zone_name)
    for instant in transitions(zone_name):
        before, after = _offset(instant - MINUTE, zone), _offset(instant, zone)
        shown = sorted((_wall(instant - MINUTE, zone) + MINUTE, _wall(instant, zone)))
        span = shown[1] - shown[0]
        for base in shown:
            for part in (-DAY, -span, -span / 2, -MINUTE, timedelta(), MINUTE, span / 2, span - MINUTE, span, DAY):
                wall = (base + part).replace(microsecond=0)
                candidates = {wall.replace(tzinfo=UTC) - offset for offset in (before, after)}
                expected = tuple(sorted(each for each in candidates if _wall(each, zone) == wall))
                assert find_instants(wall, zone) == expected, (zone_name, wall)
                gap = find_gap(wall, zone)
                assert (gap is None) == bool(expected), (zone_name, wall)
                if gap is not None:
                    assert (gap.instant, gap.begins, gap.ends) == (instant, *shown), (zone_name, wall)
                    assert start_instant(wall, zone) == end_instant(wall, zone) == instant
                else:
                    assert (start_instant(wall, zone), end_instant(wall, zone)) == (expected[0], expected[-1])


def test_a_clock_is_always_at_the_time_that_it_shows(zone_name: str) -> None:
    zone, moment = ZoneInfo(zone_name), FIRST
    while moment < LAST:
        assert moment in find_instants(_wall(moment, zone), zone)
        moment += timedelta(days=11, hours=5, minutes=17)


def test_a_change_of_a_zones_rules_is_noticed() -> None:
    """The rules are compared where both are known; what lies in the past does not count."""
    now = datetime(2026, 11, 18, 12, tzinfo=UTC)
    known = read_zone_rules("Europe/Brussels", now)
    assert [each.offset_seconds for each in known.offsets] == [3600, 7200, 3600]
    assert [each.at.isoformat() for each in known.offsets[1:]] == [
        "2027-03-28T01:00:00+00:00",
        "2027-10-31T01:00:00+00:00",
    ]
    later = read_zone_rules("Europe/Brussels", now + 200 * DAY)
    assert describe_changed_rules(known, later) is None
    no_summer = known.model_copy(update={"offsets": known.offsets[:1]})
    assert describe_changed_rules(known, no_summer) == (
        "from 2027-03-28 01:00 UTC on Europe/Brussels is UTC+01:00, and was expected to be UTC+02:00"
    )
    assert describe_changed_rules(no_summer, known) == (
        "from 2027-03-28 01:00 UTC on Europe/Brussels is UTC+02:00, and was expected to be UTC+01:00"
    )


def test_zones_are_found_by_name_only() -> None:
    assert load_zone("Europe/Brussels").key == "Europe/Brussels"
    for name in ("Mars/Olympus", "Europe", "../etc/passwd", "right/Europe/Brussels", "localtime", "", "a\0b"):
        with pytest.raises(ValueError, match="must be a time zone such as Europe/Brussels"):
            load_zone(name)
    with pytest.raises(ValueError, match=r"did you mean Europe/Brussels\?"):
        load_zone("europe/brussels")


def test_a_skipped_time_is_refused_with_its_neighbours() -> None:
    wall = wall_time("2026-03-29T02:30", "Europe/Brussels")
    with pytest.raises(WallTimeError) as refused:
        wall.instant()
    assert str(refused.value) == (
        "2026-03-29 02:30 does not exist in Europe/Brussels: clocks go from 2026-03-29 02:00 to 2026-03-29 03:00;"
        " use 2026-03-29 01:59 or 2026-03-29 03:00"
    )


def test_a_skipped_day_is_refused_with_its_neighbours() -> None:
    with pytest.raises(WallTimeError, match="use 2011-12-29 23:59 or 2011-12-31 00:00"):
        wall_time("2011-12-30T12:00", "Pacific/Apia").instant()


def test_a_doubled_time_needs_first_or_second() -> None:
    wall = wall_time("2026-10-25T02:30", "Europe/Brussels")
    with pytest.raises(
        WallTimeError, match="occurs twice in Europe/Brussels, at 2026-10-25 00:30:00 UTC and 2026-10-25 01:30:00 UTC"
    ) as refused:
        wall.instant()
    assert str(refused.value).endswith("; set occurrence (lcm: --which) to first or second")
    chosen = [wall.model_copy(update={"occurrence": each}).instant() for each in TimeOccurrence]
    assert chosen == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)]


def test_a_wall_time_has_no_offset() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        wall_time("2026-07-01T09:00Z", "Asia/Kathmandu")


def test_an_ordinary_time_is_one_instant() -> None:
    wall = wall_time("2026-07-01T09:00", "Asia/Kathmandu")
    assert wall.instant() == datetime(2026, 7, 1, 3, 15, tzinfo=UTC)
