"""Previews of changes to workers, from the records, the plan and the latest metrics. Nothing is changed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lcm.control_plane.calendar.schedule_reads import boundary_override
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.state_reads import read_controller_reports, read_fleet_state, read_leaders
from lcm.control_plane.fleet.templates import read_template
from lcm.control_plane.records.kinds import TEAMS, WORKERS
from lcm.control_plane.records.unit_of_work import name_taken_problem
from lcm.control_plane.store.port import Where
from lcm.control_plane.teams.choice import team_not_found
from lcm.control_plane.workers import lifecycle
from lcm.control_plane.workers.action_preview import describe_start_duration, next_step_text, preview_action
from lcm.control_plane.workers.imports import build_adopted
from lcm.control_plane.workers.license_preview import calls_cml, preview_license
from lcm.control_plane.workers.metrics import read_latest_sample
from lcm.control_plane.workers.service import KEEPING_COMMANDS
from lcm.core import clock
from lcm.model.change_preview import ChangePreview, WorkerAction
from lcm.model.fleet.plan import find_evaluator
from lcm.model.formatting import format_usd
from lcm.model.team import Team
from lcm.model.worker.cost import cost_if, current_cost
from lcm.model.worker.requests import UpdateWorkerRequest
from lcm.model.worker.status import CML_STATUSES, DesiredStatus, LicenseStatus, LostInstancePolicy, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.fleet.plan import PlanService
    from lcm.model.change_preview import PreviewWorkerRequest
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import AdoptWorkerRequest, CreateWorkerRequest, LicenseRequest

_CONTROLLER_ACTIONS = (
    WorkerAction.START,
    WorkerAction.STOP,
    WorkerAction.DRAIN,
    WorkerAction.RETRY,
    WorkerAction.TERMINATE,
)
"""What a controller has to carry out."""


class PreviewService:
    """What a request would do to a worker now, by the rules that the request itself follows."""

    def __init__(self, context: ControlPlaneContext, plan: PlanService) -> None:
        self._context = context
        self._plan = plan

    async def preview(self, worker: Worker, request: PreviewWorkerRequest) -> ChangePreview:
        """What an action would do."""
        if request.action is WorkerAction.EDIT:
            return await self._edit(worker, request.changes or UpdateWorkerRequest())
        return await self.action(worker, request.action, release_license=request.release_license, until=request.until)

    async def action(
        self, worker: Worker, action: str, *, release_license: bool = True, until: datetime | None = None
    ) -> ChangePreview:
        """What a command would do."""
        return await self._context.small_reads.run_alone(partial(self._action, worker, action, release_license, until))

    async def _action(
        self, worker: Worker, action: str, release_license: bool, until: datetime | None
    ) -> ChangePreview:
        now = clock.now()
        if until is None and action in KEEPING_COMMANDS:
            desired = KEEPING_COMMANDS[action]
            override = await boundary_override(self._context.store, worker, desired, "you", now)
            until = None if override is None else override.until
        planned = await self._plan.worker(worker) if action == WorkerAction.RELEASE else None
        preview = preview_action(
            worker,
            action,
            now,
            await read_latest_sample(self._context.store, worker.id),
            planned,
            release_license=release_license or action != WorkerAction.TERMINATE,
            fleet_held=await self.fleet_held(now),
            until=until,
        )
        if action not in _CONTROLLER_ACTIONS or not preview.changes:
            return preview
        return await self._with_delays(preview, worker.aws_region, now)

    async def create(self, request: CreateWorkerRequest) -> ChangePreview:
        """What creating a worker would do."""
        now = clock.now()
        try:
            region = self._context.region(request.aws_region)
            template = await read_template(self._context.store, request.template_name)
            worker = lifecycle.build_worker(request, template, worker_id="", aws_region=region, now=now)
            await self._check_name(request.name, "")
        except ProblemError as error:
            return ChangePreview(action="create", refusal=error.detail, changes=False)
        running, hourly = worker.desired_status is DesiredStatus.RUNNING, cost_if(worker, running=True) or 0.0
        preview = ChangePreview(
            action="create",
            change=f"a {template.instance_type} in {region}, desired {worker.desired_status}",
            effect=next_step_text(worker, now, fleet_held=await self.fleet_held(now)),
            takes=describe_start_duration(worker) if running else "",
            cost=f"It {'will cost' if running else 'costs nothing until it is started; then'} {format_usd(hourly)}"
            " an hour with its disks.",
            cost_change_usd=hourly if running else 0.0,
        )
        return await self._with_delays(preview, region, now) if running else preview

    async def adopt(self, worker: Worker, request: AdoptWorkerRequest) -> ChangePreview:
        """What adopting an imported worker would do."""
        action, now = "adopt", clock.now()
        try:
            after = await build_adopted(self._context.store, worker, request, now)
        except ProblemError as error:
            return ChangePreview(action=action, refusal=error.detail, changes=False)
        if after == worker and request.license_token is None:
            return ChangePreview(action=action, changes=False, effect="No change needed.")
        return ChangePreview(
            action=action,
            change=_adopted_fields(worker, after),
            effect=_adopt_effect(worker, after, request),
            cost=_describe_adopted_cost(after),
        )

    async def license(self, worker: Worker, request: LicenseRequest) -> ChangePreview:
        """What a license operation would do."""
        preview = await preview_license(self._context, worker, request, fleet_held=await self.fleet_held(clock.now()))
        return await self._with_delays(preview, worker.aws_region, clock.now()) if calls_cml(preview) else preview

    async def fleet_held(self, now: datetime) -> bool:
        """Whether the fleet is on hold."""
        hold = (await read_fleet_state(self._context.store)).hold
        return hold is not None and hold.active(now)

    async def _edit(self, worker: Worker, changes: UpdateWorkerRequest) -> ChangePreview:
        action = WorkerAction.EDIT.value
        try:
            team = await self._team(changes)
            after = lifecycle.apply_patch(worker, changes, clock.now(), None if team is None else team[0])
            await self._check_name(after.name, worker.id)
        except ProblemError as error:
            return ChangePreview(action=action, refusal=error.detail, changes=False)
        secrets = changes.model_fields_set & {"license_token", "cml_username", "cml_password"}
        if after == worker and not secrets:
            return ChangePreview(action=action, changes=False, effect="No change needed.")
        change = _edited_fields(worker, after, secrets)
        if team is not None and after.team != worker.team:
            change = "; ".join(each for each in (change, f"team: {team[1] or 'none'}") if each)
        return ChangePreview(action=action, change=change, effect=_edit_effect(worker, after, changes))

    async def _team(self, changes: UpdateWorkerRequest) -> tuple[str, str] | None:
        """Id and name of the team that a change dedicates the worker to, empty for none; None if it says nothing."""
        if "team" not in changes.model_fields_set:
            return None
        if changes.team is None:
            return "", ""
        store = self._context.store
        stored = await store.get(TEAMS, changes.team) or await store.get_unique(TEAMS, "name", changes.team)
        if stored is None:
            raise team_not_found(changes.team)
        return stored.id, Team.model_validate_json(stored.body).name

    async def _check_name(self, name: str, worker_id: str) -> None:
        """Raise what the store would report if another worker has this name."""
        where = Where(any_of={"name": [name]}, none_of={"status": [WorkerStatus.TERMINATED.value]})
        others = [each.id for each in (await self._context.store.find(WORKERS, where, limit=2)).items]
        owner = next((each for each in others if each != worker_id), None)
        if owner is not None:
            raise name_taken_problem("worker", name, owner)

    async def _with_delays(self, preview: ChangePreview, region: str, now: datetime) -> ChangePreview:
        """The preview, and why nothing is done at present."""
        store = self._context.store
        evaluator = find_evaluator(await read_leaders(store), await read_controller_reports(store), now)
        reason = evaluator.silence
        if not reason and region in evaluator.blind:
            reason = f"EC2 has not been readable in {region} for {evaluator.blind[region]}"
        if not reason:
            return preview
        return preview.model_copy(update={"effect": f"{preview.effect} This waits: {reason}."})


def _edited_fields(before: Worker, after: Worker, secrets: set[str]) -> str:
    """The fields that change, with their values before and after. Secrets are only named."""
    changed = [
        f"{name}: {_field_text(getattr(before, name))} → {_field_text(getattr(after, name))}"
        for name in ("name", "tags", "idle_detection_enabled", "lost_instance_policy")
        if getattr(before, name) != getattr(after, name)
    ]
    return "; ".join([*changed, *(f"{name}: replaced" for name in sorted(secrets))])


def _field_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in sorted(value.items())) or "none"
    return {"True": "yes", "False": "no", "None": "none"}.get(str(value), str(value))


def _edit_effect(before: Worker, after: Worker, changes: UpdateWorkerRequest) -> str:
    effects = []
    if before.idle_detection_enabled != after.idle_detection_enabled:
        effects.append(_idle_effect(after))
    if before.lost_instance_policy != after.lost_instance_policy:
        replaced = after.lost_instance_policy is LostInstancePolicy.REPLACE
        effects.append(f"If its instance is lost, {'another one is launched for it' if replaced else 'it ends'}.")
    if before.team != after.team:
        whose = (
            "Only this team's new lablets are placed on it" if after.team else "Lablets of all teams are placed on it"
        )
        effects.append(f"{whose}; lablets that are on it stay.")
    if "license_token" in changes.model_fields_set:
        effects.append(_token_effect(before, removed=changes.license_token is None))
    if changes.model_fields_set & {"cml_username", "cml_password"}:
        effects.append("LCM will sign in to its CML with the new credentials.")
    return " ".join(effects) or "Nothing is started, stopped or interrupted."


def _adopted_fields(before: Worker, after: Worker) -> str:
    """What changes in the record of an adopted worker."""
    changed = [
        f"{name}: {_field_text(getattr(before, name))} → {_field_text(getattr(after, name))}"
        for name in ("template_name", "idle_detection_enabled")
        if getattr(before, name) != getattr(after, name)
    ]
    lablets = f"lablets: {'yes' if after.schedulable else 'no'}"
    if before.is_adopted:
        return "; ".join([*changed, *([lablets] if before.schedulable != after.schedulable else [])])
    return "; ".join(["imported → adopted", *changed, lablets])


def _adopt_effect(before: Worker, after: Worker, request: AdoptWorkerRequest) -> str:
    effects = ["It will take no lablets."]
    if after.schedulable and after.capacity is not None:
        size = after.capacity
        room = (
            f"{size.cpu_cores} CPU, {size.memory_gb:g} GB memory, {size.storage_gb:g} GB disk, {size.max_nodes} nodes"
        )
        when = "now" if after.ready else "as soon as it is ready"
        effects = [f"Lablets may be placed on it {when} ({room}), before another worker is launched for them."]
    if before.idle_detection_enabled != after.idle_detection_enabled:
        effects.append(_idle_effect(after))
    if request.license_token is not None:
        effects.append(_token_effect(before, removed=False))
    return " ".join(effects)


def _describe_adopted_cost(worker: Worker) -> str:
    hourly = current_cost(worker)
    return "Its cost is not known." if hourly is None else f"It costs {format_usd(hourly)} an hour."


def _idle_effect(worker: Worker) -> str:
    if worker.idle_detection_enabled:
        return "It will be stopped or drained when idle, as the fleet settings say."
    return "It will keep running when idle."


def _token_effect(worker: Worker, *, removed: bool) -> str:
    if removed:
        return "Its license token is removed; a license that is registered stays registered."
    when = "now" if worker.status in CML_STATUSES else "when it runs"
    if worker.license_status in (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING):
        return (
            f"Its present license stays until the new token is registered: lcm workers license {worker.name} register."
        )
    return f"CML will register the license {when}."
