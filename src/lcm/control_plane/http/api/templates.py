"""Templates."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.templates import put_template, read_template, set_template_enabled
from lcm.control_plane.http.api.workers import Cursor, Limit
from lcm.control_plane.http.deps import Admin, Viewer
from lcm.control_plane.http.pagination import TemplatePage, error_responses, raw_page
from lcm.control_plane.records.kinds import TEMPLATES
from lcm.control_plane.records.unit_of_work import Transaction
from lcm.control_plane.services import get_services
from lcm.model.problems import ProblemCode
from lcm.model.worker.template import WorkerTemplate

router = APIRouter(prefix="/api/worker-templates", tags=["templates"], responses=error_responses(401, 403, 422, 429))

TemplateNamePath = Annotated[
    str,
    Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$", description="The template's name, such as small"),
]


@router.get("", response_model=TemplatePage)
async def list_templates(request: Request, caller: Viewer, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """What workers can be made from."""
    return raw_page(await get_services(request).plane.store.find(TEMPLATES, after=cursor, limit=limit))


@router.get("/{name}", responses=error_responses(404))
async def get_template(request: Request, caller: Viewer, name: TemplateNamePath) -> WorkerTemplate:
    """One template."""
    return await read_template(get_services(request).plane.store, name)


@router.put("/{name}", responses=error_responses(409))
async def replace_template(
    request: Request, caller: Admin, name: TemplateNamePath, body: WorkerTemplate
) -> WorkerTemplate:
    """Make or change a template. Workers that were made from it stay as they are."""
    if body.name != name:
        raise ProblemError(ProblemCode.INVALID, f"name: {body.name} is not the name in the address, {name}")
    await get_services(request).plane.records.change(caller.actor, lambda change: put_template(change, body))
    return body


async def _set_enabled(request: Request, caller: Admin, name: str, *, enabled: bool) -> WorkerTemplate:
    async def attempt(change: Transaction) -> WorkerTemplate:
        return await set_template_enabled(change, name, enabled=enabled)

    return await get_services(request).plane.records.change(caller.actor, attempt)


@router.post("/{name}/enable", responses=error_responses(404))
async def enable_template(request: Request, caller: Admin, name: TemplateNamePath) -> WorkerTemplate:
    """Let workers be made from it."""
    return await _set_enabled(request, caller, name, enabled=True)


@router.post("/{name}/disable", responses=error_responses(404))
async def disable_template(request: Request, caller: Admin, name: TemplateNamePath) -> WorkerTemplate:
    """Let no more workers be made from it."""
    return await _set_enabled(request, caller, name, enabled=False)
