"""Dialogs about one worker: make one, change what people may change of it, and its licence."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.records.kinds import TEMPLATES
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.web.auth import OperatorUser, form_field, read_form
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.control_plane.web.workers.forms import (
    InvalidFormError,
    WorkerForm,
    create_request,
    form_fingerprint,
    license_request,
    patch_request,
    refused_fields,
)
from lcm.model.problems import HTTP_STATUS_BY_CODE, ProblemCode
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import UpdateWorkerRequest
from lcm.model.worker.template import WorkerTemplate

router = APIRouter(include_in_schema=False)

OperationPath = Annotated[str, Path(pattern="^(register|deregister)$")]
_MAX_TEMPLATES = 500
_FORM_FIELDS = (
    "name",
    "template_name",
    "aws_region",
    "desired_status",
    "tags",
    "lost_instance_policy",
    "license_token",
    "cml_username",
    "cml_password",
)
_MAX_ATTEMPTS = 5


@router.get("/workers/new")
async def new_worker_form(request: Request, who: OperatorUser) -> HTMLResponse:
    """The form for a new worker."""
    return await _render_create_form(
        get_services(request), WorkerForm(template_name=request.query_params.get("template", ""))
    )


@router.get("/workers/new/cost")
async def template_cost(request: Request, who: OperatorUser) -> HTMLResponse:
    """What the chosen template costs and offers."""
    offered = await _enabled_templates(get_services(request))
    chosen = _selected_template(offered, request.query_params.get("template_name", ""))
    desired = request.query_params.get("desired_status", "")
    return render_fragment("workers/_template_cost.html", chosen=chosen, stopped=desired == "STOPPED")


@router.post("/workers/new")
async def create_worker(request: Request, who: OperatorUser) -> HTMLResponse:
    """Make it; what is wrong is told at its field, and nothing that was typed is lost."""
    typed = WorkerForm.of(await read_form(request))
    try:
        body = await get_services(request).workers.create(who.caller, create_request(typed))
    except InvalidFormError as unfit:
        return await _render_create_form(get_services(request), typed, unfit.problems, status=422)
    except ProblemError as refusal:
        problems = refused_fields(refusal, _FORM_FIELDS)
        if "" in problems and refusal.code in (ProblemCode.NOT_FOUND, ProblemCode.NOT_POSSIBLE_NOW):
            problems = {"template_name": refusal.detail}
        return await _render_create_form(
            get_services(request), typed, problems, status=HTTP_STATUS_BY_CODE.get(refusal.code, 409)
        )
    worker = Worker.model_validate_json(body)
    return render_fragment("workers/_toast_created.html", headers={"HX-Trigger": DONE_EVENT}, worker=worker)


@router.get("/workers/{worker_id}/edit")
async def edit_worker_form(request: Request, who: OperatorUser, worker_id: str) -> HTMLResponse:
    """The form with what there is."""
    worker = await _read_worker(get_services(request), worker_id)
    return _render_edit_form(worker, WorkerForm.from_worker(worker))


@router.post("/workers/{worker_id}/edit")
async def update_worker(request: Request, who: OperatorUser, worker_id: str) -> HTMLResponse:
    """Change what differs, unless somebody changed the same meanwhile."""
    form = await read_form(request)
    typed, seen = WorkerForm.of(form), form_field(form, "seen")
    for _ in range(_MAX_ATTEMPTS):
        worker = await _read_worker(get_services(request), worker_id)
        if form_fingerprint(worker) != seen:
            return _render_edit_form(worker, typed, conflict=True, status=412)
        try:
            patch = patch_request(typed, worker)
            if not patch.model_fields_set:
                return render_toast(f"{worker.name}: nothing was to be changed", triggers=DONE_EVENT)
            return await _apply_patch(request, who, worker, patch)
        except PreconditionFailedError:
            continue  # something else of it moved between the two: what the form shows is compared again
        except InvalidFormError as unfit:
            return _render_edit_form(worker, typed, unfit.problems, status=422)
        except ProblemError as refusal:
            return _render_edit_form(
                worker, typed, refused_fields(refusal, _FORM_FIELDS), status=HTTP_STATUS_BY_CODE.get(refusal.code, 409)
            )
    raise ProblemError(ProblemCode.VERSION_CONFLICT, "the worker changes all the time; try again in a moment")


@router.get("/workers/{worker_id}/license/{operation}")
async def license_dialog(request: Request, who: OperatorUser, worker_id: str, operation: OperationPath) -> HTMLResponse:
    """What would be done with its licence."""
    return _render_license_form(await _read_worker(get_services(request), worker_id), operation)


@router.post("/workers/{worker_id}/license/{operation}")
async def request_license_operation(
    request: Request, who: OperatorUser, worker_id: str, operation: OperationPath
) -> HTMLResponse:
    """Ask for it. The token goes where secrets are kept and never comes back to a page."""
    form = await read_form(request)
    worker = await _read_worker(get_services(request), worker_id)
    try:
        await get_services(request).workers.license(who.caller, worker_id, license_request(operation, form))
    except InvalidFormError as unfit:
        return _render_license_form(worker, operation, unfit.problems, reason=form_field(form, "reason"), status=422)
    what = "registered" if operation == "register" else "given back"
    return render_toast(f"{worker.name}: its licence is to be {what}", triggers=DONE_EVENT)


async def _apply_patch(request: Request, who: OperatorUser, worker: Worker, patch: UpdateWorkerRequest) -> HTMLResponse:
    body = await get_services(request).workers.patch(who.caller, worker.id, patch, worker.version)
    return render_toast(f"{Worker.model_validate_json(body).name}: changed", triggers=DONE_EVENT)


async def _render_create_form(
    all_parts: Services, typed: WorkerForm, problems: dict[str, str] | None = None, status: int = 200
) -> HTMLResponse:
    offered = await _enabled_templates(all_parts)
    return render_fragment(
        "workers/_create.html",
        status=status,
        typed=typed,
        problems=problems or {},
        templates=offered,
        chosen=_selected_template(offered, typed.template_name),
        stopped=typed.desired_status == "STOPPED",
        regions=all_parts.plane.regions,
    )


def _render_edit_form(
    worker: Worker,
    typed: WorkerForm,
    problems: dict[str, str] | None = None,
    *,
    conflict: bool = False,
    status: int = 200,
) -> HTMLResponse:
    return render_fragment(
        "workers/_edit.html",
        status=status,
        worker=worker,
        typed=typed,
        problems=problems or {},
        conflict=conflict,
        seen=form_fingerprint(worker),
    )


def _render_license_form(
    worker: Worker,
    operation: str,
    problems: dict[str, str] | None = None,
    *,
    reason: str = "",
    status: int = 200,
) -> HTMLResponse:
    return render_fragment(
        "workers/_license.html",
        status=status,
        worker=worker,
        operation=operation,
        problems=problems or {},
        reason=reason,
    )


async def _read_worker(all_parts: Services, worker_id: str) -> Worker:
    return Worker.model_validate_json((await all_parts.workers.get(worker_id)).body)


async def _enabled_templates(all_parts: Services) -> list[WorkerTemplate]:
    """Those that workers can be made from, the cheapest first."""
    stored = (await all_parts.plane.store.find(TEMPLATES, limit=_MAX_TEMPLATES)).items
    found = [WorkerTemplate.model_validate_json(each.body) for each in stored]
    return sorted((each for each in found if each.enabled), key=lambda each: (each.cost_per_hour_usd, each.name))


def _selected_template(offered: list[WorkerTemplate], name: str) -> WorkerTemplate | None:
    return next((each for each in offered if each.name == name), offered[0] if offered else None)
