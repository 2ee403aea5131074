"""Reading settings from flags, environment and a TOML file, with the source of each value."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from lcm.core.text import escape_unprintable
from lcm.settings.base import CONFLICT_ERROR, Settings, SettingsConflict
from lcm.settings.describe import MASK, default_value, env_variable, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

M = TypeVar("M", bound=Settings)

CONFIG_FILE_VARIABLE = "LCM_CONFIG"
_ENVIRONMENT, _FLAG, _DEFAULT = "environment", "flag", "default"
_MAX_SHOWN_LENGTH = 200
_URL_USER = re.compile(r"://\S*@")


class SettingsError(Exception):
    """Settings are invalid. The message has one line per problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True)
class LoadedSettings(Generic[M]):
    """Settings, and the source of each."""

    settings: M
    sources: Mapping[str, str]

    def source_of(self, name: str) -> str:
        """The source of the value: `default`, `environment ETCD_PORT`, `file /x/lcm.toml` or `flag`."""
        if name not in type(self.settings).model_fields:
            raise KeyError(f"no setting {name!r} in {type(self.settings).__name__}")
        return self.sources.get(name, _DEFAULT)


def load(
    model: type[M],
    *,
    env: Mapping[str, str] | None = None,
    config_file: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> LoadedSettings[M]:
    """Make `model` from flags over environment over TOML file over defaults. `SettingsError` lists all problems.

    An override of None is a flag that was not given; an empty variable counts as unset. The file is
    `config_file`, else the one in LCM_CONFIG.
    """
    environ = os.environ if env is None else env
    reading = _Loader(model)
    reading.read_file(config_file, environ.get(CONFIG_FILE_VARIABLE))
    reading.read_environment(environ)
    reading.read_flags(overrides or {})
    return reading.result()


class _Loader(Generic[M]):
    """One call of `load`: values, their sources, and problems so far."""

    def __init__(self, model: type[M]) -> None:
        self.model = model
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.given_as: dict[str, str] = {}  # the name or alias that was used
        self.fields = {
            each: name for name, value_type in model.value_types().items() for each in (name, *value_type.aliases)
        }
        self.problems: list[str] = []

    def read_file(self, argument: str | Path | None, variable: str | None) -> None:
        """Read the TOML file, the lowest layer. Tables only group; settings of other services are skipped."""
        named = argument or variable
        if not named:
            return
        path = Path(os.path.expanduser(named))  # noqa: PTH111 - Path.expanduser fails on an unknown user
        source = f"file {escape_unprintable(str(path))}"
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError:
            asked = f"{CONFIG_FILE_VARIABLE}={_quote(path)} ({_FLAG if argument else _ENVIRONMENT})"
            self.problems.append(f"{asked}: must be an existing file that can be read")
        except ValueError as error:
            self.problems.append(f"{source}: must be a TOML file in UTF-8: {escape_unprintable(str(error))}")
        else:
            self._take_file(content, source)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        """Read environment variables."""
        for name in self.fields:
            value = environ.get(env_variable(name))
            if value:
                self._take(name, value, _ENVIRONMENT)

    def read_flags(self, overrides: Mapping[str, object]) -> None:
        """Read flags, the highest layer."""
        for name, value in overrides.items():
            if name not in self.fields:
                self._unknown(name, self.fields, _FLAG)
            elif value is not None:
                self._take(name, value, _FLAG)

    def result(self) -> LoadedSettings[M]:
        """The settings; raises `SettingsError` if there is any problem."""
        settings = self._validated()
        if settings is None or self.problems:
            raise SettingsError(self.problems)
        return LoadedSettings(settings, {name: self._source(name) for name in self.sources})

    def _source(self, name: str) -> str:
        source = self.sources[name]
        return f"{source} {env_variable(self.given_as[name])}" if source == _ENVIRONMENT else source

    def _take(self, name: str, value: object, source: str) -> None:
        """Store a value. Different values under a name and its alias in one source are a problem."""
        field = self.fields[name]
        before = self.given_as.get(field)
        if self.sources.get(field) == source and before not in (None, name) and self._differ(field, value):
            both = f"{self._given(field)}, {self._shown(field, name, value, source)}"
            self.problems.append(f"{both}: are two names of one setting and must not differ")
        self.values[field], self.sources[field], self.given_as[field] = value, source, name

    def _differ(self, field: str, value: object) -> bool:
        """Whether the value differs in meaning from the one before: `true` and `1` are the same."""
        before = self.values[field]
        annotation: Any = self.model.model_fields[field].annotation
        reader: TypeAdapter[Any] = TypeAdapter(annotation)
        try:
            return bool(reader.validate_python(before) != reader.validate_python(value))
        except ValidationError:
            return bool(before != value)

    def _take_file(self, content: dict[str, Any], source: str) -> None:
        known = _known_names(Settings) | set(self.fields)
        seen: set[str] = set()
        for name, value in _flatten_tables(content, known):
            if name in seen:
                self.problems.append(f"{escape_unprintable(name)} ({source}): must be given once")
            elif name not in known:
                self._unknown(name, known, source)
            elif name in self.fields:
                self._take(name, value, source)
            seen.add(name)

    def _unknown(self, name: str, known: Iterable[str], source: str) -> None:
        close = difflib.get_close_matches(name.lower(), sorted(known), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        self.problems.append(f"{escape_unprintable(name)} ({source}): no such setting{hint}")

    def _validated(self) -> M | None:
        settings, errors = self._attempt(self.values)
        located = {error["loc"][0] for error in errors if error["loc"]}
        wrong = [name for name in self.model.value_types() if name in located]
        self.problems += [f"{self._given(name)}: must be {self.model.value_types()[name].allowed}" for name in wrong]
        if wrong:
            # Rules between settings are checked only on valid values: retry without the invalid ones to report all.
            _, errors = self._attempt({name: value for name, value in self.values.items() if name not in wrong})
        for conflict in _find_conflicts(errors):
            if not set(conflict.names) & set(wrong):
                self.problems.append(f"{', '.join(self._given(name) for name in conflict.names)}: {conflict.rule}")
        return settings

    def _attempt(self, values: dict[str, Any]) -> tuple[M | None, list[Any]]:
        try:
            return self.model(**values), []
        except ValidationError as error:
            return None, error.errors(include_url=False, include_input=False)

    def _given(self, name: str) -> str:
        """The setting with its value and source, for the beginning of a problem line."""
        value = self.values[name] if name in self.values else default_value(self.model.model_fields[name])
        given_as = self.given_as.get(name, name)
        if value is None:
            return f"{env_variable(given_as)} (not set)"
        return self._shown(name, given_as, value, self.sources.get(name, _DEFAULT))

    def _shown(self, field: str, given_as: str, value: object, source: str) -> str:
        shown = f'"{MASK}"' if self.model.value_types()[field].secret else _quote(value)
        return f"{env_variable(given_as)}={shown} ({source})"


def _known_names(root: type[Settings]) -> set[str]:
    """The names of all settings: one file may serve several services."""
    names = {each for name, value_type in root.value_types().items() for each in (name, *value_type.aliases)}
    for group in root.__subclasses__():
        names |= _known_names(group)
    return names


def _flatten_tables(content: dict[str, Any], known: set[str]) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict) and name not in known:
            yield from _flatten_tables(value, known)
        else:
            yield name, value


def _find_conflicts(errors: list[Any]) -> Iterator[SettingsConflict]:
    for error in errors:
        if error["type"] == CONFLICT_ERROR:
            yield from error["ctx"]["conflicts"]


def _quote(value: object) -> str:
    text = escape_unprintable(_URL_USER.sub(f"://{MASK}@", format_value(value)))
    return f'"{text if len(text) <= _MAX_SHOWN_LENGTH else text[: _MAX_SHOWN_LENGTH - 1] + "…"}"'
