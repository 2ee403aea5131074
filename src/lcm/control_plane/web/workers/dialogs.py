"""Dialogs that create a worker, edit it, adopt it, and register or deregister its license."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.records.idempotency import find_response
from lcm.control_plane.records.kinds import TEMPLATES
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.web.auth import OperatorUser, WebUser
from lcm.control_plane.web.forms import WHOLE_FORM, form_field, form_key, problem_by_field, read_form
from lcm.control_plane.web.lablets.list_page import visible_teams
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.control_plane.web.workers.forms import (
    AdoptForm,
    InvalidFormError,
    WorkerForm,
    adopt_request,
    create_request,
    form_fingerprint,
    license_request,
    patch_request,
)
from lcm.model.change_preview import ChangePreview
from lcm.model.problems import HTTP_STATUS_BY_CODE, ProblemCode
from lcm.model.worker.record import Worker
from lcm.model.worker.status import LicenseOperation
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
    "team",
    "license_token",
    "cml_username",
    "cml_password",
)
_MAX_ATTEMPTS = 5
_ANOTHER_TOKEN = {"token": ["another"]}  # for the preview: any token that is not the stored one


@router.get("/workers/new")
async def new_worker_form(request: Request, user: OperatorUser) -> HTMLResponse:
    """The empty form."""
    return await _render_create_form(
        get_services(request), WorkerForm(template_name=request.query_params.get("template", ""))
    )


@router.get("/workers/new/cost")
async def template_cost(request: Request, user: OperatorUser) -> HTMLResponse:
    """The cost and capacity of the selected template."""
    templates = await _enabled_templates(get_services(request))
    selected = _selected_template(templates, request.query_params.get("template_name", ""))
    desired = request.query_params.get("desired_status", "")
    return render_fragment("workers/_template_cost.html", selected=selected, stopped=desired == "STOPPED")


@router.post("/workers/new")
async def create_worker(request: Request, user: OperatorUser) -> HTMLResponse:
    """Create the worker. An invalid form is shown again, with its problems and everything that was typed."""
    fields = await read_form(request)
    form, key = WorkerForm.from_form(fields), form_key(request, user.caller, fields)
    try:
        body = await get_services(request).workers.create(user.caller, create_request(form), key)
    except InvalidFormError as error:
        return await _render_create_form(get_services(request), form, error.problems, status=422)
    except ProblemError as error:
        problems = problem_by_field(error, _FORM_FIELDS)
        if WHOLE_FORM in problems and error.code in (ProblemCode.NOT_FOUND, ProblemCode.NOT_POSSIBLE_NOW):
            problems = {"template_name": error.detail}
        return await _render_create_form(
            get_services(request), form, problems, status=HTTP_STATUS_BY_CODE.get(error.code, 409)
        )
    worker = Worker.model_validate_json(body)
    return render_fragment("workers/_toast_created.html", headers={"HX-Trigger": DONE_EVENT}, worker=worker)


@router.get("/workers/{worker_id}/edit")
async def edit_worker_form(request: Request, user: OperatorUser, worker_id: str) -> HTMLResponse:
    """The form with the current values."""
    worker = await _read_worker(get_services(request), worker_id)
    return await _render_edit_form(get_services(request), user, worker, WorkerForm.from_worker(worker))


@router.post("/workers/{worker_id}/edit")
async def update_worker(request: Request, user: OperatorUser, worker_id: str) -> HTMLResponse:
    """Save the changed fields, unless another user changed the same worker meanwhile."""
    fields, services = await read_form(request), get_services(request)
    form, fingerprint = WorkerForm.from_form(fields), form_field(fields, "seen")
    key = form_key(request, user.caller, fields)
    saved = await find_response(services.context.store, key)
    if saved is not None:
        return _render_saved(saved)
    for _ in range(_MAX_ATTEMPTS):
        worker = await _read_worker(services, worker_id)
        if form_fingerprint(worker) != fingerprint:
            return await _render_edit_form(services, user, worker, form, conflict=True, status=412)
        try:
            patch = patch_request(form, worker)
            if not patch.model_fields_set:
                return render_toast(f"{worker.name}: no changes", triggers=DONE_EVENT)
            return _render_saved(await services.workers.patch(user.caller, worker.id, patch, worker.version, key))
        except PreconditionFailedError:
            continue  # the worker changed between read and write: compare with the form again
        except InvalidFormError as error:
            return await _render_edit_form(services, user, worker, form, error.problems, status=422)
        except ProblemError as error:
            problems = problem_by_field(error, _FORM_FIELDS)
            if error.code is ProblemCode.NOT_FOUND and form.team:
                problems = {"team": error.detail}
            status = HTTP_STATUS_BY_CODE.get(error.code, 409)
            return await _render_edit_form(services, user, worker, form, problems, status=status)
    raise ProblemError(ProblemCode.VERSION_CONFLICT, "the worker changes too often; try again in a moment")


@router.get("/workers/{worker_id}/license/{operation}")
async def license_dialog(
    request: Request, user: OperatorUser, worker_id: str, operation: OperationPath
) -> HTMLResponse:
    """What the license operation would do."""
    services = get_services(request)
    return await _render_license_form(services, await _read_worker(services, worker_id), operation)


@router.post("/workers/{worker_id}/license/{operation}")
async def request_license_operation(
    request: Request, user: OperatorUser, worker_id: str, operation: OperationPath
) -> HTMLResponse:
    """Request the operation. The token is stored with the secrets and never sent back to a page."""
    fields, services = await read_form(request), get_services(request)
    worker = await _read_worker(services, worker_id)
    try:
        await services.workers.license(
            user.caller, worker_id, license_request(operation, fields), key=form_key(request, user.caller, fields)
        )
    except InvalidFormError as error:
        reason = form_field(fields, "reason")
        return await _render_license_form(services, worker, operation, error.problems, reason=reason, status=422)
    what = "registration" if operation == "register" else "deregistration"
    return render_toast(f"{worker.name}: license {what} requested", triggers=DONE_EVENT)


@router.get("/workers/{worker_id}/adopt")
async def adopt_dialog(request: Request, user: OperatorUser, worker_id: str) -> HTMLResponse:
    """What adopting an imported worker means, and how it may be used."""
    services = get_services(request)
    worker = await _read_worker(services, worker_id)
    return await _render_adopt_form(services, worker, AdoptForm.of(worker))


@router.get("/workers/{worker_id}/adopt/preview")
async def preview_adoption(request: Request, user: OperatorUser, worker_id: str) -> HTMLResponse:
    """What adopting the worker with the values of the form would do."""
    services = get_services(request)
    worker, form = (
        await _read_worker(services, worker_id),
        AdoptForm.read({name: request.query_params.getlist(name) for name in request.query_params}),
    )
    return render_fragment("workers/_adopt_preview.html", preview=await _preview_adoption(services, worker, form))


@router.post("/workers/{worker_id}/adopt")
async def adopt_worker(request: Request, user: OperatorUser, worker_id: str) -> HTMLResponse:
    """Adopt the worker. The token is stored with the secrets and never sent back to a page."""
    fields = await read_form(request)
    services = get_services(request)
    worker, form = await _read_worker(services, worker_id), AdoptForm.read(fields)
    try:
        body = adopt_request(form, form_field(fields, "license_token"))
        await services.workers.adopt(user.caller, worker_id, body, key=form_key(request, user.caller, fields))
    except InvalidFormError as error:
        return await _render_adopt_form(services, worker, form, error.problems)
    except ProblemError as error:
        if error.code is not ProblemCode.INVALID:
            raise
        return await _render_adopt_form(
            services, worker, form, problem_by_field(error, ("template_name", "license_token"))
        )
    return render_toast(f"{worker.name}: adopted", triggers=DONE_EVENT)


async def _render_adopt_form(
    services: Services, worker: Worker, form: AdoptForm, problems: dict[str, str] | None = None
) -> HTMLResponse:
    return render_fragment(
        "workers/_adopt_dialog.html",
        status=422 if problems else 200,
        preview=await _preview_adoption(services, worker, form),
        worker=worker,
        form=form,
        problems=problems or {},
        templates=await _enabled_templates(services),
    )


async def _preview_adoption(services: Services, worker: Worker, form: AdoptForm) -> ChangePreview | None:
    """What the form would do, without its token; None if it is invalid, which is said at its fields."""
    try:
        return await services.previews.adopt(worker, adopt_request(form, ""))
    except InvalidFormError:
        return None


def _render_saved(body: bytes) -> HTMLResponse:
    return render_toast(f"{Worker.model_validate_json(body).name}: saved", triggers=DONE_EVENT)


async def _render_create_form(
    services: Services, form: WorkerForm, problems: dict[str, str] | None = None, status: int = 200
) -> HTMLResponse:
    templates = await _enabled_templates(services)
    return render_fragment(
        "workers/_create_dialog.html",
        status=status,
        form=form,
        problems=problems or {},
        templates=templates,
        selected=_selected_template(templates, form.template_name),
        stopped=form.desired_status == "STOPPED",
        regions=services.context.regions,
    )


async def _render_edit_form(
    services: Services,
    user: WebUser,
    worker: Worker,
    form: WorkerForm,
    problems: dict[str, str] | None = None,
    *,
    conflict: bool = False,
    status: int = 200,
) -> HTMLResponse:
    return render_fragment(
        "workers/_edit_dialog.html",
        status=status,
        worker=worker,
        form=form,
        problems=problems or {},
        conflict=conflict,
        teams=await visible_teams(services, user),
        seen=form_fingerprint(worker),
    )


async def _render_license_form(
    services: Services,
    worker: Worker,
    operation: str,
    problems: dict[str, str] | None = None,
    *,
    reason: str = "",
    status: int = 200,
) -> HTMLResponse:
    """What happens without a token in the form and, where one can be entered, with another one than the stored."""
    deregisters = operation == LicenseOperation.DEREGISTER.value
    another = await services.previews.license(worker, license_request(operation, {} if deregisters else _ANOTHER_TOKEN))
    stored = worker.has_license_token and not deregisters
    return render_fragment(
        "workers/_license_dialog.html",
        status=status,
        worker=worker,
        operation=operation,
        preview=await services.previews.license(worker, license_request(operation, {})) if stored else another,
        with_new_token=another,
        problems=problems or {},
        reason=reason,
    )


async def _read_worker(services: Services, worker_id: str) -> Worker:
    return Worker.model_validate_json((await services.workers.get(worker_id)).body)


async def _enabled_templates(services: Services) -> list[WorkerTemplate]:
    """The enabled templates, the cheapest first."""
    stored = (await services.context.store.find(TEMPLATES, limit=_MAX_TEMPLATES)).items
    all_templates = readable_records(stored, WorkerTemplate, "template")
    return sorted(
        (each for each in all_templates if each.enabled), key=lambda each: (each.cost_per_hour_usd, each.name)
    )


def _selected_template(templates: list[WorkerTemplate], name: str) -> WorkerTemplate | None:
    return next((each for each in templates if each.name == name), templates[0] if templates else None)
