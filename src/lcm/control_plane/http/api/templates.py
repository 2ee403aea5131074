"""Routes for worker templates."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.template_preview import preview_template_change
from lcm.control_plane.fleet.templates import put_template, read_template, set_template_enabled
from lcm.control_plane.http.deps import Admin, Viewer
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import Cursor, Limit, TemplatePage, raw_page
from lcm.control_plane.records.kinds import TEMPLATES
from lcm.control_plane.records.unit_of_work import Transaction
from lcm.control_plane.services import get_services
from lcm.model.change_preview import ChangePreview, PreviewTemplateRequest, TemplateAction
from lcm.model.problems import ProblemCode
from lcm.model.worker.template import WorkerTemplate

router = APIRouter(prefix="/api/worker-templates", tags=["templates"], responses=error_responses(401, 403, 422, 429))

TemplateNamePath = Annotated[
    str,
    Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$", description="The template's name, such as small."),
]


@router.get("", response_model=TemplatePage)
async def list_templates(request: Request, caller: Viewer, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """List worker templates."""
    return raw_page(await get_services(request).context.store.find(TEMPLATES, after=cursor, limit=limit))


@router.get("/{name}", responses=error_responses(404))
async def get_template(request: Request, caller: Viewer, name: TemplateNamePath) -> WorkerTemplate:
    """Get one template."""
    return await read_template(get_services(request).context.store, name)


@router.post("/{name}/preview", responses=error_responses(404))
async def preview_template(
    request: Request, caller: Viewer, name: TemplateNamePath, body: PreviewTemplateRequest
) -> ChangePreview:
    """Preview a change to a template: what it means for new, waiting and existing workers. Nothing is changed."""
    _check_name(name, body.template if body.action is TemplateAction.APPLY else None)
    return await preview_template_change(get_services(request).context, name, body.action, body.template)


@router.put("/{name}", responses=error_responses(409))
async def replace_template(
    request: Request, caller: Admin, name: TemplateNamePath, body: WorkerTemplate
) -> WorkerTemplate:
    """Create or replace a template. Workers that were launched stay as they are."""
    _check_name(name, body)
    await get_services(request).context.unit_of_work.run(caller.actor, lambda tx: put_template(tx, body))
    return body


def _check_name(name: str, template: WorkerTemplate | None) -> None:
    if template is not None and template.name != name:
        raise ProblemError(ProblemCode.INVALID, f"name: {template.name} is not the name in the URL, {name}")


async def _set_enabled(request: Request, caller: Admin, name: str, *, enabled: bool) -> WorkerTemplate:
    async def attempt(tx: Transaction) -> WorkerTemplate:
        return await set_template_enabled(tx, name, enabled=enabled)

    return await get_services(request).context.unit_of_work.run(caller.actor, attempt)


@router.post("/{name}/enable", responses=error_responses(404))
async def enable_template(request: Request, caller: Admin, name: TemplateNamePath) -> WorkerTemplate:
    """Enable a template: workers can be created from it."""
    return await _set_enabled(request, caller, name, enabled=True)


@router.post("/{name}/disable", responses=error_responses(404))
async def disable_template(request: Request, caller: Admin, name: TemplateNamePath) -> WorkerTemplate:
    """Disable a template: no more workers can be created from it."""
    return await _set_enabled(request, caller, name, enabled=False)
