"""A dry run of creating a lablet: the scheduler's rules applied to the current fleet, without changing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.fleet.service import read_fleet_state
from lcm.control_plane.lablets.definitions import resolve_definition
from lcm.control_plane.lablets.lifecycle import check_definition_enabled, check_times
from lcm.control_plane.records.kinds import TEMPLATES, WORKERS, find_all
from lcm.control_plane.store.port import Where
from lcm.core import clock
from lcm.model.formatting import count_with_verb
from lcm.model.lablet.placement import (
    LabletPreview,
    PlacementCandidate,
    PreviewOutcome,
    cheapest_template,
    check_capacity,
    check_hold,
    check_region,
    no_template_reason,
    placement_score,
    rejection_reason,
)
from lcm.model.lablet.record import MAX_REJECTIONS, Rejection
from lcm.model.worker.record import Worker
from lcm.model.worker.status import LAUNCHING_STATUSES, DesiredStatus, WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.model.lablet.record import CreateLabletRequest, LabletDefinitionSummary

_INCOMING_STATUSES = (*LAUNCHING_STATUSES, WorkerStatus.RUNNING, WorkerStatus.STOPPED)


async def preview_lablet(context: ControlPlaneContext, request: CreateLabletRequest) -> LabletPreview:
    """A dry run of creating this lablet now."""
    definition = await resolve_definition(context.store, request.definition)
    now = clock.now()
    check_definition_enabled(definition)
    check_times(request, now)
    if request.aws_region is not None:
        context.region(request.aws_region)
    present = Where(none_of={"status": [WorkerStatus.TERMINATED.value]})
    workers = [Worker.model_validate_json(item.body) async for item in find_all(context.store, WORKERS, present)]
    preview = _PlacementPreview(context, definition, request, workers, now)
    current = preview.current_workers()
    hold = (await read_fleet_state(context.store)).hold
    if hold is not None and hold.active(now):
        reason = f"the fleet is on hold by {hold.by}: {hold.reason}"[:1000]
        return current.model_copy(update={"outcome": PreviewOutcome.WAIT, "reason": reason})
    if current.candidates:
        return current
    templates = [WorkerTemplate.model_validate_json(item.body) async for item in find_all(context.store, TEMPLATES)]
    max_workers = (await context.settings()).scaling.max_workers_per_region
    return preview.without_match(current, templates, max_workers)


class _PlacementPreview:
    """The fleet as seen by one lablet."""

    def __init__(
        self,
        context: ControlPlaneContext,
        definition: LabletDefinitionSummary,
        request: CreateLabletRequest,
        workers: Sequence[Worker],
        now: datetime,
    ) -> None:
        self._ports = context.ports
        self._region = request.aws_region
        self._launch_region = context.region(request.aws_region)
        self._definition = definition
        self._requirements = definition.requirements
        self._workers = workers
        self._now = now

    def current_workers(self) -> LabletPreview:
        """The workers that fit now, and the rejected ones with reasons."""
        matching: list[tuple[float, Worker]] = []
        rejections: list[Rejection] = []
        for worker in self._workers:
            why = rejection_reason(
                worker, self._requirements, now=self._now, aws_region=self._region, ports=self._ports
            )
            if why is not None:
                rejections.append(Rejection(worker_id=worker.id, worker_name=worker.name, reason=why))
            elif worker.capacity is not None:
                matching.append((placement_score(worker.capacity, worker.allocation), worker))
        matching.sort(key=lambda each: (-each[0], each[1].id))
        best = matching[0] if matching else None
        candidates = [
            PlacementCandidate(worker_id=one.id, worker_name=one.name, score=points) for points, one in matching
        ]
        return LabletPreview(
            definition=self._definition.id,
            requirements=self._requirements,
            outcome=PreviewOutcome.PLACE if best else PreviewOutcome.WAIT,
            reason=f"it would be placed on {best[1].name} (score {best[0]:.3f})" if best else "no matching worker",
            candidates=tuple(candidates[:MAX_REJECTIONS]),
            candidates_in_all=len(candidates),
            rejections=tuple(rejections[:MAX_REJECTIONS]),
            rejected=len(rejections),
            worker_id=best[1].id if best else None,
            aws_region=best[1].aws_region if best else self._region,
        )

    def without_match(
        self, current: LabletPreview, templates: Sequence[WorkerTemplate], max_workers: int
    ) -> LabletPreview:
        """What would happen if no worker fits: wait for a starting worker, resume one, launch one, or fail."""
        incoming = next((worker for worker in self._workers if self._is_incoming(worker)), None)
        if incoming is not None:
            reason = f"no matching worker now; it would wait for {incoming.name}, which is {incoming.status}"
            waits = {"reason": reason, "worker_id": incoming.id, "aws_region": incoming.aws_region}
            return current.model_copy(update={**waits, "template": incoming.template_name})
        template = cheapest_template(templates, self._requirements, ports=self._ports)
        if template is None:
            reason = f"{no_template_reason(templates, self._requirements, ports=self._ports)}; it would fail"
            return current.model_copy(update={"outcome": PreviewOutcome.REFUSE, "reason": reason})
        paused = next((worker for worker in self._workers if self._is_paused(worker, template)), None)
        launch: dict[str, object] = {
            "template": template.name,
            "aws_region": self._launch_region,
            "cost_per_hour_usd": template.cost_per_hour_usd,
        }
        if paused is not None:
            reason = f"no matching worker now; {paused.name}, which a policy stopped, would be resumed"
            resumed = {"outcome": PreviewOutcome.RESUME, "reason": reason, "worker_id": paused.id}
            return current.model_copy(update={**launch, **resumed})
        present = sum(worker.aws_region == self._launch_region for worker in self._workers)
        if present >= max_workers:
            full = f"{count_with_verb(present, 'worker')} in {self._launch_region}"
            full += f" and MAX_WORKERS_PER_REGION is {max_workers}"
            reason = f"no matching worker now, and none would be launched: {full}"
            return current.model_copy(update={"reason": reason})
        reason = f"no matching worker now; a {template.name} would be launched in {self._launch_region}"
        return current.model_copy(update={**launch, "outcome": PreviewOutcome.LAUNCH, "reason": reason})

    def _is_incoming(self, worker: Worker) -> bool:
        """Not ready yet, desired RUNNING, and with enough capacity for it."""
        return (
            not worker.ready
            and worker.status in _INCOMING_STATUSES
            and worker.desired_status is DesiredStatus.RUNNING
            and check_hold(worker, self._now) is None
            and check_region(worker, self._region) is None
            and check_capacity(worker.capacity, worker.allocation, self._requirements) is None
        )

    def _is_paused(self, worker: Worker, template: WorkerTemplate) -> bool:
        """Whether scale-up would resume this worker."""
        return (
            worker.status is WorkerStatus.STOPPED
            and worker.desired_status is DesiredStatus.STOPPED
            and worker.paused_by_policy
            and worker.template_name == template.name
            and worker.aws_region == self._launch_region
            and check_hold(worker, self._now) is None
        )
