"""A dry run of creating a lablet: the scheduler's planner applied to the current fleet, without changing anything."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lcm.control_plane.lablets.definitions import resolve_definition
from lcm.control_plane.lablets.lifecycle import LabletOwner, build_lablet
from lcm.control_plane.lablets.planning import SchedulingInputs, make_planner, read_scheduling_inputs
from lcm.control_plane.read_gate import collection_paused
from lcm.control_plane.records.kinds import LABLETS
from lcm.control_plane.records.unit_of_work import name_taken_problem
from lcm.control_plane.store.port import Where
from lcm.control_plane.teams.choice import choose_team
from lcm.core import clock
from lcm.model.formatting import format_usd
from lcm.model.lablet.placement import LabletPreview, PlacementCandidate, PreviewOutcome
from lcm.model.lablet.record import MAX_REJECTIONS
from lcm.model.lablet.seats import seat_costs
from lcm.model.lablet.status import FINAL_LABLET_STATUSES

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.teams import TeamDirectory
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.model.lablet.record import CreateLabletRequest, Lablet, LabletDefinitionSummary, Rejection
    from lcm.model.lablet.scheduling.planner import SchedulingPlan, WaitingLablet
    from lcm.model.lablet.scheduling.scale_up import ScaleUpOutcome
    from lcm.model.worker.record import Worker

_MAX_REASON = 1000
_NO_MATCH = "no matching worker now"


@dataclass(slots=True)
class _View:
    """The fleet when it is this lablet's turn: lablets that are placed before it have taken their share."""

    candidates: list[tuple[Worker, float]] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)


async def preview_lablet(
    context: ControlPlaneContext, teams: TeamDirectory, caller: Caller, request: CreateLabletRequest
) -> LabletPreview:
    """A dry run of creating this lablet now. All lablets that wait for a worker are planned with it."""
    found = await teams.teams()
    team = choose_team(found, caller, request.team)
    definition = await resolve_definition(
        context.store, request.definition, caller.scope, None if team is None else team.id
    )
    belongs_to = definition.team if team is None else team.id
    key = f"preview:{belongs_to}:{definition.id}:{request.model_dump_json()}"
    preview = await context.reads.run(key, partial(_preview, context, request, definition, belongs_to))
    return preview if caller.scope.everything else _without_fleet(preview)


def _without_fleet(preview: LabletPreview) -> LabletPreview:
    """What an instructor may know: the outcome, and nothing of other workers or of what they cost."""
    hidden = (
        "candidates",
        "candidates_in_all",
        "rejections",
        "rejected",
        "template",
        "worker_id",
        "seat_costs",
        "cost",
    )
    known = preview.model_dump(exclude={*hidden, "cost_per_hour_usd", "skipped"})
    return LabletPreview.model_validate(known)


async def _preview(
    context: ControlPlaneContext, request: CreateLabletRequest, definition: LabletDefinitionSummary, team: str
) -> LabletPreview:
    now = clock.now()
    lablet = build_lablet(request, definition, lablet_id=clock.new_id("l"), owner=LabletOwner("", "preview"), now=now)
    lablet = lablet.model_copy(update={"team": team})
    if request.aws_region is not None:
        context.region(request.aws_region)
    if request.name is not None:
        await _check_name(context, request.name, team)
    with collection_paused():
        inputs = await read_scheduling_inputs(context, now, lablet)
        plan, view = await _plan(context, inputs, lablet, now)
        workers = {each.id: each for each in inputs.workers}
        preview = _described(plan, view, lablet, inputs.outcomes(context, plan), workers)
    preview = preview.model_copy(
        update={
            "aws_region": preview.aws_region or request.aws_region,
            "blocked": "; ".join(block.reason for block in inputs.blocks)[:_MAX_REASON],
            "skipped": len(plan.skipped),
            "seat_costs": seat_costs(inputs.templates, lablet.requirements, context.planning.ports),
            **_under_hold(inputs, preview),
        }
    )
    return preview.model_copy(update={"effect": _effect_text(preview), "cost": _cost_text(preview)})


async def _check_name(context: ControlPlaneContext, name: str, team: str) -> None:
    """Raise what the store would report if another lablet of the team has this name."""
    where = Where(any_of={"name": [name], "team": [team]}, none_of={"status": sorted(FINAL_LABLET_STATUSES)})
    for other in (await context.store.find(LABLETS, where, limit=1)).items:
        raise name_taken_problem("lablet", name, other.id)


async def _plan(
    context: ControlPlaneContext, inputs: SchedulingInputs, lablet: Lablet, now: datetime
) -> tuple[SchedulingPlan, _View]:
    planner, view = make_planner(context, inputs, now), _View()
    for due in planner.due:
        if due.id == lablet.id:
            view = _View(planner.candidates(lablet), list(planner.rejections(lablet)))
        planner.place_lablet(due)
        await asyncio.sleep(0)
    return planner.plan, view


def _under_hold(inputs: SchedulingInputs, preview: LabletPreview) -> dict[str, object]:
    """A hold lasts until a person ends it, so nothing is promised for now. Other blocks end within seconds."""
    hold = next((block for block in inputs.blocks if not block.is_transient), None)
    if hold is None or preview.outcome is PreviewOutcome.REFUSE:
        return {}
    return {"outcome": PreviewOutcome.WAIT, "reason": hold.reason[:_MAX_REASON], "cost_per_hour_usd": 0}


def _effect_text(preview: LabletPreview) -> str:
    effect = f"{preview.reason[:1].upper()}{preview.reason[1:]}."
    if preview.blocked and preview.blocked != preview.reason:
        effect += f" Nothing is placed at present: {preview.blocked}."
    return effect


def _cost_text(preview: LabletPreview) -> str:
    if preview.outcome in (PreviewOutcome.LAUNCH, PreviewOutcome.RESUME):
        worker = f"for a {preview.template} in {preview.aws_region}"
        return f"{format_usd(preview.cost_per_hour_usd)} an hour more, {worker}."
    return "No additional cost."


def _described(
    plan: SchedulingPlan,
    view: _View,
    lablet: Lablet,
    outcomes: list[ScaleUpOutcome],
    workers: dict[str, Worker],
) -> LabletPreview:
    """The plan as seen by one lablet."""
    candidates = [
        PlacementCandidate(worker_id=worker.id, worker_name=worker.name, score=score)
        for worker, score in view.candidates[:MAX_REJECTIONS]
    ]
    preview = LabletPreview(
        definition=lablet.definition,
        requirements=lablet.requirements,
        outcome=PreviewOutcome.WAIT,
        reason=_NO_MATCH,
        candidates=tuple(candidates),
        candidates_in_all=len(view.candidates),
        rejections=tuple(view.rejections[:MAX_REJECTIONS]),
        rejected=len(view.rejections),
    )
    return preview.model_copy(update=_outcome_fields(plan, lablet, outcomes, workers))


def _outcome_fields(
    plan: SchedulingPlan, lablet: Lablet, outcomes: list[ScaleUpOutcome], workers: dict[str, Worker]
) -> dict[str, object]:
    for placed in plan.placed:
        if placed.lablet.id == lablet.id:
            worker = workers[placed.worker_id]
            reason = f"it would be placed on {worker.name} (score {placed.score:.3f})"
            fields = {"reason": reason, "worker_id": worker.id, "aws_region": worker.aws_region}
            return {"outcome": PreviewOutcome.PLACE, **fields}
    for unplaceable in plan.unplaceable:
        if unplaceable.lablet.id == lablet.id:
            return {"outcome": PreviewOutcome.REFUSE, "reason": f"{unplaceable.reason}; it would fail"[:_MAX_REASON]}
    for waiting in plan.waiting:
        if waiting.lablet.id == lablet.id:
            return _waiting_fields(waiting, workers)
    for outcome in outcomes:
        if any(each.lablet.id == lablet.id for each in outcome.need.lablets):
            return _scale_up_fields(outcome)
    return {}


def _waiting_fields(waiting: WaitingLablet, workers: dict[str, Worker]) -> dict[str, object]:
    worker = None if waiting.worker_id is None else workers[waiting.worker_id]
    if worker is None:
        return {"reason": waiting.reason[:_MAX_REASON]}
    reason = f"{_NO_MATCH}; it would wait for {worker.name}, which is {worker.status}"
    return {
        "reason": reason,
        "worker_id": worker.id,
        "aws_region": worker.aws_region,
        "template": worker.template_name,
    }


def _scale_up_fields(outcome: ScaleUpOutcome) -> dict[str, object]:
    if outcome.refusal:
        return {"reason": f"{_NO_MATCH}, and none would be launched: {outcome.refusal}"[:_MAX_REASON]}
    fields: dict[str, object] = {
        "template": outcome.need.template,
        "aws_region": outcome.aws_region,
        "cost_per_hour_usd": outcome.cost_per_hour_usd,
    }
    if outcome.worker is not None:
        reason = f"{_NO_MATCH}; {outcome.worker.name}, which a policy stopped, would be resumed"
        return {**fields, "outcome": PreviewOutcome.RESUME, "reason": reason, "worker_id": outcome.worker.id}
    reason = f"{_NO_MATCH}; a {outcome.need.template} would be launched in {outcome.aws_region}"
    return {**fields, "outcome": PreviewOutcome.LAUNCH, "reason": reason}
