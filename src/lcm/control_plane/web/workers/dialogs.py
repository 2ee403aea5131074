"""Dialogs about one worker: make one, change what people may change of it, and its licence."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.errors import PreconditionFailed, Refusal
from lcm.control_plane.records.kinds import TEMPLATES
from lcm.control_plane.services import Parts, parts
from lcm.control_plane.web.auth import OperatorVisitor, field_of, form_of
from lcm.control_plane.web.rendering import DONE, fragment, toast
from lcm.control_plane.web.workers.forms import (
    Typed,
    Unfit,
    create_request,
    license_request,
    patch_request,
    refused,
    seen_of,
)
from lcm.model.problems import STATUS, ProblemCode
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import PatchWorker
from lcm.model.worker.template import WorkerTemplate

router = APIRouter(include_in_schema=False)

Operation = Annotated[str, Path(pattern="^(register|deregister)$")]
_MOST_TEMPLATES = 500
_FIELDS = (
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
_ATTEMPTS = 5


@router.get("/workers/new")
async def new_worker(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """The form for a new worker."""
    return await _new_form(parts(request), Typed(template_name=request.query_params.get("template", "")))


@router.get("/workers/new/cost")
async def new_worker_cost(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """What the chosen template costs and offers."""
    offered = await _templates(parts(request))
    chosen = _chosen(offered, request.query_params.get("template_name", ""))
    desired = request.query_params.get("desired_status", "")
    return fragment("workers/_template_cost.html", chosen=chosen, stopped=desired == "STOPPED")


@router.post("/workers/new")
async def make_worker(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """Make it; what is wrong is told at its field, and nothing that was typed is lost."""
    typed = Typed.of(await form_of(request))
    try:
        body = await parts(request).workers.create(who.caller, create_request(typed))
    except Unfit as unfit:
        return await _new_form(parts(request), typed, unfit.problems, status=422)
    except Refusal as refusal:
        problems = refused(refusal, _FIELDS)
        if "" in problems and refusal.code in (ProblemCode.NOT_FOUND, ProblemCode.NOT_POSSIBLE_NOW):
            problems = {"template_name": refusal.detail}
        return await _new_form(parts(request), typed, problems, status=STATUS.get(refusal.code, 409))
    worker = Worker.model_validate_json(body)
    return fragment("workers/_toast_created.html", headers={"HX-Trigger": DONE}, worker=worker)


@router.get("/workers/{worker_id}/edit")
async def edit_worker(request: Request, who: OperatorVisitor, worker_id: str) -> HTMLResponse:
    """The form with what there is."""
    worker = await _worker(parts(request), worker_id)
    return _edit_form(worker, Typed.from_worker(worker))


@router.post("/workers/{worker_id}/edit")
async def change_worker(request: Request, who: OperatorVisitor, worker_id: str) -> HTMLResponse:
    """Change what differs, unless somebody changed the same meanwhile."""
    form = await form_of(request)
    typed, seen = Typed.of(form), field_of(form, "seen")
    for _ in range(_ATTEMPTS):
        worker = await _worker(parts(request), worker_id)
        if seen_of(worker) != seen:
            return _edit_form(worker, typed, conflict=True, status=412)
        try:
            patch = patch_request(typed, worker)
            if not patch.model_fields_set:
                return toast(f"{worker.name}: nothing was to be changed", triggers=DONE)
            return await _patched(request, who, worker, patch)
        except PreconditionFailed:
            continue  # something else of it moved between the two: what the form shows is compared again
        except Unfit as unfit:
            return _edit_form(worker, typed, unfit.problems, status=422)
        except Refusal as refusal:
            return _edit_form(worker, typed, refused(refusal, _FIELDS), status=STATUS.get(refusal.code, 409))
    raise Refusal(ProblemCode.VERSION_CONFLICT, "the worker changes all the time; try again in a moment")


@router.get("/workers/{worker_id}/license/{operation}")
async def confirm_license(request: Request, who: OperatorVisitor, worker_id: str, operation: Operation) -> HTMLResponse:
    """What would be done with its licence."""
    return _license_form(await _worker(parts(request), worker_id), operation)


@router.post("/workers/{worker_id}/license/{operation}")
async def do_license(request: Request, who: OperatorVisitor, worker_id: str, operation: Operation) -> HTMLResponse:
    """Ask for it. The token goes where secrets are kept and never comes back to a page."""
    form = await form_of(request)
    worker = await _worker(parts(request), worker_id)
    try:
        await parts(request).workers.license(who.caller, worker_id, license_request(operation, form))
    except Unfit as unfit:
        return _license_form(worker, operation, unfit.problems, reason=field_of(form, "reason"), status=422)
    what = "registered" if operation == "register" else "given back"
    return toast(f"{worker.name}: its licence is to be {what}", triggers=DONE)


async def _patched(request: Request, who: OperatorVisitor, worker: Worker, patch: PatchWorker) -> HTMLResponse:
    body = await parts(request).workers.patch(who.caller, worker.id, patch, worker.version)
    return toast(f"{Worker.model_validate_json(body).name}: changed", triggers=DONE)


async def _new_form(
    all_parts: Parts, typed: Typed, problems: dict[str, str] | None = None, status: int = 200
) -> HTMLResponse:
    offered = await _templates(all_parts)
    return fragment(
        "workers/_create.html",
        status=status,
        typed=typed,
        problems=problems or {},
        templates=offered,
        chosen=_chosen(offered, typed.template_name),
        stopped=typed.desired_status == "STOPPED",
        regions=all_parts.plane.regions,
    )


def _edit_form(
    worker: Worker,
    typed: Typed,
    problems: dict[str, str] | None = None,
    *,
    conflict: bool = False,
    status: int = 200,
) -> HTMLResponse:
    return fragment(
        "workers/_edit.html",
        status=status,
        worker=worker,
        typed=typed,
        problems=problems or {},
        conflict=conflict,
        seen=seen_of(worker),
    )


def _license_form(
    worker: Worker,
    operation: str,
    problems: dict[str, str] | None = None,
    *,
    reason: str = "",
    status: int = 200,
) -> HTMLResponse:
    return fragment(
        "workers/_license.html",
        status=status,
        worker=worker,
        operation=operation,
        problems=problems or {},
        reason=reason,
    )


async def _worker(all_parts: Parts, worker_id: str) -> Worker:
    return Worker.model_validate_json((await all_parts.workers.get(worker_id)).body)


async def _templates(all_parts: Parts) -> list[WorkerTemplate]:
    """Those that workers can be made from, the cheapest first."""
    stored = (await all_parts.plane.store.find(TEMPLATES, limit=_MOST_TEMPLATES)).items
    found = [WorkerTemplate.model_validate_json(each.body) for each in stored]
    return sorted((each for each in found if each.enabled), key=lambda each: (each.cost_per_hour_usd, each.name))


def _chosen(offered: list[WorkerTemplate], name: str) -> WorkerTemplate | None:
    return next((each for each in offered if each.name == name), offered[0] if offered else None)
