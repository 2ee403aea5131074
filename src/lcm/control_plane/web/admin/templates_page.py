"""A template as a form: what is typed becomes a template, or a word at each field that is wrong."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.fleet.templates import put_template, read_template, set_template_enabled
from lcm.control_plane.records.kinds import TEMPLATES, WORKERS
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Where
from lcm.control_plane.web.auth import AdminUser, CurrentUser, form_field, is_fragment, read_form
from lcm.control_plane.web.forms import FormState, field_problems, parse_number
from lcm.control_plane.web.rendering import render_fragment, render_page, render_toast
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.control_plane.web.auth import WebUser


_CAPACITY_FIELDS = ("cpu_cores", "memory_gb", "storage_gb", "max_nodes")
_TEXT_FIELDS = ("name", "description", "instance_type", "ami_name_pattern")
_FIELD_HINTS = {
    "name": "letters, digits, dots, dashes and underscores, at most 63, the first and last a letter or digit",
    "instance_type": "must be such as t3.medium",
}


def template_form_values(template: WorkerTemplate) -> dict[str, str]:
    """What stands in the fields."""
    size = template.capacity
    return {
        "name": template.name,
        "description": template.description,
        "instance_type": template.instance_type,
        "ami_name_pattern": template.ami_name_pattern or "",
        "cpu_cores": str(size.cpu_cores),
        "memory_gb": f"{size.memory_gb:.15g}",
        "storage_gb": f"{size.storage_gb:.15g}",
        "max_nodes": str(size.max_nodes),
        "cost_per_hour_usd": f"{template.cost_per_hour_usd:.15g}",
        "enabled": "on" if template.enabled else "",
    }


def parse_template_form(form: Mapping[str, str]) -> tuple[WorkerTemplate | None, FormState]:
    """The template that a form describes, and what was typed."""
    told: dict[str, Any] = {name: form.get(name, "") for name in _TEXT_FIELDS}
    told["ami_name_pattern"] = told["ami_name_pattern"] or None
    told["capacity"] = {name: parse_number(form.get(name, "")) for name in _CAPACITY_FIELDS}
    told["cost_per_hour_usd"] = parse_number(form.get("cost_per_hour_usd", ""))
    told["enabled"] = form.get("enabled", "") == "on"
    fields = (*_TEXT_FIELDS, *_CAPACITY_FIELDS, "cost_per_hour_usd", "enabled")
    values = {name: form.get(name, "") for name in fields}
    try:
        return WorkerTemplate.model_validate(told), FormState(values)
    except ValidationError as error:
        problems = {name.removeprefix("capacity."): words for name, words in field_problems(error).items()}
        problems = {name: _FIELD_HINTS.get(name, words) for name, words in problems.items()}
        empty = {name: "must not be empty" for name in problems if not values.get(name)}
        return None, FormState(values, problems | empty)


def fingerprint(body: bytes) -> str:
    """What a form carries along, so that it is noticed when somebody else was faster."""
    return hashlib.sha256(body).hexdigest()[:16]


router = APIRouter(include_in_schema=False)
TemplateNamePath = Annotated[str, Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
DONE_EVENT = "lcm:done"
_MAX_TEMPLATES = 500
_EMPTY_FORM = {"enabled": "on"}


class EditConflictError(Exception):
    """Somebody else made or changed the template since the form was shown; the text says so."""


@router.get("/templates")
async def templates_page(request: Request, who: CurrentUser) -> HTMLResponse:
    """The list, or only its table for a script that asks again."""
    store = get_services(request).plane.store
    stored = (await store.find(TEMPLATES, limit=_MAX_TEMPLATES)).items
    values: dict[str, Any] = {
        "templates": [WorkerTemplate.model_validate_json(each.body) for each in stored],
        "used": await _workers_per_template(store),
    }
    if is_fragment(request):
        return render_fragment("admin/_template_table.html", who=who, **values)
    return await render_page(request, who, "admin/templates.html", here="templates", title="Templates", **values)


@router.get("/templates/new")
async def new_template_form(request: Request, who: AdminUser) -> HTMLResponse:
    """An empty form, or one that begins as a copy."""
    like = request.query_params.get("like", "")
    values = dict(_EMPTY_FORM)
    if like:
        values = {**template_form_values(await read_template(get_services(request).plane.store, like)), "name": ""}
    return _render_form(who, FormState(values), old="", mark="")


@router.get("/templates/edit/{name}")
async def edit_template_form(request: Request, who: AdminUser, name: TemplateNamePath) -> HTMLResponse:
    """The form of a template as it is now."""
    store = get_services(request).plane.store
    template = await read_template(store, name)
    stored = await store.get(TEMPLATES, name)
    mark = "" if stored is None else fingerprint(stored.body)
    return _render_form(who, FormState(template_form_values(template)), old=name, mark=mark)


@router.post("/templates/save")
async def save_template(request: Request, who: AdminUser) -> HTMLResponse:
    """Make or change a template. What is wrong is said at its field, and nothing that was typed is lost."""
    fields = await read_form(request)
    form = {name: form_field(fields, name) for name in fields}
    old, mark = form.get("old", ""), form.get("mark", "")
    if old:
        form["name"] = old  # workers name their template: it cannot be renamed
    template, typed = parse_template_form(form)
    if template is None:
        return _render_form(who, typed, old=old, mark=mark, status=422)
    try:
        made = await _save_if_unchanged(request, who, template, mark)
    except EditConflictError as error:
        where = "form" if old else "name"
        return _render_form(who, FormState(typed.values, {where: str(error)}), old=old, mark=mark, status=409)
    words = f"Template {template.name} was {'made' if made else 'changed'}"
    answer = render_toast(words, triggers=DONE_EVENT)
    answer.headers["HX-Reswap"] = "none"
    return answer


@router.post("/templates/{name}/{switch}")
async def toggle_template(
    request: Request,
    who: AdminUser,
    name: TemplateNamePath,
    switch: Annotated[str, Path(pattern="^(enable|disable)$")],
) -> HTMLResponse:
    """Let workers be made from it, or no more."""
    enabled = switch == "enable"

    async def attempt(change: Transaction) -> WorkerTemplate:
        return await set_template_enabled(change, name, enabled=enabled)

    await get_services(request).plane.records.change(who.caller.actor, attempt)
    words = "Workers can be made from" if enabled else "No more workers can be made from"
    return render_toast(f"{words} {name}", triggers=DONE_EVENT)


async def _save_if_unchanged(request: Request, who: WebUser, template: WorkerTemplate, mark: str) -> bool:
    async def attempt(change: Transaction) -> bool:
        stored = await change.store.get(TEMPLATES, template.name)
        now = "" if stored is None else fingerprint(stored.body)
        if now != mark:
            raise EditConflictError(_conflict_text(template.name, known=bool(mark)))
        return await put_template(change, template)

    return await get_services(request).plane.records.change(who.caller.actor, attempt)


def _conflict_text(name: str, *, known: bool) -> str:
    if known:
        return "Somebody else has changed this template meanwhile. Close this, look at it again, then change it."
    return f"there is a template {name} already; choose another name, or edit that one"


def _render_form(who: WebUser, typed: FormState, *, old: str, mark: str, status: int = 200) -> HTMLResponse:
    return render_fragment("admin/_template_form.html", status=status, typed=typed, old=old, mark=mark, who=who)


async def _workers_per_template(store: Store) -> dict[str, int]:
    """How many workers that are not TERMINATED were made from each."""
    living = Where(none_of={"status": [WorkerStatus.TERMINATED.value]})
    rows = await store.count_by(WORKERS, ["template_name"], living)
    return {str(values[0]): count for values, count, _ in rows if values[0] is not None}
