"""The Templates page: the list of worker templates, and the form to create or edit one."""

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
from lcm.control_plane.web.auth import AdminUser, CurrentUser, is_fragment
from lcm.control_plane.web.forms import (
    NAME_HINT,
    WHOLE_FORM,
    FormState,
    field_problems,
    form_field,
    parse_number,
    read_form,
)
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_page, render_toast
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.control_plane.web.auth import WebUser


router = APIRouter(include_in_schema=False)
TemplateNamePath = Annotated[str, Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
_MAX_TEMPLATES = 500
_EMPTY_FORM = {"enabled": "on"}
_CAPACITY_FIELDS = ("cpu_cores", "memory_gb", "storage_gb", "max_nodes")
_TEXT_FIELDS = ("name", "description", "instance_type", "ami_name_pattern")
_FIELD_HINTS = {
    "name": NAME_HINT,
    "instance_type": "must be an instance type such as t3.medium",
}


def template_form_values(template: WorkerTemplate) -> dict[str, str]:
    """The text of each field of the form."""
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


def parse_template_form(submitted: Mapping[str, str]) -> tuple[WorkerTemplate | None, FormState]:
    """The template of a form, or None, and the form with its problems."""
    template: dict[str, Any] = {name: submitted.get(name, "") for name in _TEXT_FIELDS}
    template["ami_name_pattern"] = template["ami_name_pattern"] or None
    template["capacity"] = {name: parse_number(submitted.get(name, "")) for name in _CAPACITY_FIELDS}
    template["cost_per_hour_usd"] = parse_number(submitted.get("cost_per_hour_usd", ""))
    template["enabled"] = submitted.get("enabled", "") == "on"
    names = (*_TEXT_FIELDS, *_CAPACITY_FIELDS, "cost_per_hour_usd", "enabled")
    values = {name: submitted.get(name, "") for name in names}
    try:
        return WorkerTemplate.model_validate(template), FormState(values)
    except ValidationError as error:
        problems = {name.removeprefix("capacity."): text for name, text in field_problems(error, _FIELD_HINTS).items()}
        empty = {name: "must not be empty" for name in problems if not values.get(name)}
        return None, FormState(values, problems | empty)


def fingerprint(body: bytes) -> str:
    """A digest that a form carries, to detect a change by another user."""
    return hashlib.sha256(body).hexdigest()[:16]


class EditConflictError(Exception):
    """Another user created or changed the template since the form was shown."""


@router.get("/templates")
async def templates_page(request: Request, user: CurrentUser) -> HTMLResponse:
    """The whole page, or only the table for a refresh by a script."""
    store = get_services(request).context.store
    stored = (await store.find(TEMPLATES, limit=_MAX_TEMPLATES)).items
    values: dict[str, Any] = {
        "templates": [WorkerTemplate.model_validate_json(each.body) for each in stored],
        "used": await _workers_per_template(store),
    }
    if is_fragment(request):
        return render_fragment("admin/_template_table.html", user=user, **values)
    return await render_page(request, user, "admin/templates.html", here="templates", title="Templates", **values)


@router.get("/templates/new")
async def new_template_form(request: Request, user: AdminUser) -> HTMLResponse:
    """An empty form, or a copy of another template."""
    like = request.query_params.get("like", "")
    values = dict(_EMPTY_FORM)
    if like:
        values = {**template_form_values(await read_template(get_services(request).context.store, like)), "name": ""}
    return _render_form(user, FormState(values), old="", expected="")


@router.get("/templates/edit/{name}")
async def edit_template_form(request: Request, user: AdminUser, name: TemplateNamePath) -> HTMLResponse:
    """The form with the current values."""
    store = get_services(request).context.store
    template = await read_template(store, name)
    stored = await store.get(TEMPLATES, name)
    expected = "" if stored is None else fingerprint(stored.body)
    return _render_form(user, FormState(template_form_values(template)), old=name, expected=expected)


@router.post("/templates/save")
async def save_template(request: Request, user: AdminUser) -> HTMLResponse:
    """Create or change a template. An invalid form is shown again, with its problems and everything that was typed."""
    fields = await read_form(request)
    submitted = {name: form_field(fields, name) for name in fields}
    old, expected = submitted.get("old", ""), submitted.get("mark", "")
    if old:
        submitted["name"] = old  # workers refer to their template by name, so that it cannot be renamed
    template, form = parse_template_form(submitted)
    if template is None:
        return _render_form(user, form, old=old, expected=expected, status=422)
    try:
        created = await _save_if_unchanged(request, user, template, expected)
    except EditConflictError as error:
        where = WHOLE_FORM if old else "name"
        return _render_form(user, FormState(form.values, {where: str(error)}), old=old, expected=expected, status=409)
    response = render_toast(f"Template {template.name} {'created' if created else 'saved'}", triggers=DONE_EVENT)
    response.headers["HX-Reswap"] = "none"
    return response


@router.post("/templates/{name}/{switch}")
async def toggle_template(
    request: Request,
    user: AdminUser,
    name: TemplateNamePath,
    switch: Annotated[str, Path(pattern="^(enable|disable)$")],
) -> HTMLResponse:
    """Enable or disable a template for new workers."""
    enabled = switch == "enable"

    async def attempt(tx: Transaction) -> WorkerTemplate:
        return await set_template_enabled(tx, name, enabled=enabled)

    await get_services(request).context.unit_of_work.run(user.caller.actor, attempt)
    return render_toast(f"Template {name} {'enabled' if enabled else 'disabled'}", triggers=DONE_EVENT)


async def _save_if_unchanged(request: Request, user: WebUser, template: WorkerTemplate, expected: str) -> bool:
    async def attempt(tx: Transaction) -> bool:
        stored = await tx.store.get(TEMPLATES, template.name)
        current = "" if stored is None else fingerprint(stored.body)
        if current != expected:
            raise EditConflictError(_conflict_text(template.name, editing=bool(expected)))
        return await put_template(tx, template)

    return await get_services(request).context.unit_of_work.run(user.caller.actor, attempt)


def _conflict_text(name: str, *, editing: bool) -> str:
    if editing:
        return "Another user changed this template meanwhile. Close this dialog, open it again, then make your changes."
    return f"template {name} already exists; use another name, or edit that template"


def _render_form(user: WebUser, form: FormState, *, old: str, expected: str, status: int = 200) -> HTMLResponse:
    return render_fragment("admin/_template_form.html", status=status, form=form, old=old, mark=expected, user=user)


async def _workers_per_template(store: Store) -> dict[str, int]:
    """How many workers use each template, without TERMINATED ones."""
    not_terminated = Where(none_of={"status": [WorkerStatus.TERMINATED.value]})
    rows = await store.count_by(WORKERS, ["template_name"], not_terminated)
    return {str(values[0]): count for values, count, _ in rows if values[0] is not None}
