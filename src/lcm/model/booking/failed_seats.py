"""Failed seats of a class that is under way: when they are made anew, and when a person has to. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from lcm.model.formatting import count_of, format_clock_time
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.model.lablet.record import Lablet

RETRY_WAITS: Final = tuple(timedelta(minutes=minutes) for minutes in (0.5, 2, 5, 10))
"""How long a seat stays failed before each retry: a short fault costs little, and a wrong topology few imports."""
_NAMED_SEATS: Final = 20
_LATE: Final = timedelta(minutes=1)


def can_be_made_anew(seat: Lablet) -> bool:
    """Whether it is a failed seat, and nobody has requested its end."""
    return seat.status is LabletStatus.FAILED and seat.wanted and seat.booking_id is not None


def retry_at(seat: Lablet) -> datetime | None:
    """When LCM makes a failed seat anew, if its class is under way; None: it does not."""
    if not can_be_made_anew(seat) or seat.unknown_words or seat.retries >= len(RETRY_WAITS):
        return None
    return seat.status_since + RETRY_WAITS[seat.retries]


def retry_text(seat: Lablet, now: datetime, *, on_hold: bool = False) -> str:
    """What happens next with a failed seat of a class that is under way; empty for other seats.

    `on_hold` is whether the fleet is: then no class is carried out.
    """
    if not can_be_made_anew(seat):
        return ""
    at, tries = retry_at(seat), len(RETRY_WAITS) + 1
    if at is None:
        often = f" {count_of(tries, 'time')}" if seat.retries >= len(RETRY_WAITS) else ""
        return f"It has failed{often} and is not made anew by itself: reset it."
    attempt = f"try {seat.retries + 2} of {tries}"
    if on_hold:
        return f"It is made anew when the hold of the fleet ends: {attempt}."
    if now - at > _LATE:
        late = f"It was due at {format_clock_time(at, now)} to be made anew"
        return f"{late}. It waits for the scheduler or for a worker of its class: {attempt}."
    when = "in a moment" if at <= now else f"at {format_clock_time(at, now)}"
    return f"It is made anew {when}: {attempt}."


def failed_for_good(seats: Sequence[Lablet]) -> str:
    """Which failed seats are not made anew any more, and what to do; empty if there are none."""
    numbers = [each.id.rpartition("-")[2] for each in seats if can_be_made_anew(each) and retry_at(each) is None]
    if not numbers:
        return ""
    named = ", ".join(numbers[:_NAMED_SEATS]) + (" and others" if len(numbers) > _NAMED_SEATS else "")
    seats_text, them = (f"seat {named} has", "it") if len(numbers) == 1 else (f"seats {named} have", "them")
    return f"{seats_text} failed {len(RETRY_WAITS) + 1} times: find out why and reset {them} on the page of the class"
