"""What people and controllers send about schedules."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from lcm.model.base import ResourceName, StrictBool, StrictModel
from lcm.model.calendar.schedule import OutsideAction, Schedule, WorkerSelector
from lcm.model.calendar.windows import MAX_EXCEPTIONS, MAX_WINDOWS, ExceptionText, WindowText
from lcm.model.calendar.zones import ZoneName

EMPTY_SELECTOR = "must have names, templates, teams or tags; an empty selector selects no worker"


def _check_selector(selector: WorkerSelector) -> WorkerSelector:
    unknown = sorted({} if selector.model_extra is None else selector.model_extra)
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: unknown; a selector has names, templates, teams and tags")
    if selector.is_empty:
        raise ValueError(EMPTY_SELECTOR)
    return selector


def _check_windows(windows: tuple[str, ...]) -> tuple[str, ...]:
    if not windows:
        raise ValueError("must have at least one window, such as mon-fri 08:00-18:00")
    return windows


Windows = Annotated[
    tuple[WindowText, ...],
    AfterValidator(_check_windows),
    Field(
        max_length=MAX_WINDOWS,
        json_schema_extra={"minItems": 1},
        description="Days and times of a week, such as mon-fri 08:00-18:00.",
    ),
]
Exceptions = Annotated[
    tuple[ExceptionText, ...],
    Field(
        max_length=MAX_EXCEPTIONS,
        description="Dates that differ from the week, such as 2026-12-25 closed or 2026-12-31 08:00-12:00.",
    ),
]
Selector = Annotated[
    WorkerSelector,
    AfterValidator(_check_selector),
    Field(description="Which workers it is for: all given conditions must match."),
]


class CreateScheduleRequest(StrictModel):
    """A new schedule."""

    name: ResourceName
    zone: ZoneName = Field(description="The time zone of the windows, such as Europe/Brussels.")
    windows: Windows
    exceptions: Exceptions = ()
    selector: Selector
    outside: OutsideAction = Field(
        default=OutsideAction.STOP, description="What is done with workers while no window is open: stop or nothing."
    )
    enabled: StrictBool = True


def _without_null(schema: dict[str, Any]) -> None:
    """A field is left out or has a value: the document does not offer null."""
    for field in schema["properties"].values():
        (value,) = [each for each in field.pop("anyOf") if each != {"type": "null"}]
        field.pop("default", None)
        field.update(value)


class EditScheduleRequest(StrictModel):
    """The fields to change. Windows, exceptions and the selector replace the present ones as a whole."""

    model_config = ConfigDict(json_schema_extra=_without_null)

    name: ResourceName | None = None
    zone: ZoneName | None = None
    windows: Windows | None = None
    exceptions: Exceptions | None = None
    selector: Selector | None = None
    outside: OutsideAction | None = None
    enabled: StrictBool | None = None

    @model_validator(mode="after")
    def _check_nulls(self) -> Self:
        empty = sorted(name for name in self.model_fields_set if getattr(self, name) is None)
        if empty:
            raise ValueError(f"{', '.join(empty)}: must not be null; leave out what is not to be changed")
        return self

    def apply_to(self, schedule: Schedule) -> Schedule:
        """The schedule with these changes."""
        return schedule.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})


class PreviewScheduleRequest(CreateScheduleRequest):
    """A schedule that is not saved. With an id it replaces that schedule in the preview."""

    name: ResourceName = "preview"
    schedule_id: str | None = Field(default=None, max_length=64)
