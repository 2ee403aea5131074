"""Settings as a form: each with its value, where that comes from, and what may be typed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.settings import patch_fleet_settings
from lcm.control_plane.records.kinds import SETTINGS
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import AdminUser, CurrentUser, form_field, read_form
from lcm.control_plane.web.forms import FormState, field_problems, parse_number
from lcm.control_plane.web.rendering import render_fragment, render_page, template_environment
from lcm.core import clock
from lcm.model.fleet.settings import FleetSettings, FleetSettingsPatch
from lcm.model.problems import ProblemCode
from lcm.settings import FleetDefaultSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.services import Services
    from lcm.control_plane.web.auth import WebUser


GROUP_TITLES = {
    "idle": ("Idle workers", "When a worker counts as idle, and what is done about it."),
    "discovery": ("Discovery and drift", "How instances are found, and what happens when they are not as recorded."),
    "scaling": ("Scaling", "How far the fleet shrinks and grows by itself."),
}
ORIGINAL_PREFIX = "was."
_SETTING_TITLES = {
    "min_workers": "Fewest running workers",
    "max_workers_per_region": "Most workers in a region",
    "worker_discovery_tag_filter": "Discovery by tag",
    "worker_discovery_ami_filter": "Discovery by image name",
    "drift_policy": "After a stop from outside",
    "worker_auto_pause_snooze_minutes": "Snooze after a resume",
}
_ON, _OFF = "on", "off"


@dataclass(frozen=True, slots=True)
class SettingField:
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
        if self.name in _SETTING_TITLES:
            return _SETTING_TITLES[self.name]
        words = self.name.removeprefix("worker_").removesuffix("_minutes").removesuffix("_seconds").replace("_", " ")
        return words.removesuffix(" enabled").capitalize()


def setting_fields(
    group: str, now: FleetSettings, base: FleetSettings, stored: Mapping[str, Any]
) -> list[SettingField]:
    """All settings of a group."""
    kinds, usual = type(getattr(now, group)).model_fields, FleetSettings()
    found = []
    for name, info in kinds.items():
        value, before = getattr(getattr(now, group), name), getattr(getattr(base, group), name)
        own = "default" if before == getattr(getattr(usual, group), name) else "environment"
        kind = info.annotation
        found.append(
            SettingField(
                name=name,
                text=FleetDefaultSettings.model_fields[name].description or "",
                value=format_value(value),
                base=format_value(before),
                source="stored" if name in stored else own,
                choices=_choices(kind),
                number=kind in (int, float),
                unit=_unit(name),
            )
        )
    return found


def format_value(value: object) -> str:
    """A value as it stands in its field."""
    if isinstance(value, bool):
        return _ON if value else _OFF
    if isinstance(value, float):
        return f"{value:.15g}"
    return "" if value is None else str(value)


def parse_settings_form(group: str, form: Mapping[str, str]) -> tuple[FleetSettingsPatch | None, FormState]:
    """What a form asks to be stored: only fields that somebody changed since the form was made."""
    kinds = {name: info.annotation for name, info in _group_fields(group).items()}
    typed = {name: form[name] for name in kinds if name in form}
    changed = {name: text for name, text in typed.items() if text != form.get(ORIGINAL_PREFIX + name, "")}
    try:
        patch = FleetSettingsPatch.model_validate(
            {group: {name: _parse_value(kinds[name], changed[name]) for name in changed}}
        )
    except ValidationError as error:
        return None, FormState(typed, field_problems(error, below=(group,)))
    return patch, FormState(typed)


def _group_fields(group: str) -> dict[str, Any]:
    return dict(type(getattr(FleetSettings(), group)).model_fields)


def _parse_value(kind: Any, text: str) -> Any:
    if kind is bool:
        return {_ON: True, _OFF: False}.get(text, text)
    if kind in (int, float):
        return parse_number(text)
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


router = APIRouter(include_in_schema=False)
GroupPath = Annotated[str, Path(pattern="^(idle|discovery|scaling)$")]


@router.get("/settings")
async def settings_page(request: Request, who: CurrentUser) -> HTMLResponse:
    """All groups."""
    all_parts = get_services(request)
    groups = [(group, await _read_fields(all_parts, group)) for group in GROUP_TITLES]
    health = await all_parts.system.health()
    return await render_page(
        request,
        who,
        "admin/settings.html",
        here="settings",
        title="Settings",
        groups=groups,
        titles=GROUP_TITLES,
        typed=FormState(),
        own=health.plane,
    )


@router.post("/settings/{group}")
async def save_settings(request: Request, who: AdminUser, group: GroupPath) -> HTMLResponse:
    """Store what was changed in a group's form."""
    form = {name: form_field(fields, name) for fields in [await read_form(request)] for name in fields}
    patch, typed = parse_settings_form(group, form)
    all_parts = get_services(request)
    if patch is None:
        return await _render_group(all_parts, who, group, typed, status=422)
    changed = sorted(patch.given(group))
    if not changed:
        return await _render_group(all_parts, who, group, FormState(), said="Nothing was changed.")
    await _apply_patch(all_parts, who.caller, patch)
    return await _render_group(all_parts, who, group, FormState(), said=f"Stored: {', '.join(changed)}.")


@router.post("/settings/{group}/reset/{name}")
async def reset_setting(request: Request, who: AdminUser, group: GroupPath, name: str) -> HTMLResponse:
    """Take a stored value back; what else was typed in the form stays there."""
    if name not in type(getattr(FleetSettings(), group)).model_fields:
        raise ProblemError(ProblemCode.NOT_FOUND, f"there is no setting {name}")
    form = {each: form_field(fields, each) for fields in [await read_form(request)] for each in fields}
    _, typed = parse_settings_form(group, form)
    all_parts = get_services(request)
    await _apply_patch(all_parts, who.caller, FleetSettingsPatch.model_validate({group: {name: None}}))
    kept = FormState({each: text for each, text in typed.values.items() if each != name})
    return await _render_group(all_parts, who, group, kept, said=f"Taken back: {name}.")


async def _apply_patch(all_parts: Services, caller: Caller, patch: FleetSettingsPatch) -> None:
    plane = all_parts.plane

    async def attempt(change: Transaction) -> FleetSettings:
        return await patch_fleet_settings(change, plane.base_settings, patch)

    await plane.records.change(caller.actor, attempt)


async def _read_fields(all_parts: Services, group: str) -> list[Any]:
    plane = all_parts.plane
    kept = await plane.store.get(SETTINGS, "fleet")
    stored = {} if kept is None else json.loads(kept.body).get(group, {})
    return setting_fields(group, await plane.settings(), plane.base_settings, stored)


async def _render_group(
    all_parts: Services, who: WebUser, group: str, typed: FormState, *, status: int = 200, said: str = ""
) -> HTMLResponse:
    """A group's form as it is now, and a word on what happened."""
    values: dict[str, Any] = {
        "group": group,
        "settings": await _read_fields(all_parts, group),
        "typed": typed,
        "titles": GROUP_TITLES,
        "who": who,
    }
    if not said:
        return render_fragment("admin/_setting_group.html", status=status, **values)
    word = template_environment().get_template("shared/_toast.html").render(kind="good", message=said)
    text = template_environment().get_template("admin/_setting_group.html").render(now=clock.now(), **values)
    return HTMLResponse(text + word, status)
