"""The Templates page: the list of worker templates, and the form to create or edit one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ValidationError

from lcm.control_plane.fleet.template_preview import preview_template_change
from lcm.control_plane.fleet.templates import put_template, read_template, set_template_enabled
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import TEMPLATES, WORKERS
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Where
from lcm.control_plane.web.auth import AdminUser, CurrentUser, is_fragment
from lcm.control_plane.web.forms import (
    WHOLE_FORM,
    FormState,
    field_problems,
    form_field,
    form_key,
    parse_number,
    read_form,
)
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_page, render_toast
from lcm.model.change_preview import TemplateAction
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.control_plane.web.auth import WebUser


router = APIRouter(include_in_schema=False)
TemplateNamePath = Annotated[str, Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
_MAX_TEMPLATES = 500
_EMPTY_FORM = {"enabled": "on"}


@dataclass(frozen=True, slots=True)
class TemplateField:
    """A field of the form, as the model declares it."""

    name: str
    title: str
    hint: str
    kind: Any
    group: str  # the part of the template that it belongs to; empty: the template itself
    is_derived: bool = False  # whether its default depends on other fields

    @property
    def form(self) -> str:
        """How it is shown: text, number, check, or a choice of yes, no and the default."""
        if self.is_derived:
            return "choice"
        return "check" if self.kind is bool else "number" if self.kind in (int, float) else "text"

    def text(self, template: WorkerTemplate) -> str:
        """What the form shows of a template."""
        value = getattr(getattr(template, self.group) if self.group else template, self.name)
        if isinstance(value, bool):
            return ("yes" if value else "no") if self.is_derived else "on" if value else ""
        return f"{value:.15g}" if isinstance(value, float) else "" if value is None else str(value)

    def value(self, text: str) -> Any:
        """What was typed, for the model to check."""
        if self.form == "check":
            return text == "on"
        if self.form == "choice":
            return {"yes": True, "no": False}.get(text, text)
        if self.form == "number":
            return parse_number(text)
        return text or (None if self.kind is not str else "")


def _model_fields(model: type[BaseModel], group: str = "") -> Iterator[TemplateField]:
    for name, info in model.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _model_fields(kind, name)
        else:
            derived = info.default_factory is not None
            yield TemplateField(name, info.title or name, info.description or "", kind, group, derived)


TEMPLATE_FIELDS = tuple(_model_fields(WorkerTemplate))


def template_form_values(template: WorkerTemplate) -> dict[str, str]:
    """The text of each field of the form."""
    return {field.name: field.text(template) for field in TEMPLATE_FIELDS}


def parse_template_form(submitted: Mapping[str, str]) -> tuple[WorkerTemplate | None, FormState]:
    """The template of a form, or None, and the form with its problems."""
    values = {field.name: submitted.get(field.name, "") for field in TEMPLATE_FIELDS}
    template: dict[str, Any] = {}
    for field in TEMPLATE_FIELDS:
        if field.is_derived and not values[field.name]:
            continue
        part = template.setdefault(field.group, {}) if field.group else template
        part[field.name] = field.value(values[field.name])
    try:
        return WorkerTemplate.model_validate(template), FormState(values)
    except ValidationError as error:
        problems = {name.rpartition(".")[2]: text for name, text in field_problems(error).items()}
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
        "templates": readable_records(stored, WorkerTemplate, "template"),
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
        await _save_if_unchanged(request, user, template, expected, form_key(request, user.caller, fields))
    except EditConflictError as error:
        where = WHOLE_FORM if old else "name"
        return _render_form(user, FormState(form.values, {where: str(error)}), old=old, expected=expected, status=409)
    response = render_toast(f"Template {template.name} {'saved' if expected else 'created'}", triggers=DONE_EVENT)
    response.headers["HX-Reswap"] = "none"
    return response


@router.get("/templates/{name}/confirm-disable")
async def confirm_disable(request: Request, user: AdminUser, name: TemplateNamePath) -> HTMLResponse:
    """What disabling a template would do."""
    preview = await preview_template_change(get_services(request).context, name, TemplateAction.DISABLE)
    return render_fragment(
        "shared/_confirm_switch.html",
        verb="Disable",
        action_url=f"/templates/{name}/disable",
        what=f"template {name}",
        effect=preview.effect,
    )


@router.post("/templates/{name}/{switch}")
async def toggle_template(
    request: Request,
    user: AdminUser,
    name: TemplateNamePath,
    switch: Annotated[str, Path(pattern="^(enable|disable)$")],
) -> HTMLResponse:
    """Enable or disable a template for new workers."""
    enabled, key = switch == "enable", form_key(request, user.caller, await read_form(request))

    async def attempt(tx: Transaction) -> WorkerTemplate:
        return await set_template_enabled(tx, name, enabled=enabled)

    await run_idempotent(get_services(request).context.unit_of_work, user.caller.actor, key, attempt)
    return render_toast(f"Template {name} {'enabled' if enabled else 'disabled'}", triggers=DONE_EVENT)


async def _save_if_unchanged(
    request: Request, user: WebUser, template: WorkerTemplate, expected: str, key: IdempotencyKey | None
) -> None:
    async def attempt(tx: Transaction) -> WorkerTemplate:
        stored = await tx.store.get(TEMPLATES, template.name)
        current = "" if stored is None else fingerprint(stored.body)
        if current != expected:
            raise EditConflictError(_conflict_text(template.name, editing=bool(expected)))
        await put_template(tx, template)
        return template

    await run_idempotent(get_services(request).context.unit_of_work, user.caller.actor, key, attempt)


def _conflict_text(name: str, *, editing: bool) -> str:
    if editing:
        return "Another user changed this template meanwhile. Close this dialog, open it again, then make your changes."
    return f"template {name} already exists; use another name, or edit that template"


def _render_form(user: WebUser, form: FormState, *, old: str, expected: str, status: int = 200) -> HTMLResponse:
    values: dict[str, Any] = {"form": form, "fields": TEMPLATE_FIELDS, "old": old, "mark": expected, "user": user}
    return render_fragment("admin/_template_form.html", status=status, **values)


async def _workers_per_template(store: Store) -> dict[str, int]:
    """How many workers use each template, without TERMINATED ones."""
    not_terminated = Where(none_of={"status": [WorkerStatus.TERMINATED.value]})
    rows = await store.count_by(WORKERS, ["template_name"], not_terminated)
    return {str(values[0]): count for values, count, _ in rows if values[0] is not None}
