"""Commands for workers and for the fleet: a dialog shows what would happen, then the user confirms it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.idempotency import IdempotencyKey
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.web.auth import AdminUser, OperatorUser
from lcm.control_plane.web.bulk_actions import apply_to_each, render_bulk_confirmation, selected_documents
from lcm.control_plane.web.forms import form_field, form_key, form_reason, form_version, read_form, require_typed
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.control_plane.web.workers.list_page import WorkerListQuery
from lcm.control_plane.workers.action_preview import (
    DESTRUCTIVE_ACTIONS,
    WORKER_ACTIONS,
    leak_license,
    preview_action,
    total_losses,
)
from lcm.control_plane.workers.metrics import read_latest_sample
from lcm.core import clock
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import CML_STATUSES

router = APIRouter(include_in_schema=False)

ActionPath = Annotated[str, Path(pattern="^(" + "|".join(WORKER_ACTIONS) + ")$")]
_MAX_PLANNED_SHOWN = 20
_MAX_LABS_READ = 500
_DURATIONS = {"": None, "1h": timedelta(hours=1), "8h": timedelta(hours=8), "24h": timedelta(hours=24)}


@router.get("/workers/{worker_id}/confirm/{action}")
async def confirm_action(request: Request, user: OperatorUser, worker_id: str, action: ActionPath) -> HTMLResponse:
    """What a command would do to one worker."""
    worker = Worker.model_validate_json((await get_services(request).workers.get(worker_id)).body)
    preview = await get_services(request).previews.action(worker, action)
    return render_fragment(
        "shared/_confirm.html",
        action_url=f"/workers/{worker.id}/do/{action}",
        record=worker,
        preview=preview,
        name=WORKER_ACTIONS[action],
    )


@router.post("/workers/{worker_id}/do/{action}")
async def perform_action(request: Request, user: OperatorUser, worker_id: str, action: ActionPath) -> HTMLResponse:
    """Run the command, unless the worker changed since the dialog was opened."""
    form = await read_form(request)
    services = get_services(request)
    if action == "terminate":
        worker = Worker.model_validate_json((await services.workers.get(worker_id)).body)
        require_typed(form, worker.name, "name of the worker")
    key = form_key(request, user.caller, form)
    changed = await _run_command(services, user.caller, worker_id, action, form, form_version(form), key)
    return render_toast(f"{changed.name}: {_result_text(action)}", triggers=DONE_EVENT)


@router.get("/fleet/confirm")
async def confirm_bulk_action(request: Request, user: OperatorUser) -> HTMLResponse:
    """What a command would do to several workers, and which it skips."""
    action = request.query_params.get("action", "")
    if action not in WORKER_ACTIONS:
        raise ProblemError(ProblemCode.INVALID, "action: select an action")
    now, store = clock.now(), get_services(request).context.store
    fleet_held = await get_services(request).previews.fleet_held(now)
    selected = await selected_documents(request, store, WORKERS, WorkerListQuery, "worker")
    workers = readable_records(selected, Worker, "worker")
    previews = [(worker, preview_action(worker, action, now, fleet_held=fleet_held)) for worker in workers]
    changing = [worker for worker, preview in previews if preview.changes]
    return render_bulk_confirmation(
        previews,
        action_url=f"/fleet/do/{action}",
        name=WORKER_ACTIONS[action],
        noun="worker",
        lost=await _total_losses(get_services(request), changing, action),
        cost_changes=[preview.cost_change_usd for _, preview in previews],
        licensed=sum(preview.can_leak_license for _, preview in previews),
    )


@router.post("/fleet/do/{action}")
async def perform_bulk_action(request: Request, user: OperatorUser, action: ActionPath) -> HTMLResponse:
    """Run the command for each worker."""
    form = await read_form(request)
    if action == "hold":
        hold_request(form)  # a missing reason is reported once, and no worker is held

    async def change(worker_id: str, version: int | None, key: IdempotencyKey | None) -> None:
        await _run_command(get_services(request), user.caller, worker_id, action, form, version, key)

    return await apply_to_each(form, form_key(request, user.caller, form), _result_text(action), change)


@router.get("/fleet/confirm-hold")
async def confirm_fleet_hold(request: Request, user: OperatorUser) -> HTMLResponse:
    """What a hold of the fleet means."""
    return render_fragment("fleet/_confirm_hold.html", preview=await get_services(request).fleet_previews.hold())


@router.post("/fleet/do-hold")
async def hold_fleet(request: Request, user: OperatorUser) -> HTMLResponse:
    """Stop all changes to all workers."""
    form = await read_form(request)
    await get_services(request).fleet.hold(user.caller, hold_request(form), form_key(request, user.caller, form))
    return render_toast("Fleet on hold", triggers=DONE_EVENT)


@router.get("/fleet/confirm-release")
async def confirm_fleet_release(request: Request, user: OperatorUser) -> HTMLResponse:
    """What happens when the fleet is released."""
    services = get_services(request)
    plan, held = await services.plan.page(None, 1), await services.plan.held(_MAX_PLANNED_SHOWN)
    return render_fragment("fleet/_confirm_release.html", plan=plan, held=held, shown=_MAX_PLANNED_SHOWN, user=user)


@router.post("/fleet/do-release")
async def release_fleet(request: Request, user: OperatorUser) -> HTMLResponse:
    """Resume changes."""
    form = await read_form(request)
    await get_services(request).fleet.release(user.caller, form_key(request, user.caller, form))
    return render_toast("Fleet released", triggers=DONE_EVENT)


@router.get("/fleet/confirm-breaker")
async def confirm_breaker_reset(request: Request, user: AdminUser) -> HTMLResponse:
    """What closing the breaker of a region means."""
    region = request.query_params.get("region", "")
    preview = await get_services(request).fleet_previews.breaker_reset(region)
    return render_fragment("fleet/_confirm_breaker.html", preview=preview, region=region)


@router.post("/fleet/do-breaker")
async def reset_breaker(request: Request, user: AdminUser) -> HTMLResponse:
    """Close the breaker of a region."""
    form = await read_form(request)
    region = form_field(form, "region")
    await get_services(request).fleet.reset_breakers(user.caller, region or None, form_key(request, user.caller, form))
    return render_toast(f"Breaker in {region} closed", triggers=DONE_EVENT)


def _end_in_form(form: dict[str, list[str]]) -> datetime | None:
    """When what a form requests ends; None if it has no end."""
    duration = _DURATIONS.get(form_field(form, "lasting"))
    return None if duration is None else clock.now() + duration


def hold_request(form: dict[str, list[str]]) -> HoldRequest:
    """The hold request of a form."""
    try:
        return HoldRequest(reason=form_field(form, "reason"), until=_end_in_form(form))
    except ValidationError:
        raise ProblemError(ProblemCode.INVALID, "reason: enter 1 to 500 characters; other users will read it") from None


async def _run_command(
    services: Services,
    caller: Caller,
    worker_id: str,
    action: str,
    form: dict[str, list[str]],
    version: int | None,
    key: IdempotencyKey | None,
) -> Worker:
    workers = services.workers
    if action == "hold":
        body = await workers.hold(caller, worker_id, hold_request(form), version, key)
    elif action == "leak-license":
        worker = Worker.model_validate_json((await workers.get(worker_id)).body)
        leak_license(worker, clock.now())  # raises unless its termination was confirmed before
        body = await workers.command(
            caller, worker_id, "terminate", reason=form_reason(form), release_license=False, if_match=version, key=key
        )
    else:
        reason = form_reason(form)
        release = not form_field(form, "leak_license")
        until = _end_in_form(form)
        body = await workers.command(
            caller, worker_id, action, reason=reason, release_license=release, until=until, if_match=version, key=key
        )
    return Worker.model_validate_json(body)


async def _total_losses(services: Services, workers: Sequence[Worker], action: str) -> str:
    if action not in DESTRUCTIVE_ACTIONS:
        return ""
    on_cml = [worker for worker in workers if worker.status in CML_STATUSES]
    samples = {
        worker.id: await read_latest_sample(services.context.store, worker.id) for worker in on_cml[:_MAX_LABS_READ]
    }
    return total_losses(workers, samples, action)


def _result_text(action: str) -> str:
    return {
        "start": "start requested",
        "stop": "stop requested",
        "drain": "drain requested",
        "cancel-drain": "drain cancelled",
        "retry": "retry requested",
        "trust": "certificate trusted",
        "hold": "on hold",
        "release": "released",
        "terminate": "termination requested",
        "leak-license": "license given up",
    }[action]
