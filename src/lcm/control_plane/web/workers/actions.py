"""Changes that people ask for: what each would do is shown first, then it is done."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.errors import Refusal
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.services import Parts, parts
from lcm.control_plane.web.auth import AdminVisitor, OperatorVisitor, field_of, form_of, version_of
from lcm.control_plane.web.bulk_actions import change_each, chosen, confirm_several
from lcm.control_plane.web.rendering import DONE, fragment, toast
from lcm.control_plane.web.workers.action_preview import ACTIONS, foresee
from lcm.control_plane.workers.metrics import SERIES
from lcm.core import clock
from lcm.model.problems import ProblemCode
from lcm.model.worker.cost import RECENT
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import HoldRequest

router = APIRouter(include_in_schema=False)

Action = Annotated[str, Path(pattern="^(" + "|".join(ACTIONS) + ")$")]
_PLANNED = 20
_DURATIONS = {"": None, "1h": timedelta(hours=1), "8h": timedelta(hours=8), "24h": timedelta(hours=24)}


@router.get("/workers/{worker_id}/confirm/{action}")
async def confirm_one(request: Request, who: OperatorVisitor, worker_id: str, action: Action) -> HTMLResponse:
    """What a command would do to one worker."""
    worker = Worker.model_validate_json((await parts(request).workers.get(worker_id)).body)
    found = foresee(worker, action, clock.now(), await _last_sample(parts(request), worker_id))
    return fragment(
        "shared/_confirm.html",
        place=f"/workers/{worker.id}/do/{action}",
        record=worker,
        found=found,
        name=ACTIONS[action],
    )


@router.post("/workers/{worker_id}/do/{action}")
async def do_one(request: Request, who: OperatorVisitor, worker_id: str, action: Action) -> HTMLResponse:
    """Do it, unless the worker changed since it was looked at."""
    form = await form_of(request)
    changed = await _command(parts(request), who.caller, worker_id, action, form, version_of(form))
    return toast(f"{changed.name}: {_said(action)}", triggers=DONE)


@router.get("/fleet/confirm")
async def confirm_many(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """What a command would do to several workers, and which it leaves alone."""
    action = request.query_params.get("action", "")
    if action not in ACTIONS:
        raise Refusal(ProblemCode.INVALID, "action: choose what to do")
    ids = chosen(request, "worker")
    now = clock.now()
    stored = await parts(request).plane.store.get_many(WORKERS, ids)
    workers = [Worker.model_validate_json(stored[each].body) for each in ids if each in stored]
    foreseen = [(worker, foresee(worker, action, now)) for worker in workers]
    return confirm_several(
        foreseen,
        place=f"/fleet/do/{action}",
        name=ACTIONS[action],
        noun="worker",
        price=sum(worker.cost_per_hour_usd or 0 for worker, found in foreseen if "save" in found.cost),
        added=sum(worker.cost_per_hour_usd or 0 for worker, found in foreseen if "will cost" in found.cost),
    )


@router.post("/fleet/do/{action}")
async def do_many(request: Request, who: OperatorVisitor, action: Action) -> HTMLResponse:
    """Do it to each."""
    form = await form_of(request)
    if action == "hold":
        hold_request(form)  # a reason that is missing is told once, and nothing is held

    async def change(worker_id: str, version: int | None) -> None:
        await _command(parts(request), who.caller, worker_id, action, form, version)

    return await change_each(form, _said(action), change)


@router.get("/fleet/confirm-hold")
async def confirm_hold(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """What holding everything means."""
    return fragment("fleet/_confirm_hold.html", summary=await parts(request).fleet.summary(), who=who)


@router.post("/fleet/do-hold")
async def do_hold(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """Stop all changes of all workers."""
    await parts(request).fleet.hold(who.caller, hold_request(await form_of(request)))
    return toast("The fleet is on hold", triggers=DONE)


@router.get("/fleet/confirm-release")
async def confirm_release(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """What goes on when the fleet is released."""
    plan = await parts(request).fleet.plan(None, _PLANNED)
    waiting = [each for each in plan.items if each.decision is not None and each.decision.actions]
    summary = await parts(request).fleet.summary()
    return fragment("fleet/_confirm_release.html", waiting=waiting, summary=summary, who=who)


@router.post("/fleet/do-release")
async def do_release(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """Let changes go on."""
    await parts(request).fleet.release(who.caller)
    return toast("The fleet is released", triggers=DONE)


@router.get("/fleet/confirm-breaker")
async def confirm_breaker(request: Request, who: AdminVisitor) -> HTMLResponse:
    """What closing a breaker means."""
    region = request.query_params.get("region", "")
    state = await parts(request).fleet.state()
    return fragment("fleet/_confirm_breaker.html", breaker=state.breakers.get(region), region=region, who=who)


@router.post("/fleet/do-breaker")
async def do_breaker(request: Request, who: AdminVisitor) -> HTMLResponse:
    """Close the breaker of a region."""
    region = field_of(await form_of(request), "region")
    await parts(request).fleet.reset_breakers(who.caller, region or None)
    return toast(f"The breaker of {region} is closed", triggers=DONE)


def hold_request(form: dict[str, list[str]]) -> HoldRequest:
    """The hold that a form asks for."""
    lasting = _DURATIONS.get(field_of(form, "lasting"))
    until = None if lasting is None else clock.now() + lasting
    try:
        return HoldRequest(reason=field_of(form, "reason"), until=until)
    except ValidationError:
        raise Refusal(ProblemCode.INVALID, "reason: say why in 1 to 500 letters; others will read it") from None


async def _command(
    all_parts: Parts, caller: Caller, worker_id: str, action: str, form: dict[str, list[str]], version: int | None
) -> Worker:
    workers = all_parts.workers
    if action == "hold":
        body = await workers.hold(caller, worker_id, hold_request(form), version)
    else:
        reason = field_of(form, "reason")[:500] or None
        body = await workers.command(caller, worker_id, action, reason=reason, if_match=version)
    return Worker.model_validate_json(body)


async def _last_sample(all_parts: Parts, worker_id: str) -> MetricsSample | None:
    samples = await all_parts.plane.store.series(SERIES, worker_id, since=clock.now() - RECENT)
    return MetricsSample.model_validate_json(samples[-1].body) if samples else None


def _said(action: str) -> str:
    return {
        "start": "to be started",
        "stop": "to be stopped",
        "drain": "draining",
        "cancel-drain": "drain cancelled",
        "retry": "tried again",
        "hold": "on hold",
        "release": "released",
        "terminate": "to be terminated",
    }[action]
