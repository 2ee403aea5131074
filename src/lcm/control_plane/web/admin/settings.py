"""Settings: what the fleet does by itself, changed while it runs; how pages look; what this is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.errors import Refusal
from lcm.control_plane.fleet.settings import patch_settings
from lcm.control_plane.records.kinds import SETTINGS
from lcm.control_plane.services import parts
from lcm.control_plane.web.admin.settings_page import TITLES, patch_of, settings_of
from lcm.control_plane.web.auth import AdminVisitor, Visitor, field_of, form_of
from lcm.control_plane.web.forms import Typed
from lcm.control_plane.web.rendering import environment, fragment, page
from lcm.core import clock
from lcm.model.fleet.settings import FleetSettings, SettingsPatch
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.records.unit_of_work import Change
    from lcm.control_plane.services import Parts
    from lcm.control_plane.web.auth import Looking

router = APIRouter(include_in_schema=False)
Group = Annotated[str, Path(pattern="^(idle|discovery|scaling)$")]


@router.get("/settings")
async def settings(request: Request, who: Visitor) -> HTMLResponse:
    """All groups."""
    all_parts = parts(request)
    groups = [(group, await _values(all_parts, group)) for group in TITLES]
    health = await all_parts.system.health()
    return await page(
        request,
        who,
        "admin/settings.html",
        here="settings",
        title="Settings",
        groups=groups,
        titles=TITLES,
        typed=Typed(),
        own=health.plane,
    )


@router.post("/settings/{group}")
async def store(request: Request, who: AdminVisitor, group: Group) -> HTMLResponse:
    """Store what was changed in a group's form."""
    form = {name: field_of(fields, name) for fields in [await form_of(request)] for name in fields}
    patch, typed = patch_of(group, form)
    all_parts = parts(request)
    if patch is None:
        return await _section(all_parts, who, group, typed, status=422)
    changed = sorted(patch.given(group))
    if not changed:
        return await _section(all_parts, who, group, Typed(), said="Nothing was changed.")
    await _store(all_parts, who.caller, patch)
    return await _section(all_parts, who, group, Typed(), said=f"Stored: {', '.join(changed)}.")


@router.post("/settings/{group}/reset/{name}")
async def reset(request: Request, who: AdminVisitor, group: Group, name: str) -> HTMLResponse:
    """Take a stored value back; what else was typed in the form stays there."""
    if name not in type(getattr(FleetSettings(), group)).model_fields:
        raise Refusal(ProblemCode.NOT_FOUND, f"there is no setting {name}")
    form = {each: field_of(fields, each) for fields in [await form_of(request)] for each in fields}
    _, typed = patch_of(group, form)
    all_parts = parts(request)
    await _store(all_parts, who.caller, SettingsPatch.model_validate({group: {name: None}}))
    kept = Typed({each: text for each, text in typed.values.items() if each != name})
    return await _section(all_parts, who, group, kept, said=f"Taken back: {name}.")


async def _store(all_parts: Parts, caller: Caller, patch: SettingsPatch) -> None:
    plane = all_parts.plane

    async def attempt(change: Change) -> FleetSettings:
        return await patch_settings(change, plane.base_settings, patch)

    await plane.records.change(caller.actor, attempt)


async def _values(all_parts: Parts, group: str) -> list[Any]:
    plane = all_parts.plane
    kept = await plane.store.get(SETTINGS, "fleet")
    stored = {} if kept is None else json.loads(kept.body).get(group, {})
    return settings_of(group, await plane.settings(), plane.base_settings, stored)


async def _section(
    all_parts: Parts, who: Looking, group: str, typed: Typed, *, status: int = 200, said: str = ""
) -> HTMLResponse:
    """A group's form as it is now, and a word on what happened."""
    values: dict[str, Any] = {
        "group": group,
        "settings": await _values(all_parts, group),
        "typed": typed,
        "titles": TITLES,
        "who": who,
    }
    if not said:
        return fragment("admin/_setting_group.html", status=status, **values)
    word = environment().get_template("shared/_toast.html").render(kind="good", message=said)
    text = environment().get_template("admin/_setting_group.html").render(now=clock.now(), **values)
    return HTMLResponse(text + word, status)
