"""The base of all settings: how values are read, and rules between several of them."""

import inspect
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from lcm.settings.describe import CHOICE, LIST, NUMBER, ValueType, value_type_of

CONFLICT_ERROR = "lcm_conflict"


class SettingsConflict:
    """Values that are fine one by one and wrong together: the settings concerned, and the rule that they break."""

    __slots__ = ("names", "rule")

    def __init__(self, *names: str, rule: str) -> None:
        self.names = names
        self.rule = rule


class Settings(BaseModel):
    """A group of settings. A service combines groups by inheriting from several.

    A field is named like its environment variable, in lower case. An instance made directly holds what it was given and
    defaults for the rest; only `load` looks at environment and files, because it must tell where a value came from.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True, validate_default=True
    )
    _kinds: ClassVar[dict[str, ValueType]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        # The order of inheritance as written; pydantic lists the last base first.
        written = (name for base in cls.__mro__ for name in inspect.get_annotations(base))
        cls._kinds = {name: value_type_of(cls.model_fields[name]) for name in written if name in cls.model_fields}

    @classmethod
    def kinds(cls) -> dict[str, ValueType]:
        """What each setting is, by name: a service's own first, then those of its groups, as written."""
        return cls._kinds

    def conflicts(self) -> Iterator[SettingsConflict]:
        """Rules between settings that these values break. A group with rules yields from `super()` first."""
        yield from ()

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        """Lists come as text with commas, choices in any case; `true` is not the number 1."""
        kind = cls._kinds[info.field_name or ""]
        if kind.form == NUMBER and isinstance(value, bool):
            raise PydanticCustomError("not_a_number", "must be a number")
        if kind.form == LIST and isinstance(value, str):
            return [item.strip() for item in value.split(",")]
        if kind.form == CHOICE and isinstance(value, str):
            return kind.choices.get(value.lower(), value)
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        found = list(self.conflicts())
        if found:
            text = "; ".join(conflict.rule for conflict in found)
            raise PydanticCustomError(CONFLICT_ERROR, "{text}", {"text": text, "conflicts": found})
        return self
