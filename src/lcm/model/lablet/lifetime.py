"""How long a lablet may run, and what an extension makes of its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from lcm.model.formatting import format_instant, humanize_duration
from lcm.model.lablet.placement import TIME_TO_RUN

if TYPE_CHECKING:
    from lcm.model.lablet.record import Lablet

LIMIT_SETTING: Final = "LABLET_MAX_LIFETIME_HOURS"
DEFAULT_MAX_LIFETIME: Final = timedelta(hours=168)


@dataclass(frozen=True, slots=True)
class MaxLifetime:
    """How long a lablet may last, extensions included, and what says so."""

    length: timedelta
    source: str = LIMIT_SETTING

    @property
    def hours(self) -> float:
        """The length in hours."""
        return self.length.total_seconds() / 3600


@dataclass(frozen=True, slots=True)
class BookedUntil:
    """Until when a lablet may keep its worker because of bookings, and why; without a time, as long as it likes."""

    until: datetime | None = None
    reason: str = ""
    is_counted: bool = False
    """Whether a class may need its worker, so that an extension has to be seen by the next admission."""


class ExtensionError(ValueError):
    """The end cannot be moved so. `field` is the value of the request that is wrong; empty if any would be."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}" if field else detail)
        self.field = field


class BookedExtensionError(ExtensionError):
    """The later end would take time of a class. `latest_end` is what is possible."""

    def __init__(self, field: str, detail: str, latest_end: datetime) -> None:
        super().__init__(field, detail)
        self.latest_end = latest_end


@dataclass(frozen=True, slots=True)
class Extension:
    """The end and the time limit of a lablet after an extension."""

    ends_at: datetime | None
    time_to_live_minutes: float | None


def latest_end(lablet: Lablet, max_lifetime: MaxLifetime | None) -> datetime | None:
    """The latest end that it may get; None if there is no limit.

    The lifetime counts from when it first ran, so that a reset does not lengthen it; before that, from when it could.
    """
    if max_lifetime is None:
        return None
    began = lablet.running_since or max(lablet.created_at, lablet.starts_at or lablet.created_at)
    return began + max_lifetime.length


def extend_end(
    lablet: Lablet,
    *,
    minutes: float | None,
    ends_at: datetime | None,
    now: datetime,
    max_lifetime: MaxLifetime | None,
    booked: BookedUntil,
) -> Extension:
    """The later end, by either `minutes` or a new end. Raises `ExtensionError`, which says what is possible."""
    end, limit = lablet.expires_at, lablet.time_to_live_minutes
    if end is None and limit is None:
        raise ExtensionError("", "it has no end; it runs until someone ends it")
    if end is None:
        extension = _extend_limit(lablet, minutes, max_lifetime)
        _check_limit_not_booked(lablet, extension, now, booked)
        return extension
    field = "minutes" if ends_at is None else "ends_at"
    new_end = max(end, now) + timedelta(minutes=minutes or 0.0) if ends_at is None else ends_at
    if new_end <= now:
        raise ExtensionError(field, f"{format_instant(new_end)} is not in the future")
    if new_end < end:
        detail = f"it already ends later, at {format_instant(end)}; to end it earlier, terminate it"
        raise ExtensionError(field, detail)
    latest = latest_end(lablet, max_lifetime)
    if latest is not None and new_end > max(latest, end):
        raise ExtensionError(field, _too_late(latest, max_lifetime))
    if booked.until is not None and new_end > max(booked.until, end):
        last = max(booked.until, end)
        raise BookedExtensionError(field, f"its end may be at most {format_instant(last)}: {booked.reason}", last)
    if lablet.running_since is None:
        # The limit counts from a start that is not known yet: it grows by as much as the end.
        longer = None if limit is None else limit + (new_end - end).total_seconds() / 60
        return Extension(new_end, longer)
    by_limit = None if limit is None else lablet.running_since + timedelta(minutes=limit)
    if by_limit is not None and by_limit < new_end:
        limit = (new_end - lablet.running_since).total_seconds() / 60
    fixed = lablet.ends_at
    return Extension(new_end if fixed is not None and fixed < new_end else fixed, limit)


def _extend_limit(lablet: Lablet, minutes: float | None, max_lifetime: MaxLifetime | None) -> Extension:
    """It does not run yet, and its time limit counts from when it runs."""
    limit = lablet.time_to_live_minutes
    assert limit is not None
    if minutes is None:
        text = humanize_duration(timedelta(minutes=limit))
        raise ExtensionError("ends_at", f"it does not run yet, and may then run for {text}; give minutes instead")
    longest = None if max_lifetime is None else max_lifetime.hours * 60
    if max_lifetime is not None and longest is not None and limit + minutes > max(longest, limit):
        detail = f"it may run for {max_lifetime.hours:g} hours at most ({max_lifetime.source})"
        raise ExtensionError("minutes", f"{detail}; give at most {longest - limit:g}" if longest > limit else detail)
    return Extension(None, limit + minutes)


def _check_limit_not_booked(lablet: Lablet, extension: Extension, now: datetime, booked: BookedUntil) -> None:
    """Its time counts from when it runs, which may take a while."""
    limit, before = extension.time_to_live_minutes, lablet.time_to_live_minutes
    if booked.until is None or limit is None or before is None:
        return
    latest_start = max(now, lablet.starts_at or now) + TIME_TO_RUN
    if latest_start + timedelta(minutes=limit) <= booked.until:
        return
    possible = (booked.until - latest_start).total_seconds() // 60 - before
    hint = f"give at most {possible:.0f} minutes" if possible >= 1 else "it cannot be extended"
    detail = f"it has to end by {format_instant(booked.until)}: {booked.reason}; {hint}"
    raise BookedExtensionError("minutes", detail, booked.until)


def _too_late(latest: datetime, max_lifetime: MaxLifetime | None) -> str:
    assert max_lifetime is not None
    return (
        f"its end may be at most {format_instant(latest)}, {max_lifetime.hours:g} hours after it began"
        f" ({max_lifetime.source}); choose an earlier end"
    )
