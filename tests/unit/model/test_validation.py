"""One wording for an invalid value, whichever way it came in."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from lcm.model.base import StrictBool, StrictModel
from lcm.model.booking.requests import MoveOccurrenceRequest
from lcm.model.lablet.record import CreateLabletRequest
from lcm.model.validation import problems_of
from lcm.model.worker.requests import CreateWorkerRequest
from lcm.model.worker.template import WorkerTemplate


class Sample(StrictModel):
    number: Annotated[float, Field(gt=0, le=10, strict=True)] = 1
    switch: StrictBool = True
    words: Annotated[tuple[str, ...], Field(max_length=2)] = ()


def problems(model: type[StrictModel], **fields: Any) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(fields)
    return {".".join(path): text for path, text in problems_of(caught.value)}


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("number", 0, "must be greater than 0"),
        ("number", 11, "must be at most 10"),
        ("number", "x", "must be a number"),
        ("switch", "yes", "must be true or false"),
        ("words", ["a", "b", "c"], "must have at most 2 entries"),
        ("color", "red", "is not a known field"),
    ],
)
def test_the_sentence_names_what_is_allowed(field: str, value: object, text: str) -> None:
    assert problems(Sample, **{field: value}) == {field: text}


@pytest.mark.parametrize(
    ("model", "field", "value", "text"),
    [
        (CreateWorkerRequest, "aws_region", "Europe", "must be an AWS region such as eu-west-1"),
        (CreateWorkerRequest, "name", "a b", "must be 1 to 63 letters, digits, dots, dashes and underscores"),
        (CreateLabletRequest, "definition", "a b", "must be the name of a definition"),
        (WorkerTemplate, "instance_type", "big", "must be an instance type such as t3.medium"),
    ],
)
def test_no_pattern_is_ever_shown(model: type[StrictModel], field: str, value: str, text: str) -> None:
    found = problems(model, **{field: value})[field]
    assert found.startswith(text)
    assert "^" not in found
    assert "pattern" not in found


WALL_TIME = "must be a date and time without a zone, such as 2026-11-16T09:00"


@pytest.mark.parametrize("start", ["2026-11-16T09:00Z", "2026-11-16T09:00+01:00", "2026-13-16T09:00", "2026-11-", 7])
def test_a_wall_time_that_cannot_be_read_is_answered_with_one_that_can(start: object) -> None:
    assert problems(MoveOccurrenceRequest, start=start) == {"start": WALL_TIME}


def test_a_missing_field_is_required() -> None:
    assert problems(CreateWorkerRequest, name="alpha") == {"template_name": "is required"}
