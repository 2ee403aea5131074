"""Templates: what workers can be made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.fleet.templates import put_template, read_template, switch_template
from lcm.control_plane.records.kinds import TEMPLATES, WORKERS
from lcm.control_plane.services import parts
from lcm.control_plane.store.port import Where
from lcm.control_plane.web.admin.templates_page import form_of_template, mark_of, template_of
from lcm.control_plane.web.auth import AdminVisitor, Visitor, field_of, form_of, is_fragment
from lcm.control_plane.web.forms import Typed
from lcm.control_plane.web.rendering import fragment, page, toast
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Change
    from lcm.control_plane.store.port import Store
    from lcm.control_plane.web.auth import Looking

router = APIRouter(include_in_schema=False)
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
DONE = "lcm:done"
_MOST = 500
_EMPTY = {"enabled": "on"}


class Overtaken(Exception):
    """Somebody else made or changed the template since the form was shown; the text says so."""


@router.get("/templates")
async def templates(request: Request, who: Visitor) -> HTMLResponse:
    """The list, or only its table for a script that asks again."""
    store = parts(request).plane.store
    stored = (await store.find(TEMPLATES, limit=_MOST)).items
    values: dict[str, Any] = {
        "templates": [WorkerTemplate.model_validate_json(each.body) for each in stored],
        "used": await _used(store),
    }
    if is_fragment(request):
        return fragment("admin/_template_table.html", who=who, **values)
    return await page(request, who, "admin/templates.html", here="templates", title="Templates", **values)


@router.get("/templates/new")
async def new(request: Request, who: AdminVisitor) -> HTMLResponse:
    """An empty form, or one that begins as a copy."""
    like = request.query_params.get("like", "")
    values = dict(_EMPTY)
    if like:
        values = {**form_of_template(await read_template(parts(request).plane.store, like)), "name": ""}
    return _form(who, Typed(values), old="", mark="")


@router.get("/templates/edit/{name}")
async def edit(request: Request, who: AdminVisitor, name: Name) -> HTMLResponse:
    """The form of a template as it is now."""
    store = parts(request).plane.store
    template = await read_template(store, name)
    stored = await store.get(TEMPLATES, name)
    mark = "" if stored is None else mark_of(stored.body)
    return _form(who, Typed(form_of_template(template)), old=name, mark=mark)


@router.post("/templates/save")
async def save(request: Request, who: AdminVisitor) -> HTMLResponse:
    """Make or change a template. What is wrong is said at its field, and nothing that was typed is lost."""
    fields = await form_of(request)
    form = {name: field_of(fields, name) for name in fields}
    old, mark = form.get("old", ""), form.get("mark", "")
    if old:
        form["name"] = old  # workers name their template: it cannot be renamed
    template, typed = template_of(form)
    if template is None:
        return _form(who, typed, old=old, mark=mark, status=422)
    try:
        made = await _put(request, who, template, mark)
    except Overtaken as error:
        where = "form" if old else "name"
        return _form(who, Typed(typed.values, {where: str(error)}), old=old, mark=mark, status=409)
    words = f"Template {template.name} was {'made' if made else 'changed'}"
    answer = toast(words, triggers=DONE)
    answer.headers["HX-Reswap"] = "none"
    return answer


@router.post("/templates/{name}/{switch}")
async def switch(
    request: Request, who: AdminVisitor, name: Name, switch: Annotated[str, Path(pattern="^(enable|disable)$")]
) -> HTMLResponse:
    """Let workers be made from it, or no more."""
    enabled = switch == "enable"

    async def attempt(change: Change) -> WorkerTemplate:
        return await switch_template(change, name, enabled=enabled)

    await parts(request).plane.records.change(who.caller.actor, attempt)
    words = "Workers can be made from" if enabled else "No more workers can be made from"
    return toast(f"{words} {name}", triggers=DONE)


async def _put(request: Request, who: Looking, template: WorkerTemplate, mark: str) -> bool:
    async def attempt(change: Change) -> bool:
        stored = await change.store.get(TEMPLATES, template.name)
        now = "" if stored is None else mark_of(stored.body)
        if now != mark:
            raise Overtaken(_overtaken(template.name, known=bool(mark)))
        return await put_template(change, template)

    return await parts(request).plane.records.change(who.caller.actor, attempt)


def _overtaken(name: str, *, known: bool) -> str:
    if known:
        return "Somebody else has changed this template meanwhile. Close this, look at it again, then change it."
    return f"there is a template {name} already; choose another name, or edit that one"


def _form(who: Looking, typed: Typed, *, old: str, mark: str, status: int = 200) -> HTMLResponse:
    return fragment("admin/_template_form.html", status=status, typed=typed, old=old, mark=mark, who=who)


async def _used(store: Store) -> dict[str, int]:
    """How many workers that are not TERMINATED were made from each."""
    living = Where(none_of={"status": [WorkerStatus.TERMINATED.value]})
    rows = await store.count_by(WORKERS, ["template_name"], living)
    return {str(values[0]): count for values, count, _ in rows if values[0] is not None}
