"""Durations and times, parsed and formatted."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cli.errors import UsageError
from lcm.cli.output.durations import (
    at_column_title,
    format_duration,
    format_elapsed,
    format_time_with_zone,
    format_timestamp,
    local_times,
    parse_duration,
    parse_past_time,
    parse_time,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 1, 17, 10, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("45", 45), (" 1W ", 604_800), ("0.5h", 1800)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "soon", "10 m", "m10", "-5m", "0s", "1h!", "99999d", "1e3s"])
def test_an_invalid_duration_is_reported_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="--timeout"):
        parse_duration(text, "--timeout")


@pytest.mark.parametrize("text", ["yesterday", "10:30", "2026-13-45", "next week"])
def test_an_invalid_time_is_reported_with_both_forms(text: str) -> None:
    with pytest.raises(UsageError, match=r"must be a duration such as 2h, or a time such as 2026-01-17T10:30Z"):
        parse_time(text, NOW, "--until")
    with pytest.raises(UsageError, match=r"--since '.*': must be a duration such as 2h, or a time such as 2026"):
        parse_past_time(text, NOW, "--since")


def test_times() -> None:
    assert parse_time("2h", NOW) == NOW + timedelta(hours=2)
    assert parse_time("2026-01-18T10:30Z", NOW) == NOW + timedelta(days=1)
    assert parse_time("2026-01-18 10:30", NOW) == NOW + timedelta(days=1)
    with pytest.raises(UsageError):
        parse_time("2026-13-45", NOW)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0s"),
        (42, "42s"),
        (725, "12m"),
        (7500, "2h5m"),
        (36_000, "10h"),
        (90_000, "1d1h"),
        (1_000_000, "11d"),
    ],
)
def test_short(seconds: float, words: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == words


def test_elapsed_time() -> None:
    assert [format_elapsed(timedelta(seconds=each)) for each in (7, 750, 3723)] == ["0:07", "12:30", "1:02:03"]


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_times_are_in_the_zone_of_the_viewer_and_name_it() -> None:
    summer = NOW.replace(month=7)
    assert format_time_with_zone(NOW) == "2026-01-17 11:30:00 CET"
    assert at_column_title(NOW) == "AT (CET)"
    assert format_timestamp(NOW, NOW) == "2026-01-17 11:30:00"
    assert format_timestamp(summer, NOW) == "2026-07-17 12:30:00 CEST"
    assert parse_time("2026-01-17 11:30", NOW) == NOW
    assert parse_time("2026-01-17T10:30Z", NOW) == NOW


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("on hold since 10:05 UTC (exam)", "on hold since 11:05 CET (exam)"),
        ("at about 23:59 UTC, in 13 hours", "at about 00:59 CET on 18 January, in 13 hours"),
        ("until 10:30 UTC on 3 July", "until 12:30 CEST on 3 July"),
        ("until 23:30 UTC on 31 December", "until 00:30 CET on 1 January 2027"),
        ("until 10:30 UTC on 3 May 2028", "until 12:30 CEST on 3 May 2028"),
        ("release 31:99 UTC", "release 31:99 UTC"),
        ("it expired at 2026-07-17 23:30 UTC before", "it expired at 2026-07-18 01:30 CEST before"),
        ("the next may be at 2026-01-17 10:30:05 UTC", "the next may be at 2026-01-17 11:30:05 CET"),
        ("at 2026-02-30 10:30 UTC", "at 2026-02-30 10:30 UTC"),
        ("at 10:30 UTC+03", "at 10:30 UTC+03"),
    ],
)
def test_times_of_day_in_a_text_of_the_control_plane(text: str, local: str) -> None:
    assert local_times(text, NOW) == local
