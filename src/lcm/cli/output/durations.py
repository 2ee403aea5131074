"""Parsing and formatting of durations and times."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from lcm.cli.errors import UsageError

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_MAX_DURATION = timedelta(days=3650)


def parse_duration(text: str, what: str = "a span") -> timedelta:
    """`90s`, `10m`, `1h30m`, `2d`; a bare number is seconds."""
    plain = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", plain):
        plain += "s"
    parts = _PART.findall(plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain:
        raise UsageError(f"{what} {text!r}: must be a duration such as 90s, 10m, 1h30m or 2d")
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    if not 0 < seconds <= _MAX_DURATION.total_seconds():
        raise UsageError(f"{what} {text!r}: must be greater than zero and at most ten years")
    return timedelta(seconds=seconds)


def parse_time(text: str, now: datetime, what: str = "a moment") -> datetime:
    """A duration from now, such as `2h`, or a date and time, in the local zone unless it has an offset."""
    moment = _parse_moment(text, what)
    return now + parse_duration(text, what) if moment is None else moment


def parse_past_time(text: str, now: datetime, what: str = "a moment") -> datetime:
    """A duration before now, such as `12h`, or a date and time, in the local zone unless it has an offset."""
    moment = _parse_moment(text, what)
    return now - parse_duration(text, what) if moment is None else moment


def _parse_moment(text: str, what: str) -> datetime | None:
    """A date and time; None for a duration."""
    if re.match(r"[\d.]+([smhdw]|$)", text.strip().lower()):
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        problem = "must be a duration such as 2h, or a time such as 2026-01-17T10:30Z"
        raise UsageError(f"{what} {text!r}: {problem}") from None
    return moment.astimezone() if moment.tzinfo is None else moment


def format_duration(span: timedelta) -> str:
    """A short duration: `42s`, `12m`, `2h5m`, `3d4h`."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m"
    if seconds < 86_400:
        hours, minutes = divmod(seconds // 60, 60)
        return f"{hours}h{minutes}m" if minutes and hours < 10 else f"{hours}h"
    days, hours = divmod(seconds // 3600, 24)
    return f"{days}d{hours}h" if hours and days < 10 else f"{days}d"


def format_minutes(minutes: float | None) -> str:
    """A number of minutes as a short duration; empty if there is none."""
    return "" if minutes is None else format_duration(timedelta(minutes=minutes))


def format_elapsed(span: timedelta) -> str:
    """Elapsed time: `0:07`, `12:30`, `1:02:03`."""
    seconds = max(0, int(span.total_seconds()))
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def format_hold_end(end: datetime | None) -> str:
    """The end of a hold."""
    return "until it is released" if end is None else f"until {format_time_with_zone(end)}"


def format_timestamp(moment: datetime, now: datetime) -> str:
    """`2026-01-17 10:30:05`, in the local zone, for columns that name it: see `at_column_title`.

    A time in the other half of the year, with another clock, has its own zone.
    """
    text = f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
    return text if zone_name(moment) == zone_name(now) else f"{text} {zone_name(moment)}"


def format_time_with_zone(moment: datetime) -> str:
    """`2026-01-17 10:30:05 CET`, in the local zone."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S} {zone_name(moment)}"


def zone_name(moment: datetime) -> str:
    """The name of the local zone at this moment: `CET`, `UTC`, or `UTC+03` where it has only an offset."""
    name = moment.astimezone().tzname() or "UTC"
    return f"UTC{name}" if name[0] in "+-" else name


def at_column_title(moment: datetime) -> str:
    """The title of a column of times."""
    return f"AT ({zone_name(moment)})"


def local_times(text: str, now: datetime | None = None) -> str:
    """A text of the control plane with its times, such as `10:30 UTC on 3 May`, in the local zone."""
    if " UTC" not in text:
        return text
    from lcm.core import clock
    from lcm.model.formatting import replace_clock_times

    today = (now or clock.now()).astimezone()

    def local(found: str, moment: datetime) -> str:
        here = moment.astimezone()
        time, zone = f"{here:%H:%M:%S}" if found.count(":") > 1 else f"{here:%H:%M}", zone_name(moment)
        if found[4] == "-":  # it begins with a date
            return f"{here:%Y-%m-%d} {time} {zone}"
        if here.date() == today.date():
            return f"{time} {zone}"
        return f"{time} {zone} on {here.day} {here:%B}{'' if here.year == today.year else f' {here.year}'}"

    return replace_clock_times(text, today, local)
