"""Requests about bookings, and the answer to a preview."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import (
    AfterValidator,
    Field,
    NaiveDatetime,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
)

from lcm.model.base import (
    WHOLE_NUMBER,
    LenientModel,
    Reason,
    ResourceName,
    SingleLineText,
    StrictModel,
    UtcDatetime,
)
from lcm.model.booking.record import MAX_REPEATS, MAX_SEATS, Learner
from lcm.model.calendar.admission import Resource
from lcm.model.calendar.zones import TimeOccurrence, WallTime, ZoneName
from lcm.model.formatting import count_of
from lcm.model.lablet.record import DefinitionReference

if TYPE_CHECKING:
    from datetime import datetime

MIN_MINUTES: Final = 5
MAX_MINUTES: Final = 5 * 24 * 60
"""So that the occurrences of a weekly booking never overlap, warm-ups included."""

_EXAMPLE: Final = "2026-11-16T09:00"
_FIRST_YEAR, _LAST_YEAR = 1970, 2998


def _read_wall_time(value: Any, read: ValidatorFunctionWrapHandler) -> datetime:
    """Pydantic would read a number as seconds since 1970, which is never intended."""
    allowed = f"must be a date and time without a zone, such as {_EXAMPLE}"
    if isinstance(value, int | float) or (isinstance(value, str) and not value[:5].endswith("-")):
        raise ValueError(allowed)
    try:
        wall: datetime = read(value)
    except ValidationError:
        raise ValueError(allowed) from None
    return wall


def _check_wall_time(wall: datetime) -> datetime:
    if wall.second or wall.microsecond:
        raise ValueError(f"must be a whole minute, such as {_EXAMPLE}")
    if not _FIRST_YEAR <= wall.year <= _LAST_YEAR:
        raise ValueError(f"must be a date from the year {_FIRST_YEAR} to {_LAST_YEAR}")
    return wall


RequestedWallTime = Annotated[
    NaiveDatetime,
    WrapValidator(_read_wall_time),
    AfterValidator(_check_wall_time),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": "^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]$",
        }
    ),
]
Minutes = Annotated[int, Field(ge=MIN_MINUTES, le=MAX_MINUTES), WHOLE_NUMBER]


_INVISIBLE: Final = dict.fromkeys(map(ord, "\u200b\u2060\ufeff"))
_NOT_IN_ADDRESS: Final = re.compile(r"[\s,<>()\[\]\"]")
_ADDRESS: Final = re.compile(r"[^@]*<([^<>@\s]+@[^<>@\s]+)>")


def split_learners(text: str) -> list[str]:
    """The people of a list: one a line, or between semicolons. Of `Ann Lee <ann@example.org>` it is the address."""
    found = []
    for line in re.split(r"[\r\n\t;]", text.translate(_INVISIBLE)):
        people, name = list[str](), ""
        for part in line.split(","):
            name += part
            if "@" in part:
                people.append(name.strip())
                name = ""
            elif name.strip():
                name += ","  # of a name: people are separated only after their address
        if name.strip() or any("," in each and not _ADDRESS.fullmatch(each) for each in people):
            people = [line.strip()] if line.strip() else []
        found += [address[1] if (address := _ADDRESS.fullmatch(each)) else each for each in people]
    return found


class CreateBookingRequest(StrictModel):
    """Book seats for a class. Without a version, the newest enabled version of the definition is used."""

    name: ResourceName
    definition: DefinitionReference
    seats: Annotated[int, Field(ge=1, le=MAX_SEATS), WHOLE_NUMBER]
    start: RequestedWallTime = Field(
        description="What a clock in the zone shows when the class begins, without an offset: 2026-11-16T09:00."
    )
    zone: ZoneName = Field(description="The zone of the start, such as Europe/Brussels.")
    occurrence: TimeOccurrence | None = Field(
        default=None, description="Which one is meant if clocks show the start twice: first or second."
    )
    duration_minutes: Minutes
    repeat_weeks: Annotated[int, Field(ge=1, le=MAX_REPEATS), WHOLE_NUMBER] = Field(
        default=1, description="Number of classes, a week apart; all of them are booked, or none."
    )
    team: ResourceName | None = Field(
        default=None, description="The name of the team that it is for; by default that of the definition, if any."
    )
    aws_region: str | None = None
    learners: Annotated[tuple[Learner, ...], Field(max_length=MAX_SEATS)] = Field(
        default=(), description="Names or e-mail addresses of the people who get the seats, at most one for each seat."
    )

    @field_validator("learners")
    @classmethod
    def _check_learners(cls, learners: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        seats = info.data.get("seats")
        if seats is not None and len(learners) > seats:
            raise ValueError(f"{len(learners)} are given for {count_of(seats, 'seat')}; name at most one for each seat")
        seen: set[str] = set()
        for each in learners:
            if each.count("@") > 1 or ("@" in each and _NOT_IN_ADDRESS.search(each)):
                raise ValueError(f"{each}: must be one name or e-mail address")
            if each.casefold() in seen:
                raise ValueError(f"{each} is named twice; give each person one seat")
            seen.add(each.casefold())
        return learners


class ExtendBookingRequest(StrictModel):
    """Let a class end later. Without a number, the class that is under way, or else the next one."""

    minutes: Minutes = Field(description="By how many minutes its end is moved.")
    number: Annotated[int, Field(ge=1, le=MAX_REPEATS), WHOLE_NUMBER] | None = None


class MoveOccurrenceRequest(StrictModel):
    """Move one class of a booking to another time, in the zone of the booking. It is admitted like a new one."""

    start: RequestedWallTime
    occurrence: TimeOccurrence | None = None


class CancelBookingRequest(StrictModel):
    """Cancel a booking, or one class of it."""

    reason: Reason | None = None
    number: Annotated[int, Field(ge=1, le=MAX_REPEATS), WHOLE_NUMBER] | None = Field(
        default=None, description="The class to cancel; without one, all that are not over."
    )


class BookingShortage(LenientModel):
    """What is short, from when on, how many would be needed then, and how many there may be."""

    resource: Resource
    at: UtcDatetime
    needed: int
    allowed: int
    message: SingleLineText


class FreeTime(LenientModel):
    """A start of the first class at which all of the booking would fit."""

    start: WallTime
    starts_at: UtcDatetime


class PlannedOccurrence(LenientModel):
    """When one class would warm up, begin and end."""

    number: int
    start: WallTime
    warm_up_at: UtcDatetime
    starts_at: UtcDatetime
    ends_at: UtcDatetime


class BookingProgress(LenientModel):
    """What was found when bookings were carried out, and when to do so again."""

    under_way: int = Field(description="Number of bookings with a class that warms up or takes place.")
    skipped: int = Field(description="Number of bookings that could not be carried out; see the log.")
    next_in: float = Field(description="Seconds until something is due next.")


class BookingChangePreview(LenientModel):
    """Whether a class could be extended or moved now; what is short and when it would fit if not."""

    confirmed: bool
    reason: str
    occurrence: PlannedOccurrence | None = Field(
        default=None, description="The class as it would be; null if it does not fit."
    )
    shortages: tuple[BookingShortage, ...] = ()
    free_times: tuple[FreeTime, ...] = Field(default=(), description="At most three, for a class that is to be moved.")
    cost: str = Field(default="", description="What the class would cost, and how much more or less, as a sentence.")
    warnings: tuple[str, ...] = ()


class BookingPreview(LenientModel):
    """Whether a booking fits; what is short and when it would fit if it does not; and what it costs."""

    confirmed: bool
    reason: str
    shortages: tuple[BookingShortage, ...] = ()
    free_times: tuple[FreeTime, ...] = Field(default=(), description="At most three, within 14 days after the start.")
    definition: str = Field(description="name@version")
    aws_region: str
    template: str | None = Field(default=None, description="The template of the workers; null if none is suitable.")
    seats: int
    seats_per_worker: int = 0
    workers: int = Field(default=0, description="Number of workers that each class takes.")
    warm_up_minutes: int = Field(default=0, description="How long before the start the workers are made ready.")
    occurrences: tuple[PlannedOccurrence, ...] = ()
    cost_per_hour_usd: float = Field(default=0, description="What the workers cost an hour while they run.")
    cost_usd: float = Field(default=0, description="What all classes cost, warm-ups included, without disks.")
    cost: str = Field(default="", description="What it costs, as a sentence for people.")
    warnings: tuple[str, ...] = ()
