"""The Settings page: fleet settings with their source, which admins change while the fleet runs."""

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
from lcm.control_plane.web.auth import AdminUser, CurrentUser
from lcm.control_plane.web.forms import FormState, field_problems, form_field, parse_number, read_form
from lcm.control_plane.web.rendering import render_fragment, render_page, template_environment
from lcm.core import clock
from lcm.model.fleet.settings import FleetSettings, FleetSettingsPatch
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.services import Services
    from lcm.control_plane.web.auth import WebUser


router = APIRouter(include_in_schema=False)
GroupPath = Annotated[str, Path(pattern="^(idle|discovery|scaling)$")]
GROUP_TITLES = {
    "idle": ("Idle workers", "When a worker is idle, and what happens then."),
    "discovery": (
        "Discovery and drift",
        "How instances are discovered, and what happens when they differ from their records.",
    ),
    "scaling": ("Scaling", "The limits of automatic scaling."),
}
ORIGINAL_PREFIX = "was."
_ON, _OFF = "on", "off"


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting. `source` is stored, environment or default; `choices` are the allowed values of a selection."""

    name: str
    title: str
    text: str
    value: str
    base: str
    source: str
    choices: tuple[str, ...]
    number: bool
    unit: str


def setting_fields(
    group: str, current: FleetSettings, base: FleetSettings, stored: Mapping[str, Any]
) -> list[SettingField]:
    """The fields of a group. `base` holds the values of the startup configuration."""
    defaults = FleetSettings()
    fields = []
    for name, info in type(getattr(current, group)).model_fields.items():
        value, startup_value = getattr(getattr(current, group), name), getattr(getattr(base, group), name)
        startup_source = "default" if startup_value == getattr(getattr(defaults, group), name) else "environment"
        kind = info.annotation
        fields.append(
            SettingField(
                name=name,
                title=info.title or _title_of(name),
                text=info.description or "",
                value=format_value(value),
                base=format_value(startup_value),
                source="stored" if name in stored else startup_source,
                choices=_choices(kind),
                number=kind in (int, float),
                unit=_unit(name),
            )
        )
    return fields


def _title_of(name: str) -> str:
    title = name.removeprefix("worker_").removesuffix("_minutes").removesuffix("_seconds").replace("_", " ")
    return title.removesuffix(" enabled").capitalize()


def format_value(value: object) -> str:
    """The text of a value in its field."""
    if isinstance(value, bool):
        return _ON if value else _OFF
    if isinstance(value, float):
        return f"{value:.15g}"
    return "" if value is None else str(value)


def parse_settings_form(group: str, submitted: Mapping[str, str]) -> tuple[FleetSettingsPatch | None, FormState]:
    """The patch of a form, or None, and the form with its problems. Only fields that the user changed are patched."""
    kinds = {name: info.annotation for name, info in _group_fields(group).items()}
    values = {name: submitted[name] for name in kinds if name in submitted}
    changed = {name: text for name, text in values.items() if text != submitted.get(ORIGINAL_PREFIX + name, "")}
    try:
        patch = FleetSettingsPatch.model_validate(
            {group: {name: _parse_value(kinds[name], changed[name]) for name in changed}}
        )
    except ValidationError as error:
        return None, FormState(values, field_problems(error, below=(group,)))
    return patch, FormState(values)


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


@router.get("/settings")
async def settings_page(request: Request, user: CurrentUser) -> HTMLResponse:
    """The whole page."""
    services = get_services(request)
    groups = [(group, await _read_fields(services, group)) for group in GROUP_TITLES]
    health = await services.system.health()
    return await render_page(
        request,
        user,
        "admin/settings.html",
        here="settings",
        title="Settings",
        groups=groups,
        titles=GROUP_TITLES,
        form=FormState(),
        control_plane=health.plane,
    )


@router.post("/settings/{group}")
async def save_settings(request: Request, user: AdminUser, group: GroupPath) -> HTMLResponse:
    """Store the fields that were changed in the form of a group."""
    patch, form = parse_settings_form(group, await _read_values(request))
    services = get_services(request)
    if patch is None:
        return await _render_group(services, user, group, form, status=422)
    changed = sorted(patch.provided(group))
    if not changed:
        return await _render_group(services, user, group, FormState(), message="No changes.")
    await _apply_patch(services, user.caller, patch)
    return await _render_group(services, user, group, FormState(), message=f"Saved: {', '.join(changed)}.")


@router.post("/settings/{group}/reset/{name}")
async def reset_setting(request: Request, user: AdminUser, group: GroupPath, name: str) -> HTMLResponse:
    """Delete a stored value. What else was typed in the form is kept."""
    if name not in type(getattr(FleetSettings(), group)).model_fields:
        raise ProblemError(ProblemCode.NOT_FOUND, f"there is no setting {name}")
    _, form = parse_settings_form(group, await _read_values(request))
    services = get_services(request)
    await _apply_patch(services, user.caller, FleetSettingsPatch.model_validate({group: {name: None}}))
    form = FormState({each: text for each, text in form.values.items() if each != name})
    return await _render_group(services, user, group, form, message=f"Reset to default: {name}.")


async def _read_values(request: Request) -> dict[str, str]:
    fields = await read_form(request)
    return {name: form_field(fields, name) for name in fields}


async def _apply_patch(services: Services, caller: Caller, patch: FleetSettingsPatch) -> None:
    context = services.context

    async def attempt(tx: Transaction) -> FleetSettings:
        return await patch_fleet_settings(tx, context.base_settings, patch)

    await context.unit_of_work.run(caller.actor, attempt)


async def _read_fields(services: Services, group: str) -> list[Any]:
    context = services.context
    document = await context.store.get(SETTINGS, "fleet")
    stored = {} if document is None else json.loads(document.body).get(group, {})
    return setting_fields(group, await context.settings(), context.base_settings, stored)


async def _render_group(
    services: Services, user: WebUser, group: str, form: FormState, *, status: int = 200, message: str = ""
) -> HTMLResponse:
    """The form of a group with its current values, and an optional message."""
    values: dict[str, Any] = {
        "group": group,
        "settings": await _read_fields(services, group),
        "form": form,
        "titles": GROUP_TITLES,
        "user": user,
    }
    if not message:
        return render_fragment("admin/_setting_group.html", status=status, **values)
    toast = template_environment().get_template("shared/_toast.html").render(kind="good", message=message)
    text = template_environment().get_template("admin/_setting_group.html").render(now=clock.now(), **values)
    return HTMLResponse(text + toast, status)
