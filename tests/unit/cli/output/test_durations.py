"""Durations and times, parsed and formatted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lcm.cli.errors import UsageError
from lcm.cli.output.durations import format_duration, format_elapsed, format_timestamp_utc, parse_duration, parse_time

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
    assert format_timestamp_utc(NOW) == "2026-01-17 10:30:00 UTC"
