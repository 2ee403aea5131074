"""Settings as a form: each with its value, where that comes from, and what may be typed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lcm.control_plane.web.forms import Typed, as_number, in_words
from lcm.model.fleet.settings import FleetSettings, SettingsPatch
from lcm.settings import FleetDefaults

if TYPE_CHECKING:
    from collections.abc import Mapping

TITLES = {
    "idle": ("Idle workers", "When a worker counts as idle, and what is done about it."),
    "discovery": ("Discovery and drift", "How instances are found, and what happens when they are not as recorded."),
    "scaling": ("Scaling", "How far the fleet shrinks and grows by itself."),
}
WAS = "was."
_NAMES = {
    "min_workers": "Fewest running workers",
    "max_workers_per_region": "Most workers in a region",
    "worker_discovery_tag_filter": "Discovery by tag",
    "worker_discovery_ami_filter": "Discovery by image name",
    "drift_policy": "After a stop from outside",
    "worker_auto_pause_snooze_minutes": "Snooze after a resume",
}
_ON, _OFF = "on", "off"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `source` is stored, environment or default; `choices` are all that may be chosen, if not typed."""

    name: str
    text: str
    value: str
    base: str
    source: str
    choices: tuple[str, ...]
    number: bool
    unit: str

    @property
    def title(self) -> str:
        """Its name as people read it."""
        if self.name in _NAMES:
            return _NAMES[self.name]
        words = self.name.removeprefix("worker_").removesuffix("_minutes").removesuffix("_seconds").replace("_", " ")
        return words.removesuffix(" enabled").capitalize()


def settings_of(group: str, now: FleetSettings, base: FleetSettings, stored: Mapping[str, Any]) -> list[Setting]:
    """All settings of a group."""
    kinds, usual = type(getattr(now, group)).model_fields, FleetSettings()
    found = []
    for name, info in kinds.items():
        value, before = getattr(getattr(now, group), name), getattr(getattr(base, group), name)
        own = "default" if before == getattr(getattr(usual, group), name) else "environment"
        kind = info.annotation
        found.append(
            Setting(
                name=name,
                text=FleetDefaults.model_fields[name].description or "",
                value=shown(value),
                base=shown(before),
                source="stored" if name in stored else own,
                choices=_choices(kind),
                number=kind in (int, float),
                unit=_unit(name),
            )
        )
    return found


def shown(value: object) -> str:
    """A value as it stands in its field."""
    if isinstance(value, bool):
        return _ON if value else _OFF
    if isinstance(value, float):
        return f"{value:.15g}"
    return "" if value is None else str(value)


def patch_of(group: str, form: Mapping[str, str]) -> tuple[SettingsPatch | None, Typed]:
    """What a form asks to be stored: only fields that somebody changed since the form was made."""
    kinds = {name: info.annotation for name, info in _group(group).items()}
    typed = {name: form[name] for name in kinds if name in form}
    changed = {name: text for name, text in typed.items() if text != form.get(WAS + name, "")}
    try:
        patch = SettingsPatch.model_validate({group: {name: _read(kinds[name], changed[name]) for name in changed}})
    except ValidationError as error:
        return None, Typed(typed, in_words(error, below=(group,)))
    return patch, Typed(typed)


def _group(group: str) -> dict[str, Any]:
    return dict(type(getattr(FleetSettings(), group)).model_fields)


def _read(kind: Any, text: str) -> Any:
    if kind is bool:
        return {_ON: True, _OFF: False}.get(text, text)
    if kind in (int, float):
        return as_number(text)
    return text if text or kind is str else None


def _choices(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return _ON, _OFF
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(str(each.value) for each in kind)
    return ()


def _unit(name: str) -> str:
    if name.endswith("_minutes"):
        return "minutes"
    return "seconds" if name.endswith(("_seconds", "_interval")) else ""
