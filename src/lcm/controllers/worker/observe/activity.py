"""The activity events of CML servers, as the control plane accepts them: with times in UTC, and not too many."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from lcm.model.worker.idle import ACTIVITY_CATEGORIES, ActivityEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lcm.cml.types import CMLActivityEvent as CmlEvent

_ZONE_STEP: Final = timedelta(minutes=15)  # all zones differ from UTC by a multiple of this
_CLOCK_TOLERANCE: Final = timedelta(minutes=4)  # how far a server's clock may be ahead of ours
_CHANGE_SETTLES: Final = timedelta(hours=1)
_MIN_OFFSET, _MAX_OFFSET = timedelta(hours=-12), timedelta(hours=14)


class ClockUnusableError(Exception):
    """The times of a server cannot be right in any zone; the message says why."""


@dataclass(slots=True)
class ServerZone:
    """The zone of a server's times that name none, measured by the event that it recorded last.

    CML records events of its own every few minutes. So a new last event is taken to be as recent as any zone allows.
    If that is wrong, its events look more recent than they are: a worker in use never looks idle.

    When the server's clock is set forward, events from before would look older than they are. So the offset from before
    counts for another hour. By then they were reported with it, and the control plane keeps the latest activity.
    """

    _offset: timedelta | None = None  # from UTC
    _last: datetime | None = None
    _earlier: tuple[tuple[datetime, timedelta], ...] = ()  # offsets before a change, and until when they count

    def measure(self, last: datetime, read_at: datetime) -> timedelta:
        """The offset to use, by the time of the event recorded last; raises ClockUnusableError if none explains it."""
        before = self._offset
        if before is None or last != self._last:
            self._offset, self._last = _smallest_offset(last, read_at), last
            if before is not None and before < self._offset:
                smaller = [each for each in self._earlier if each[1] < before]
                self._earlier = (*smaller, (read_at + _CHANGE_SETTLES, before))
        assert self._offset is not None
        self._earlier = tuple(each for each in self._earlier if each[0] > read_at)
        return min([self._offset, *(offset for _, offset in self._earlier)])


def _smallest_offset(last: datetime, read_at: datetime) -> timedelta:
    """The offset from UTC by which an event is as recent as possible, but not in the future."""
    ahead = last.replace(tzinfo=UTC) - read_at
    offset = math.ceil((ahead - _CLOCK_TOLERANCE) / _ZONE_STEP) * _ZONE_STEP
    if offset > _MAX_OFFSET:
        raise ClockUnusableError(f"its last event is {ahead.total_seconds() / 3600:.0f} hours ahead of UTC")
    return max(offset, _MIN_OFFSET)


MAX_EVENTS: Final = 1_000
OWN_ACCOUNT: Final = "own_account"
_MAX_CATEGORY_LENGTH: Final = 64
_MAX_USER_LENGTH: Final = 128


def activity_events(
    events: Sequence[CmlEvent], zone: ServerZone, read_at: datetime, own_user_id: str | None = None
) -> tuple[ActivityEvent, ...]:
    """The newest of the events that a server recorded, oldest first, without those that the control plane would reject.

    Raises ClockUnusableError if their times cannot be right. Events of an account that only LCM uses are not user
    activity, but they prove that events arrive: they stay, under another category. Nine of ten events come from the
    server itself. If there are too many, those are dropped first: if they crowded out user activity, a worker in use
    would count as idle.
    """
    renamed = (replace(event, category=OWN_ACCOUNT) if _is_own(event, own_user_id) else event for event in events)
    ordered = sorted(renamed, key=_written_time, reverse=True)
    if len(ordered) > MAX_EVENTS:
        user_events = [event for event in ordered if event.category in ACTIVITY_CATEGORIES][:MAX_EVENTS]
        others = [event for event in ordered if event.category not in ACTIVITY_CATEGORIES]
        ordered = sorted([*user_events, *others[: MAX_EVENTS - len(user_events)]], key=_written_time, reverse=True)
    last = next((event.at for event in reversed(events) if event.at.tzinfo is None), None)
    if last is not None:
        ordered = _in_utc(ordered, zone.measure(last, read_at), read_at)
    return _valid_events(ordered)


def _in_utc(events: Iterable[CmlEvent], offset: timedelta, read_at: datetime) -> list[CmlEvent]:
    return [
        event if event.at.tzinfo else replace(event, at=min(read_at, event.at.replace(tzinfo=UTC) - offset))
        for event in events
        if event.at.tzinfo or event.at.year > 1  # an earlier time may not exist in UTC
    ]


def _written_time(event: CmlEvent) -> datetime:
    return event.at.replace(tzinfo=None)


def _is_own(event: CmlEvent, own_user_id: str | None) -> bool:
    return own_user_id is not None and event.user_id == own_user_id


def _valid_events(events: Iterable[CmlEvent]) -> tuple[ActivityEvent, ...]:
    valid: list[ActivityEvent] = []
    for event in sorted(events, key=lambda each: each.at):
        user = event.user_id
        try:
            valid.append(
                ActivityEvent(
                    category=event.category[:_MAX_CATEGORY_LENGTH],
                    at=event.at,
                    user_id=None if user is None else user[:_MAX_USER_LENGTH],
                )
            )
        except ValidationError:
            continue
    return tuple(valid)
