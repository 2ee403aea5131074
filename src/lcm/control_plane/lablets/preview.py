"""What would become of a lablet: the scheduler's rules applied to the fleet as it is, without changing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.fleet.service import read_fleet_state
from lcm.control_plane.lablets.definitions import resolve_definition
from lcm.control_plane.lablets.lifecycle import check_definition_enabled, check_times
from lcm.control_plane.records.kinds import TEMPLATES, WORKERS
from lcm.control_plane.store.port import Where
from lcm.core import clock
from lcm.model.formatting import count_with_verb
from lcm.model.lablet.placement import (
    cheapest_template,
    check_capacity,
    check_hold,
    check_region,
    no_template_reason,
    placement_score,
    rejection_reason,
)
from lcm.model.lablet.preview import LabletPreview, PlacementCandidate, PreviewOutcome
from lcm.model.lablet.record import MAX_REJECTIONS, Rejection
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.store.port import Kind, Store
    from lcm.model.lablet.record import CreateLabletRequest, LabletDefinitionSummary

_PAGE = 100
_INCOMING_STATUSES = (
    WorkerStatus.PENDING,
    WorkerStatus.PROVISIONING,
    WorkerStatus.STARTING,
    WorkerStatus.RUNNING,
    WorkerStatus.STOPPED,
)


async def preview_lablet(plane: ControlPlaneContext, request: CreateLabletRequest) -> LabletPreview:
    """A dry run of making this lablet now."""
    definition = await resolve_definition(plane.store, request.definition)
    now = clock.now()
    check_definition_enabled(definition)
    check_times(request, now)
    if request.aws_region is not None:
        plane.region(request.aws_region)
    present = Where(none_of={"status": [WorkerStatus.TERMINATED.value]})
    workers = [Worker.model_validate_json(body) for body in await _read_all(plane.store, WORKERS, present)]
    look = _PlacementPreview(plane, definition, request, workers, now)
    found = look.found()
    hold = (await read_fleet_state(plane.store)).hold
    if hold is not None and hold.active(now):
        reason = f"the fleet is on hold by {hold.by}: {hold.reason}"[:1000]
        return found.model_copy(update={"outcome": PreviewOutcome.WAIT, "reason": reason})
    if found.candidates:
        return found
    templates = [WorkerTemplate.model_validate_json(body) for body in await _read_all(plane.store, TEMPLATES)]
    ceiling = (await plane.settings()).scaling.max_workers_per_region
    return look.grown(found, templates, ceiling)


async def _read_all(store: Store, kind: Kind, where: Where | None = None) -> list[bytes]:
    bodies: list[bytes] = []
    after: str | None = None
    while True:
        page = await store.find(kind, where, after=after, limit=_PAGE)
        bodies += [item.body for item in page.items]
        if page.next_cursor is None:
            return bodies
        after = page.next_cursor


class _PlacementPreview:
    """The fleet as one lablet sees it."""

    def __init__(
        self,
        plane: ControlPlaneContext,
        definition: LabletDefinitionSummary,
        request: CreateLabletRequest,
        workers: Sequence[Worker],
        now: datetime,
    ) -> None:
        self._ports = plane.ports
        self._region = request.aws_region
        self._new_in = plane.region(request.aws_region)
        self._definition = definition
        self._needs = definition.requirements
        self._workers = workers
        self._now = now

    def found(self) -> LabletPreview:
        """Who could take it and who could not, as they are."""
        fitting: list[tuple[float, Worker]] = []
        rejections: list[Rejection] = []
        for worker in self._workers:
            why = rejection_reason(worker, self._needs, now=self._now, aws_region=self._region, ports=self._ports)
            if why is not None:
                rejections.append(Rejection(worker_id=worker.id, worker_name=worker.name, reason=why))
            elif worker.capacity is not None:
                fitting.append((placement_score(worker.capacity, worker.allocation), worker))
        fitting.sort(key=lambda each: (-each[0], each[1].id))
        best = fitting[0] if fitting else None
        candidates = [
            PlacementCandidate(worker_id=one.id, worker_name=one.name, score=points) for points, one in fitting
        ]
        return LabletPreview(
            definition=self._definition.id,
            requirements=self._needs,
            outcome=PreviewOutcome.PLACE if best else PreviewOutcome.WAIT,
            reason=f"it would be placed on {best[1].name}, by a score of {best[0]:.3f}" if best else "no worker fits",
            candidates=tuple(candidates[:MAX_REJECTIONS]),
            candidates_in_all=len(candidates),
            rejections=tuple(rejections[:MAX_REJECTIONS]),
            rejected=len(rejections),
            worker_id=best[1].id if best else None,
            aws_region=best[1].aws_region if best else self._region,
        )

    def grown(self, found: LabletPreview, templates: Sequence[WorkerTemplate], ceiling: int) -> LabletPreview:
        """What would be done as nobody can take it: wait for capacity on its way, resume, launch, or give up."""
        coming = next((worker for worker in self._workers if self._is_coming(worker)), None)
        if coming is not None:
            reason = f"no worker fits now; it would wait for {coming.name}, which is {coming.status}"
            waits = {"reason": reason, "worker_id": coming.id, "aws_region": coming.aws_region}
            return found.model_copy(update={**waits, "template": coming.template_name})
        template = cheapest_template(templates, self._needs, ports=self._ports)
        if template is None:
            reason = f"{no_template_reason(templates, self._needs, ports=self._ports)}: it would end FAILED"
            return found.model_copy(update={"outcome": PreviewOutcome.REFUSE, "reason": reason})
        paused = next((worker for worker in self._workers if self._is_paused(worker, template)), None)
        told: dict[str, object] = {
            "template": template.name,
            "aws_region": self._new_in,
            "cost_per_hour_usd": template.cost_per_hour_usd,
        }
        if paused is not None:
            reason = f"no worker fits now; {paused.name}, which a policy stopped, would be resumed"
            resumed = {"outcome": PreviewOutcome.RESUME, "reason": reason, "worker_id": paused.id}
            return found.model_copy(update={**told, **resumed})
        present = sum(worker.aws_region == self._new_in for worker in self._workers)
        if present >= ceiling:
            there = f"{count_with_verb(present, 'worker')} in {self._new_in} and MAX_WORKERS_PER_REGION is {ceiling}"
            return found.model_copy(update={"reason": f"no worker fits now, and none would be launched: {there}"})
        reason = f"no worker fits now; a {template.name} would be launched in {self._new_in}"
        return found.model_copy(update={**told, "outcome": PreviewOutcome.LAUNCH, "reason": reason})

    def _is_coming(self, worker: Worker) -> bool:
        """Not ready yet, wanted running, and with room for it once it is."""
        return (
            not worker.ready
            and worker.status in _INCOMING_STATUSES
            and worker.desired_status is DesiredStatus.RUNNING
            and check_hold(worker, self._now) is None
            and check_region(worker, self._region) is None
            and check_capacity(worker.capacity, worker.allocation, self._needs) is None
        )

    def _is_paused(self, worker: Worker, template: WorkerTemplate) -> bool:
        """One that scale-up would resume."""
        return (
            worker.status is WorkerStatus.STOPPED
            and worker.desired_status is DesiredStatus.STOPPED
            and worker.paused_by_policy
            and worker.template_name == template.name
            and worker.aws_region == self._new_in
            and check_hold(worker, self._now) is None
        )
