"""The calendar as a whole: one document that takes a turn with everything that bookings depend on."""

from __future__ import annotations

from lcm.model.base import Record


class CalendarState(Record):
    """Counts what was changed. Its value says nothing: that each change writes it is what makes admission exact."""

    changes: int = 0
