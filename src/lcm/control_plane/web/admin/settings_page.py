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
from lcm.control_plane.fleet.settings import patch_fleet_settings, preview_fleet_settings
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import SETTINGS
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import AdminUser, CurrentUser
from lcm.control_plane.web.forms import FormState, field_problems, form_field, form_key, parse_number, read_form
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_page, template_environment
from lcm.core import clock
from lcm.model.fleet.settings import FleetSettings, FleetSettingsPatch
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.services import Services
    from lcm.control_plane.web.auth import WebUser


router = APIRouter(include_in_schema=False)
GroupPath = Annotated[str, Path(pattern="^(idle|discovery|scaling|maintenance)$")]
GROUP_TITLES = {
    "idle": ("Idle workers", "When a worker is idle, and what happens then."),
    "discovery": (
        "Discovery and drift",
        "How instances are discovered, and what happens when they differ from their records.",
    ),
    "scaling": ("Scaling", "The limits of automatic scaling."),
    "maintenance": ("Maintenance", "What happens when EC2 announces maintenance, or reports an instance as impaired."),
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


@router.post("/settings/{group}/confirm")
async def confirm_settings(request: Request, user: AdminUser, group: GroupPath) -> HTMLResponse:
    """Show what would change and what would follow from it. Nothing is stored."""
    submitted = await _read_values(request)
    patch, form = parse_settings_form(group, submitted)
    services = get_services(request)
    if patch is None:
        return _in_place_of_group(await _render_group(services, user, group, form, status=422), group)
    changed = sorted(patch.provided(group))
    if not changed:
        unchanged = await _render_group(services, user, group, FormState(), message="No changes.")
        return _in_place_of_group(unchanged, group)
    hidden = {name: submitted[name] for each in changed for name in (each, ORIGINAL_PREFIX + each) if name in submitted}
    return await _render_confirmation(services, group, patch, action_url=f"/settings/{group}", hidden=hidden)


@router.post("/settings/{group}")
async def save_settings(request: Request, user: AdminUser, group: GroupPath) -> HTMLResponse:
    """Store the fields that were changed in the form of a group."""
    fields = await read_form(request)
    patch, form = parse_settings_form(group, _form_values(fields))
    services = get_services(request)
    if patch is None:
        return await _render_group(services, user, group, form, status=422)
    changed = sorted(patch.provided(group))
    if not changed:
        return await _render_group(services, user, group, FormState(), message="No changes.")
    await _apply_patch(services, user.caller, patch, form_key(request, user.caller, fields))
    return await _render_group(services, user, group, FormState(), message=f"Saved: {', '.join(changed)}.")


@router.get("/settings/{group}/confirm-reset/{name}")
async def confirm_reset(request: Request, user: AdminUser, group: GroupPath, name: str) -> HTMLResponse:
    """Show what the reset of a setting would do."""
    _require_setting(group, name)
    patch = FleetSettingsPatch.model_validate({group: {name: None}})
    return await _render_confirmation(
        get_services(request), group, patch, action_url=f"/settings/{group}/reset/{name}", include=f"#group-{group}"
    )


@router.post("/settings/{group}/reset/{name}")
async def reset_setting(request: Request, user: AdminUser, group: GroupPath, name: str) -> HTMLResponse:
    """Delete a stored value. What else was typed in the form is kept."""
    _require_setting(group, name)
    fields = await read_form(request)
    _, form = parse_settings_form(group, _form_values(fields))
    services, key = get_services(request), form_key(request, user.caller, fields)
    await _apply_patch(services, user.caller, FleetSettingsPatch.model_validate({group: {name: None}}), key)
    form = FormState({each: text for each, text in form.values.items() if each != name})
    return await _render_group(services, user, group, form, message=f"Reset to default: {name}.")


async def _read_values(request: Request) -> dict[str, str]:
    return _form_values(await read_form(request))


def _form_values(fields: dict[str, list[str]]) -> dict[str, str]:
    return {name: form_field(fields, name) for name in fields}


def _require_setting(group: str, name: str) -> None:
    if name not in _group_fields(group):
        raise ProblemError(ProblemCode.NOT_FOUND, f"there is no setting {name}")


async def _apply_patch(
    services: Services, caller: Caller, patch: FleetSettingsPatch, key: IdempotencyKey | None
) -> None:
    context = services.context

    async def attempt(tx: Transaction) -> FleetSettings:
        return await patch_fleet_settings(tx, context.base_settings, patch)

    await run_idempotent(context.unit_of_work, caller.actor, key, attempt)


async def _read_fields(services: Services, group: str) -> list[Any]:
    context = services.context
    document = await context.store.get(SETTINGS, "fleet")
    stored = {} if document is None else json.loads(document.body).get(group, {})
    return setting_fields(group, await context.settings(), context.base_settings, stored)


async def _render_confirmation(
    services: Services,
    group: str,
    patch: FleetSettingsPatch,
    *,
    action_url: str,
    hidden: Mapping[str, str] | None = None,
    include: str = "",
) -> HTMLResponse:
    context = services.context
    return render_fragment(
        "admin/_confirm_settings.html",
        group=group,
        title=GROUP_TITLES[group][0],
        preview=await preview_fleet_settings(context.store, context.base_settings, patch),
        format_value=format_value,
        action_url=action_url,
        hidden=hidden or {},
        include=include,
    )


def _in_place_of_group(response: HTMLResponse, group: str) -> HTMLResponse:
    """The form asked for a dialog; the response replaces the form itself."""
    response.headers.update({"HX-Retarget": f"#group-{group}", "HX-Reswap": "outerMorph"})
    return response


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
    return HTMLResponse(text + toast, status, {"HX-Trigger": DONE_EVENT})
