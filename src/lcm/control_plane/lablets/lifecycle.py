"""Make a lablet and end it, as people ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.control_plane.errors import Refusal
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import FINAL, LabletStatus, check_lablet_transition
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.record import CreateLablet, DefinitionSummary

_LONGEST_NAME = 63
_OF_A_PLACEMENT = (
    "worker_id",
    "instance_id",
    "lab_id",
    "lab_started_at",
    "running_since",
    "ending",
    "ending_reason",
)
NOTHING_ON_CML = (LabletStatus.PENDING_SCHEDULING, LabletStatus.SCHEDULED)


def create(request: CreateLablet, definition: DefinitionSummary, *, lablet_id: str, by: str, now: datetime) -> Lablet:
    """The record of a new lablet. What it needs is copied: nothing that happens to the definition changes it."""
    check_enabled(definition)
    check_times(request, now)
    return Lablet(
        id=lablet_id,
        name=request.name or _made_up(definition.name, lablet_id),
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


def terminate(lablet: Lablet, now: datetime, reason: str = "") -> Lablet:
    """Want it ended: at once where nothing was asked of CML yet, else as soon as the controller has torn it down."""
    if not lablet.wanted or lablet.status in FINAL:
        return lablet
    fields: dict[str, Any] = {"wanted": False}
    if lablet.ending is None:
        fields |= {"ending": LabletStatus.TERMINATED, "ending_reason": reason or None}
    if lablet.status in NOTHING_ON_CML:
        fields |= entering(lablet, LabletStatus.TERMINATED, now)
    return moved(lablet, now, asks_anew=True, **fields)


def moved(lablet: Lablet, now: datetime, *, asks_anew: bool = False, **fields: Any) -> Lablet:
    """The lablet with these fields. If any differs the version moves; `asks_anew` moves the generation with it."""
    if all(getattr(lablet, name) == value for name, value in fields.items()):
        return lablet
    fields |= {"version": lablet.version + 1, "generation": lablet.generation + asks_anew, "updated_at": now}
    return lablet.model_copy(update=fields)


def entering(lablet: Lablet, status: LabletStatus, now: datetime) -> dict[str, Any]:
    """The fields that change with a status; illegal transitions raise, the same status changes nothing."""
    check_lablet_transition(lablet.status, status)
    if status is lablet.status:
        return {}
    fields: dict[str, Any] = {"status": status, "status_since": now}
    if status is LabletStatus.RUNNING:
        fields["running_since"] = now
    if status is LabletStatus.STOPPING and lablet.ending is None:
        fields["ending"] = LabletStatus.TERMINATED
    if status in FINAL:
        # Its ports and addresses are somebody else's by now. Where it was stays on the record.
        fields |= {"ports": {}, "endpoints": (), "lab_id": None, "ending": status, "message": ""}
    if status is LabletStatus.PENDING_SCHEDULING:
        fields |= dict.fromkeys(_OF_A_PLACEMENT) | {"ports": {}, "endpoints": (), "message": ""}
    return fields


def check_enabled(definition: DefinitionSummary) -> None:
    """No more lablets are made from a definition that is disabled."""
    if not definition.enabled:
        detail = f"definition {definition.id} is disabled; enable it or choose another version"
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, detail)


def check_times(request: CreateLablet, now: datetime) -> None:
    """What is to end must begin before, and not be over already."""
    if request.ends_at is None:
        return
    if request.ends_at <= now:
        raise Refusal(ProblemCode.INVALID, f"ends_at: {request.ends_at.isoformat()} is not in the future")
    if request.starts_at is not None and request.ends_at <= request.starts_at:
        raise Refusal(ProblemCode.INVALID, "ends_at: must be after starts_at")


def _made_up(definition: str, lablet_id: str) -> str:
    suffix = lablet_id.rpartition("-")[2]
    return f"{definition[: _LONGEST_NAME - 1 - len(suffix)]}-{suffix}"
