"""The base class of all settings: parsing of values, and rules between several settings."""

import inspect
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from lcm.settings.describe import CHOICE, LIST, NUMBER, ValueType, value_type_of

CONFLICT_ERROR = "lcm_conflict"


class SettingsConflict:
    """Values that are valid alone but not together: the settings, and the rule that they break."""

    __slots__ = ("names", "rule")

    def __init__(self, *names: str, rule: str) -> None:
        self.names = names
        self.rule = rule


class Settings(BaseModel):
    """A group of settings. A service combines groups by inheriting from several.

    A field is named like its environment variable, in lower case. A direct instance has the given values and defaults
    for the rest; only `load` reads the environment and files, because it records the source of each value.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True, validate_default=True
    )
    _value_types: ClassVar[dict[str, ValueType]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        # In the order of inheritance as written; pydantic lists the last base first.
        written = (name for base in cls.__mro__ for name in inspect.get_annotations(base))
        cls._value_types = {name: value_type_of(cls.model_fields[name]) for name in written if name in cls.model_fields}

    @classmethod
    def value_types(cls) -> dict[str, ValueType]:
        """The value type of each setting, by name: a service's own first, then those of its groups, as written."""
        return cls._value_types

    def conflicts(self) -> Iterator[SettingsConflict]:
        """The rules between settings that these values break. An override yields from `super()` first."""
        yield from ()

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        """Accept lists as comma-separated text and choices in any case; reject `true` for a number."""
        value_type = cls._value_types[info.field_name or ""]
        if value_type.form == NUMBER and isinstance(value, bool):
            raise PydanticCustomError("not_a_number", "must be a number")
        if value_type.form == LIST and isinstance(value, str):
            return [item.strip() for item in value.split(",")]
        if value_type.form == CHOICE and isinstance(value, str):
            return value_type.choices.get(value.lower(), value)
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        found = list(self.conflicts())
        if found:
            text = "; ".join(conflict.rule for conflict in found)
            raise PydanticCustomError(CONFLICT_ERROR, "{text}", {"text": text, "conflicts": found})
        return self
