"""Make a lablet and end it, as people ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers.lifecycle import updated_worker
from lcm.model.lablet.placement import check_hold, rejection_reason, with_lablet, without_lablet
from lcm.model.lablet.record import (
    MAX_ABANDONED_LABS,
    AbandonedLab,
    Lablet,
)
from lcm.model.lablet.status import (
    FINAL_LABLET_STATUSES,
    IllegalLabletTransitionError,
    LabletStatus,
    check_lablet_transition,
)
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import (
        CreateLabletRequest,
        LabletDefinitionSummary,
        LabletStatusUpdate,
        Placement,
        PlacementRequest,
        ReleaseLabletRequest,
    )
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Allocation


_MAX_NAME_LENGTH = 63
_PLACEMENT_FIELDS = (
    "worker_id",
    "instance_id",
    "lab_id",
    "lab_started_at",
    "running_since",
    "ending",
    "ending_reason",
)
NOT_ON_CML_STATUSES = (LabletStatus.PENDING_SCHEDULING, LabletStatus.SCHEDULED)


def build_lablet(
    request: CreateLabletRequest, definition: LabletDefinitionSummary, *, lablet_id: str, by: str, now: datetime
) -> Lablet:
    """The record of a new lablet. What it needs is copied: nothing that happens to the definition changes it."""
    check_definition_enabled(definition)
    check_times(request, now)
    return Lablet(
        id=lablet_id,
        name=request.name or _default_name(definition.name, lablet_id),
        owner=request.owner or by,
        definition=definition.id,
        requirements=definition.requirements,
        aws_region=request.aws_region,
        status_since=now,
        lost_worker_policy=request.lost_worker_policy,
        starts_at=request.starts_at,
        ends_at=request.ends_at,
        time_to_live_minutes=request.time_to_live_minutes or definition.time_to_live_minutes,
        created_at=now,
        updated_at=now,
    )


def request_termination(lablet: Lablet, now: datetime, reason: str = "") -> Lablet:
    """Want it ended: at once where nothing was asked of CML yet, else as soon as the controller has torn it down."""
    if not lablet.wanted or lablet.status in FINAL_LABLET_STATUSES:
        return lablet
    fields: dict[str, Any] = {"wanted": False}
    if lablet.ending is None:
        fields |= {"ending": LabletStatus.TERMINATED, "ending_reason": reason or None}
    if lablet.status in NOT_ON_CML_STATUSES:
        fields |= on_enter(lablet, LabletStatus.TERMINATED, now)
    return updated_lablet(lablet, now, bump_generation=True, **fields)


def updated_lablet(lablet: Lablet, now: datetime, *, bump_generation: bool = False, **fields: Any) -> Lablet:
    """The lablet with these fields. If any differs the version moves; `bump_generation` moves the generation with it."""
    if all(getattr(lablet, name) == value for name, value in fields.items()):
        return lablet
    fields |= {"version": lablet.version + 1, "generation": lablet.generation + bump_generation, "updated_at": now}
    return lablet.model_copy(update=fields)


def on_enter(lablet: Lablet, status: LabletStatus, now: datetime) -> dict[str, Any]:
    """The fields that change with a status; illegal transitions raise, the same status changes nothing."""
    check_lablet_transition(lablet.status, status)
    if status is lablet.status:
        return {}
    fields: dict[str, Any] = {"status": status, "status_since": now}
    if status is LabletStatus.RUNNING:
        fields["running_since"] = now
    if status is LabletStatus.STOPPING and lablet.ending is None:
        fields["ending"] = LabletStatus.TERMINATED
    if status in FINAL_LABLET_STATUSES:
        # Its ports and addresses are somebody else's by now. Where it was stays on the record.
        fields |= {"ports": {}, "endpoints": (), "lab_id": None, "ending": status, "message": ""}
    if status is LabletStatus.PENDING_SCHEDULING:
        fields |= dict.fromkeys(_PLACEMENT_FIELDS) | {"ports": {}, "endpoints": (), "message": ""}
    return fields


def check_definition_enabled(definition: LabletDefinitionSummary) -> None:
    """No more lablets are made from a definition that is disabled."""
    if not definition.enabled:
        detail = f"definition {definition.id} is disabled; enable it or choose another version"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


def check_times(request: CreateLabletRequest, now: datetime) -> None:
    """What is to end must begin before, and not be over already."""
    if request.ends_at is None:
        return
    if request.ends_at <= now:
        raise ProblemError(ProblemCode.INVALID, f"ends_at: {request.ends_at.isoformat()} is not in the future")
    if request.starts_at is not None and request.ends_at <= request.starts_at:
        raise ProblemError(ProblemCode.INVALID, "ends_at: must be after starts_at")


def _default_name(definition: str, lablet_id: str) -> str:
    suffix = lablet_id.rpartition("-")[2]
    return f"{definition[: _MAX_NAME_LENGTH - 1 - len(suffix)]}-{suffix}"


_COPIED_FIELDS = ("instance_id", "lab_id", "lab_started_at", "endpoints", "message")
_FINAL_STATUS_NAMES = ", ".join(sorted(FINAL_LABLET_STATUSES))


def check_version(lablet: Lablet, version: int) -> None:
    """A writer that has not seen the present record must look again."""
    if version != lablet.version:
        detail = f"the lablet is at version {lablet.version}, not {version}; read it again"
        raise ProblemError(ProblemCode.VERSION_CONFLICT, detail, current={"version": lablet.version})


def apply_lablet_status(lablet: Lablet, write: LabletStatusUpdate, now: datetime) -> Lablet:
    """Take over what a controller found or did; a transition that is not legal raises and changes nothing."""
    check_version(lablet, write.version)
    given = write.model_fields_set
    fields = on_enter(lablet, write.status, now)
    _check_allowed_write(lablet, write.status)
    told: dict[str, Any] = {name: getattr(write, name) for name in _COPIED_FIELDS if name in given}
    if write.placement is not None:
        told["placement"] = _changed_placement(lablet.placement, write.placement)
    if "ending" in given:
        told |= _ending_fields(lablet, write)
    if write.status in FINAL_LABLET_STATUSES:
        told = {name: value for name, value in told.items() if name in ("message", "placement")}
        told["ending_reason"] = lablet.ending_reason or write.reason
    # What a status brings with it counts, except where the writer knows better.
    return updated_lablet(lablet, now, **{**fields, **told})


def release_lablet(lablet: Lablet, write: ReleaseLabletRequest, now: datetime) -> Lablet:
    """Give the reservation back: it looks for another worker, or has ended."""
    check_version(lablet, write.version)
    if write.status not in FINAL_LABLET_STATUSES and write.status is not LabletStatus.PENDING_SCHEDULING:
        detail = f"status: a lablet without a worker is PENDING_SCHEDULING, {_FINAL_STATUS_NAMES}, not {write.status}"
        raise ProblemError(ProblemCode.INVALID, detail)
    if not lablet.assigned:
        detail = f"there is nothing to give back: the lablet is {lablet.status}"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    fields = on_enter(lablet, write.status, now)
    _check_allowed_write(lablet, write.status)
    if write.status in FINAL_LABLET_STATUSES:
        fields["ending_reason"] = lablet.ending_reason or write.reason
    if write.left_behind:
        fields["left_behind"] = _add_left_behind(lablet)
    return updated_lablet(lablet, now, **fields)


def _add_left_behind(lablet: Lablet) -> tuple[AbandonedLab, ...]:
    """What it leaves on its worker, beside what it left before; only the last few are kept."""
    assert lablet.worker_id is not None
    marker = f"{lablet.id}.{lablet.placement_attempt}"
    left = AbandonedLab(worker_id=lablet.worker_id, marker=marker, lab_id=lablet.lab_id)
    return (*lablet.left_behind, left)[-MAX_ABANDONED_LABS:]


def _check_allowed_write(lablet: Lablet, status: LabletStatus) -> None:
    """What the table allows but not by this way."""
    if status is lablet.status:
        return
    if status is LabletStatus.SCHEDULED:
        detail = "a lablet becomes SCHEDULED only with a reservation: POST /api/internal/lablets/schedule"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if status is LabletStatus.PENDING_SCHEDULING and not lablet.wanted:
        detail = "the lablet is to end, so it does not look for another worker; write how it ended"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


def _ending_fields(lablet: Lablet, write: LabletStatusUpdate) -> dict[str, Any]:
    if write.ending is not None and write.ending not in FINAL_LABLET_STATUSES:
        raise ProblemError(ProblemCode.INVALID, f"ending: must be {_FINAL_STATUS_NAMES}, not {write.ending}")
    if write.ending is None or write.ending is lablet.ending:
        return {}
    return {"ending": write.ending, "ending_reason": write.reason}


def _changed_placement(before: Placement | None, told: Placement) -> Placement:
    """Looking again and finding the same is no news: the record stays as it is, and nobody is woken."""
    same = before is not None and before.model_copy(update={"at": told.at}) == told
    return before if same and before is not None else told


def place_lablet(
    lablet: Lablet, worker: Worker, write: PlacementRequest, ports: PortRange, now: datetime
) -> tuple[Lablet, Allocation]:
    """The lablet with its worker and ports, and what is taken of the worker then; refused unless it fits as it is now.

    The worker's version is left to whoever reserves for several lablets at once.
    """
    check_version(lablet, write.version)
    if lablet.status is not LabletStatus.PENDING_SCHEDULING:
        raise IllegalLabletTransitionError(lablet.status, LabletStatus.SCHEDULED)
    if not lablet.wanted:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the lablet is to end")
    needs = lablet.requirements
    why = rejection_reason(worker, needs, now=now, aws_region=lablet.aws_region, ports=ports)
    given = ports.give(needs.ports, worker.allocation.ports)
    if why is not None or given is None:
        code = ProblemCode.HELD if check_hold(worker, now) else ProblemCode.NOT_POSSIBLE_NOW
        raise ProblemError(code, f"it does not fit on {worker.name}: {why or 'too few ports are free'}")
    placed = updated_lablet(
        lablet,
        now,
        **on_enter(lablet, LabletStatus.SCHEDULED, now),
        worker_id=worker.id,
        ports=given,
        placement=write.placement,
        placement_attempt=lablet.placement_attempt + 1,
        message="",
    )
    return placed, with_lablet(worker.allocation, needs, given.values())


def release_reservations(worker: Worker, lablets: Iterable[Lablet], now: datetime) -> Worker:
    """The worker without what these lablets, as they were before they left it, have taken of it."""
    taken = worker.allocation
    for lablet in lablets:
        taken = without_lablet(taken, lablet.requirements, lablet.ports.values())
    return updated_worker(worker, now, allocation=taken)
