"""A preview of a change to a worker template: for the dialogs of the dashboard, and for dry runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.control_plane.fleet.templates import read_template
from lcm.control_plane.lablets.planning import read_scheduling_inputs, run_planner
from lcm.control_plane.records.kinds import TEMPLATES, WORKERS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.core import clock
from lcm.model.change_preview import ChangePreview, TemplateAction
from lcm.model.formatting import count_of, format_usd
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.lablets.planning import SchedulingInputs
    from lcm.control_plane.store.port import Store

_LAUNCH_FIELDS = (
    "instance_type",
    "ami_name_pattern",
    "capacity",
    "cost_per_hour_usd",
    "nested_virtualization",
    "requires_kvm",
)
"""The fields that the next launch of a worker uses."""


async def preview_template_change(
    context: ControlPlaneContext, name: str, action: TemplateAction, template: WorkerTemplate | None = None
) -> ChangePreview:
    """What enabling, disabling or storing a template would do. `template` is the one to store."""
    stored = await context.store.get(TEMPLATES, name)
    before = None if stored is None else WorkerTemplate.model_validate_json(stored.body)
    if action is TemplateAction.APPLY and template is not None:
        after = template if before is None else template.with_unknown_fields_of(before)
    else:
        before = before or await read_template(context.store, name)  # raises the problem of one that does not exist
        enabled = before.enabled if action is TemplateAction.APPLY else action is TemplateAction.ENABLE
        after = before.model_copy(update={"enabled": enabled})
    if before == after:
        return ChangePreview(action=action, changes=False, change=_enabled_text(after), effect="No change needed.")
    change = "is created" if before is None else "; ".join(_differences(before, after))
    effects = [_creation_effect(before, after), await _scale_up_effect(context, after)]
    if before is not None:
        effects.append(await _existing_effect(context.store, before, after))
    return ChangePreview(
        action=action, change=change, effect=" ".join(filter(None, effects)), cost=_cost_text(before, after)
    )


def _enabled_text(template: WorkerTemplate) -> str:
    return "enabled" if template.enabled else "disabled"


def _differences(before: WorkerTemplate, after: WorkerTemplate) -> list[str]:
    switched = [] if before.enabled == after.enabled else [f"{_enabled_text(before)} → {_enabled_text(after)}"]
    return switched + [
        f"{name}: {getattr(before, name)} → {getattr(after, name)}"
        for name in type(after).model_fields
        if name != "enabled" and getattr(before, name) != getattr(after, name)
    ]


def _creation_effect(before: WorkerTemplate | None, after: WorkerTemplate) -> str:
    if not after.enabled:
        return "No new worker will be created from it, by people or by scale-up."
    if before is None or not before.enabled:
        return "Workers can be created from it, by people and by scale-up."
    if _launches_same(before, after):
        return "New workers will be the same as before."
    return "New workers will be created with the new values."


def _launches_same(before: WorkerTemplate, after: WorkerTemplate) -> bool:
    return all(getattr(before, name) == getattr(after, name) for name in _LAUNCH_FIELDS)


async def _scale_up_effect(context: ControlPlaneContext, after: WorkerTemplate) -> str:
    """What changes for lablets that wait for a worker: by the scheduler's planner, before and after."""
    inputs = await read_scheduling_inputs(context, clock.now())
    if not inputs.pending:
        return ""
    others = [each for each in inputs.templates if each.name != after.name]
    now_served = await _count_served(context, inputs, after.name)
    then_served = await _count_served(context, replace(inputs, templates=[*others, after]), after.name)
    if now_served == then_served:
        return ""
    if then_served > now_served:
        return f"{count_of(then_served - now_served, 'waiting lablet')} will get a worker of this template."
    return f"{count_of(now_served - then_served, 'waiting lablet')} will no longer get a worker of this template."


async def _count_served(context: ControlPlaneContext, inputs: SchedulingInputs, name: str) -> int:
    """How many lablets get a worker of the template by scale-up."""
    plan = await run_planner(context, inputs, clock.now())
    accepted = [each for each in inputs.outcomes(context, plan) if not each.refusal]
    return sum(len(each.need.lablets) for each in accepted if each.need.template == name)


async def _existing_effect(store: Store, before: WorkerTemplate, after: WorkerTemplate) -> str:
    """What changes for the workers that were created from it."""
    users = Where(any_of={"template_name": [after.name]}, none_of={"status": [WorkerStatus.TERMINATED.value]})
    total = sum(count for _, count, _ in await store.count_by(WORKERS, ["status"], users))
    if not total:
        return "No worker was created from it."
    unlaunched = 0 if _launches_same(before, after) else await _count_unlaunched(store, after.name)
    if not unlaunched:
        return f"{count_of(total, 'existing worker')} will not change."
    rest = f"; the other {total - unlaunched} will not change" if total > unlaunched else ""
    verb = "was" if unlaunched == 1 else "were"
    return f"{count_of(unlaunched, 'worker')} that {verb} not launched yet will be launched with the new values{rest}."


async def _count_unlaunched(store: Store, name: str) -> int:
    """How many workers of the template take its values at their launch, which has not begun."""
    pending = Where(any_of={"template_name": [name], "status": [WorkerStatus.PENDING.value]})
    workers = [read_or_skip(stored, Worker, "worker") async for stored in find_all(store, WORKERS, pending)]
    return sum(worker is not None and worker.launch_intent is None for worker in workers)


def _cost_text(before: WorkerTemplate | None, after: WorkerTemplate) -> str:
    price = format_usd(after.cost_per_hour_usd)
    if before is None:
        return f"A worker of it will cost {price} an hour while it runs, without its disks."
    if before.cost_per_hour_usd == after.cost_per_hour_usd:
        return ""
    was = format_usd(before.cost_per_hour_usd)
    return f"A new worker of it will cost {price} an hour while it runs, without its disks ({was} before)."
