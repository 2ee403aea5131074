"""The description of allowed values, derived from a field's type and limits."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Interval
from pydantic import DirectoryPath, Field, FilePath, SecretStr, StringConstraints, create_model

from lcm.settings import Allowed, Settings, SettingsError, describe, load


class Colour(Enum):
    RED = "red"
    GREEN = "green"


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "a whole number"),
        (float, "a number"),
        (bool, "true or false"),
        (str, "text"),
        (Path, "a path"),
        (FilePath, "an existing file"),
        (DirectoryPath | None, "an existing folder"),
        (SecretStr, "text"),
        (Literal["a", "b"], "one of a, b"),
        (Literal[1, 2], "one of 1, 2"),
        (Colour, "one of red, green"),
        (Annotated[int, Field(ge=1)], "a whole number of at least 1"),
        (Annotated[int, Field(ge=1)] | None, "a whole number of at least 1"),
        (Annotated[float, Field(gt=0, lt=0.5)], "a number greater than 0 and less than 0.5"),
        (Annotated[float, Field(le=9)], "a number of at most 9"),
        (Annotated[int, Interval(ge=1, le=9)], "a whole number from 1 to 9"),
        (Annotated[str, Field(pattern="^a+$")], "text that matches ^a+$"),
        (
            Annotated[str, StringConstraints(min_length=2, max_length=4)],
            "text of at least 2 characters and of at most 4 characters",
        ),
        (list[Annotated[int, Field(gt=0)]], "a comma-separated list, each item a whole number greater than 0"),
        (int | Literal["auto"], "a whole number or one of auto"),
        (Annotated[int | str, Allowed("a thing")], "a thing"),
        (complex, "a valid complex"),
        (dict[str, int], "a valid dict[str, int]"),
    ],
)
def test_words(annotation: Any, words: str) -> None:
    model = create_model("Some", __base__=Settings, thing=(annotation, None))
    (doc,) = describe(model)
    assert doc.allowed == words


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (list[int], "1, 2,3", [1, 2, 3]),
        (tuple[str, ...], "a", ("a",)),
        (Literal["on", "off"], "ON", "on"),
        (Literal[1, 2], "2", 2),
        (Colour, "Green", Colour.GREEN),
        (bool, "no", False),
    ],
)
def test_new_kinds_of_fields_are_read_without_further_code(annotation: Any, text: str, value: object) -> None:
    model = create_model("Some", __base__=Settings, thing=(annotation, ...))
    assert getattr(load(model, env={"THING": text}).settings, "thing") == value  # noqa: B009 - a made-up model


def test_a_required_setting_that_is_missing() -> None:
    model = create_model("Some", __base__=Settings, thing=(Annotated[int, Field(ge=1)], ...))
    with pytest.raises(SettingsError) as caught:
        load(model, env={})
    assert str(caught.value) == "THING (not set): must be a whole number of at least 1"
