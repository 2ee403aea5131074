"""Durations, times, prices and quoted text as parts of a sentence."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
_MAX_CLAUSE_LENGTH = 240
_CLOCK_TIME = re.compile(
    r"\b(?:(?P<date>\d{4}-\d\d-\d\d) )?(?P<time>\d\d:\d\d(?::\d\d)?) UTC(?![\w+-])"
    r"(?: on (?P<day>\d{1,2} [A-Z][a-z]+)(?: (?P<year>\d{4}))?)?"
)


def humanize_duration(length: timedelta) -> str:
    """Format a duration: `12 minutes`, `2 hours 5 minutes`. The second unit is left out where it does not matter."""
    seconds = int(length.total_seconds())
    for number, (unit, size) in enumerate(_UNITS):
        if seconds < size:
            continue
        count, rest = divmod(seconds, size)
        words = count_of(count, unit)
        if unit in ("day", "hour") and count < 10:
            smaller, smaller_size = _UNITS[number + 1]
            more = rest // smaller_size
            words += f" {count_of(more, smaller)}" if more else ""
        return words
    return "a moment"


def humanize_ago(moment: datetime, now: datetime) -> str:
    """Format a time in the past: `12 minutes ago`."""
    return f"{humanize_duration(now - moment)} ago"


def humanize_until(moment: datetime, now: datetime) -> str:
    """Format a time in the future: `in 12 minutes`."""
    return f"in {humanize_duration(moment - now)}"


def format_clock_time(moment: datetime, now: datetime) -> str:
    """Format a time of day: `14:05 UTC`, with the date if that is not today."""
    if moment.date() == now.date():
        return f"{moment:%H:%M} UTC"
    day = f"{moment.day} {moment:%B}" if moment.year == now.year else f"{moment.day} {moment:%B %Y}"
    return f"{moment:%H:%M} UTC on {day}"


def format_instant(moment: datetime) -> str:
    """Format a time with its date, for texts that are stored: `2026-01-17 10:30:05 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def replace_clock_times(text: str, now: datetime, replacement: Callable[[str, datetime], str]) -> str:
    """Replace each time that this module has put into a text, for readers in another zone."""
    if " UTC" not in text:
        return text

    def replaced(found: re.Match[str]) -> str:
        try:
            moment = _moment_of(found, now.astimezone(UTC))
        except ValueError:  # not a time after all
            return found[0]
        return replacement(found[0], moment)

    return _CLOCK_TIME.sub(replaced, text)


def _moment_of(found: re.Match[str], today: datetime) -> datetime:
    if found["date"]:
        return datetime.fromisoformat(f"{found['date']}T{found['time']}+00:00")
    day = f"{found['day'] or f'{today:%d %B}'} {found['year'] or today.year}"
    date = datetime.strptime(f"{day} +0000", "%d %B %Y %z").date()
    return datetime.fromisoformat(f"{date}T{found['time']}+00:00")


def format_usd(amount: float, digits: int = 2) -> str:
    """Format a price: `$3.96`. Small prices keep their significant digits: `$0.0208`."""
    shown = digits if amount == 0 or abs(amount) >= 1 else max(digits, 4)
    return f"${amount:,.{shown}f}"


def as_clause(text: str) -> str:
    """Shorten text to fit into a sentence, without a full stop of its own."""
    plain = " ".join(text.split()).rstrip(".;:, ")
    return plain if len(plain) <= _MAX_CLAUSE_LENGTH else plain[: _MAX_CLAUSE_LENGTH - 1].rstrip() + "…"


def join_names(names: Sequence[str]) -> str:
    """Format a list of one or more names: `alpha`, `alpha and beta`, `alpha, beta and gamma`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def count_of(count: int, unit: str) -> str:
    """Format a count: `1 lablet`, `3 lablets`, `1,200 workers`."""
    return f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"


def count_minutes(seconds: float) -> str:
    """Format seconds as a count of minutes: `1 minute`, `90 minutes`."""
    return count_of(round(seconds / 60), "minute")


def count_with_verb(count: int, unit: str) -> str:
    """Format a count with its verb: `1 lablet is`, `3 lablets are`."""
    return f"{count_of(count, unit)} {'is' if count == 1 else 'are'}"
