"""Query and path parameters that several routes accept, and how their values are parsed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path, Query
from pydantic import WithJsonSchema

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.store.port import Sort
from lcm.control_plane.store.validation import MAX_TOPICS
from lcm.model.booking.record import BookingStatus
from lcm.model.lablet.status import LabletStatus
from lcm.model.problems import ProblemCode
from lcm.model.worker.status import WorkerStatus

REPEATABLE = "Repeat the parameter or separate values with commas."

WorkerIdPath = Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$", description="The worker's id, not its name.")]
LabletIdPath = Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$", description="The lablet's id, not its name.")]
Regions = Annotated[list[str] | None, Query(description=f"AWS regions, such as eu-west-1. {REPEATABLE}")]
WorkerIds = Annotated[list[str] | None, Query(description=f"Worker ids. {REPEATABLE}")]


WorkerStatuses = Annotated[
    list[str] | None,
    Query(description=f"Worker statuses, in upper or lower case. {REPEATABLE}"),
    WithJsonSchema({"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(WorkerStatus)}}),
]
LabletStatuses = Annotated[
    list[str] | None,
    Query(description=f"Lablet statuses, in upper or lower case. {REPEATABLE}"),
    WithJsonSchema({"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(LabletStatus)}}),
]
BookingStatuses = Annotated[
    list[str] | None,
    Query(description=f"Booking statuses, in upper or lower case. {REPEATABLE}"),
    WithJsonSchema({"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(BookingStatus)}}),
]


def split_values(values: list[str] | None) -> list[str]:
    """The values of a parameter that may be repeated and may contain commas."""
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]


def list_filter(field: str, values: list[str] | None) -> list[str]:
    """The values of a list filter. Values that no record can have are rejected."""
    split = split_values(values)
    if not all(part.isprintable() for part in split):
        raise ProblemError(ProblemCode.INVALID, f"{field}: must not contain control characters")
    return split


def bounded_list_filter(field: str, values: list[str] | None) -> tuple[str, ...]:
    """The values of a list filter of the journal, which takes a limited number of them."""
    split = list_filter(field, values)
    if len(split) > MAX_TOPICS:
        raise ProblemError(ProblemCode.INVALID, f"{field}: at most {MAX_TOPICS} values, not {len(split)}")
    return tuple(split)


def parse_worker_statuses(field: str, values: list[str] | None) -> list[str]:
    """The worker statuses of a filter, in upper case."""
    return _parse_statuses(WorkerStatus, field, values)


def parse_lablet_statuses(field: str, values: list[str] | None) -> list[str]:
    """The lablet statuses of a filter, in upper case."""
    return _parse_statuses(LabletStatus, field, values)


def parse_booking_statuses(field: str, values: list[str] | None) -> list[str]:
    """The booking statuses of a filter, in upper case."""
    return _parse_statuses(BookingStatus, field, values)


def _parse_statuses(
    status_class: type[WorkerStatus] | type[LabletStatus] | type[BookingStatus], field: str, values: list[str] | None
) -> list[str]:
    try:
        return [status_class(part).value for value in values or [] for part in value.split(",")]
    except ValueError as error:
        allowed = ", ".join(status_class)
        raise ProblemError(ProblemCode.INVALID, f"{field}: {error}; allowed values: {allowed}") from None


def parse_sort(sort: str | None, allowed: Sequence[str]) -> Sort:
    """`name` for ascending order, `-name` for descending order."""
    if sort is None:
        return Sort()
    name = sort.removeprefix("-")
    if name not in allowed:
        raise ProblemError(
            ProblemCode.INVALID, f"sort: must be one of {', '.join(allowed)}, with a leading - for descending order"
        )
    return Sort(name, descending=sort.startswith("-"))
