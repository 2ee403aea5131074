"""The record of a booking: seats of a definition for a class, once or every week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from lcm.model.base import CARRIED, CaseInsensitiveEnum, Record, RegionName, ResourceName, SingleLineText, UtcDatetime
from lcm.model.calendar.admission import BookedCapacity
from lcm.model.calendar.zones import WallTime
from lcm.model.lablet.record import LabletRequirements

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

MAX_SEATS: Final = 1_000
MAX_REPEATS: Final = 52
Learner = Annotated[SingleLineText, Field(min_length=1, max_length=128)]


class BookingStatus(CaseInsensitiveEnum):
    """What a booking, or one occurrence of it, is now."""

    CONFIRMED = "CONFIRMED"
    WARMING = "WARMING"
    ACTIVE = "ACTIVE"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"


OPEN_STATUSES: Final = (BookingStatus.CONFIRMED, BookingStatus.WARMING, BookingStatus.ACTIVE)
"""Those that take capacity, now or later."""
UNDER_WAY: Final = (BookingStatus.WARMING, BookingStatus.ACTIVE)


class AtRisk(Record):
    """The condition AtRisk: what is missing for an occurrence, as far as is known now."""

    since: UtcDatetime
    missing: Annotated[SingleLineText, Field(max_length=1000)]


class BookingOccurrence(Record):
    """One class of a booking. Its workers are booked from the warm-up to the end."""

    number: int = Field(description="1 for the first.")
    start: WallTime
    warm_up_at: UtcDatetime
    starts_at: UtcDatetime
    ends_at: UtcDatetime
    status: Annotated[BookingStatus, CARRIED] = BookingStatus.CONFIRMED
    holds_capacity: bool = Field(default=False, description="Whether workers and seats are assigned to it.")
    at_risk: AtRisk | None = Field(default=None, description="The condition AtRisk; null while nothing is missing.")

    @property
    def is_open(self) -> bool:
        """Whether it takes capacity, now or later."""
        return self.status in OPEN_STATUSES


class Booking(Record):
    """Seats for a class: a definition, one region, a time in a zone, once or weekly. All of it fits, or none."""

    id: str
    name: ResourceName
    team: str = Field(default="", description="The id of the team that it is for; empty for none.")
    aws_region: RegionName
    definition: str = Field(description="name@version")
    requirements: LabletRequirements
    seats: int
    template: str = Field(description="The template of the workers: the cheapest on which a seat fits.")
    seats_per_worker: int
    workers: int = Field(description="Number of workers that each occurrence takes.")
    cost_per_hour_usd: float = Field(default=0, description="What these workers cost an hour while they run.")
    zone: str
    duration_minutes: int
    learners: tuple[str, ...] = Field(default=(), description="Who gets the seats, in this order.")
    occurrences: tuple[BookingOccurrence, ...]
    status: Annotated[BookingStatus, CARRIED] = BookingStatus.CONFIRMED
    created_by: str
    version: int = 1
    created_at: UtcDatetime
    updated_at: UtcDatetime

    @property
    def owner(self) -> str:
        """Whose it is within the team: a booking is for all of its instructors."""
        return ""

    @property
    def open_occurrences(self) -> tuple[BookingOccurrence, ...]:
        """Those that take capacity, now or later."""
        return tuple(each for each in self.occurrences if each.is_open)

    @property
    def is_watched(self) -> bool:
        """Whether anything is left to do for it: a class is ahead, or has to give its workers back."""
        return any(each.is_open or each.holds_capacity for each in self.occurrences)

    @property
    def span(self) -> tuple[datetime, datetime]:
        """From the first warm-up to the last end."""
        return min(each.warm_up_at for each in self.occurrences), max(each.ends_at for each in self.occurrences)

    @property
    def unknown_words(self) -> tuple[str, ...]:
        """Words that only a newer version knows: this version must not decide about the booking."""
        words = [self.status, *(each.status for each in self.occurrences)]
        return tuple(f"status {word}" for word in words if not word.is_known)

    def occurrence(self, number: int) -> BookingOccurrence | None:
        """The occurrence with this number."""
        return next((each for each in self.occurrences if each.number == number), None)

    def capacity(self, occurrence: BookingOccurrence) -> BookedCapacity:
        """What an occurrence takes."""
        return BookedCapacity(
            occurrence.warm_up_at,
            occurrence.ends_at,
            self.aws_region,
            self.template,
            self.workers,
            self.requirements.license,
            self.team,
            self.seats,
        )

    def with_occurrence(self, changed: BookingOccurrence, now: datetime) -> Booking:
        """The booking with one occurrence changed, as its next version."""
        occurrences = tuple(changed if each.number == changed.number else each for each in self.occurrences)
        return self.with_occurrences(occurrences, now)

    def with_occurrences(self, occurrences: tuple[BookingOccurrence, ...], now: datetime) -> Booking:
        """The booking with these occurrences, as its next version; the same if nothing changes."""
        if occurrences == self.occurrences:
            return self
        fields = {
            "occurrences": occurrences,
            "status": booking_status(occurrences),
            "version": self.version + 1,
            "updated_at": now,
        }
        return self.model_copy(update=fields)


def booking_status(occurrences: Iterable[BookingOccurrence]) -> BookingStatus:
    """The status of a booking: of the occurrence that is furthest on its way, of those that are not over."""
    found = {each.status for each in occurrences}
    for status in (BookingStatus.ACTIVE, BookingStatus.WARMING, BookingStatus.CONFIRMED, BookingStatus.ENDED):
        if status in found:
            return status
    return BookingStatus.CANCELLED if BookingStatus.CANCELLED in found else next(iter(found))


def with_status(
    occurrence: BookingOccurrence, status: BookingStatus, at_risk: AtRisk | None = None
) -> BookingOccurrence:
    """The occurrence in this status. Nothing is missing for one that is over."""
    return occurrence.model_copy(update={"status": status, "at_risk": at_risk if status in OPEN_STATUSES else None})
