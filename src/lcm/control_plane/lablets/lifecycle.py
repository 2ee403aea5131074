"""Every change of a lablet: create, place, status writes of controllers, release, extend, reset, terminate.

Pure functions of a record: each returns the lablet as it should be, or raises `ProblemError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lcm.control_plane.errors import ProblemError, check_version
from lcm.control_plane.workers.lifecycle import updated_record
from lcm.model.base import format_utc
from lcm.model.booking.failed_seats import can_be_made_anew
from lcm.model.lablet.lifetime import BookedExtensionError, BookedUntil, ExtensionError, extend_end
from lcm.model.lablet.placement import check_hold, lablet_end, rejection_reason, with_lablet, without_lablet
from lcm.model.lablet.record import MAX_ABANDONED_LABS, AbandonedLab, Lablet
from lcm.model.lablet.status import (
    FINAL_LABLET_STATUSES,
    NOT_ON_CML_STATUSES,
    IllegalLabletTransitionError,
    LabletStatus,
    check_lablet_transition,
)
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.model.lablet.lifetime import MaxLifetime
    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import (
        CreateLabletRequest,
        LabletDefinitionSummary,
        LabletStatusUpdate,
        Placement,
        PlacementRequest,
        ReleaseLabletRequest,
    )
    from lcm.model.lablet.requests import ExtendLabletRequest
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Allocation


_MAX_NAME_LENGTH = 63
NOT_BOOKED = BookedUntil()
_COPIED_FIELDS = ("instance_id", "lab_id", "lab_started_at", "endpoints", "message")
_FINAL_STATUS_NAMES = ", ".join(sorted(FINAL_LABLET_STATUSES))
_PLACEMENT_FIELDS = ("worker_id", "instance_id", "lab_id", "lab_started_at", "running_since", "ending", "ending_reason")


@dataclass(frozen=True, slots=True)
class LabletOwner:
    """Whose lablet it is: what proves it (empty if nothing does), and the name as people read it."""

    identity: str
    name: str


def build_lablet(
    request: CreateLabletRequest,
    definition: LabletDefinitionSummary,
    *,
    lablet_id: str,
    owner: LabletOwner,
    now: datetime,
) -> Lablet:
    """The record of a new lablet. Requirements are copied, so later changes of the definition do not affect it."""
    check_definition_enabled(definition)
    check_times(request, now)
    return Lablet(
        id=lablet_id,
        name=request.name or _default_name(definition.name, lablet_id),
        owner=owner.identity,
        owner_name=owner.name,
        team=definition.team,
        definition=definition.reference,
        definition_id="" if definition.id == definition.reference else definition.id,
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
    """Request its end: at once if CML was not called yet, otherwise as soon as the controller has torn it down.

    A failed seat of a class stays failed then.
    """
    if not lablet.wanted or (lablet.status in FINAL_LABLET_STATUSES and not can_be_made_anew(lablet)):
        return lablet
    fields: dict[str, Any] = {"wanted": False}
    if lablet.ending is None:
        fields |= {"ending": LabletStatus.TERMINATED, "ending_reason": reason or None}
    if lablet.status in NOT_ON_CML_STATUSES:
        fields |= on_enter(lablet, LabletStatus.TERMINATED, now)
    return updated_record(lablet, now, bump_generation=True, **fields)


def extend(
    lablet: Lablet,
    request: ExtendLabletRequest,
    now: datetime,
    max_lifetime: MaxLifetime | None,
    booked: BookedUntil = NOT_BOOKED,
) -> Lablet:
    """Move its end to a later time. The same end again changes nothing."""
    _check_goes_on(lablet, "extended")
    try:
        extension = extend_end(
            lablet, minutes=request.minutes, ends_at=request.ends_at, now=now, max_lifetime=max_lifetime, booked=booked
        )
    except BookedExtensionError as error:
        current = {"latest_end": format_utc(error.latest_end)}
        raise ProblemError(ProblemCode.BOOKED, str(error), current=current) from None
    except ExtensionError as error:
        raise ProblemError(ProblemCode.INVALID if error.field else ProblemCode.NOT_POSSIBLE_NOW, str(error)) from None
    fields = {"ends_at": extension.ends_at, "time_to_live_minutes": extension.time_to_live_minutes}
    if all(getattr(lablet, name) == value for name, value in fields.items()):
        return lablet
    return updated_record(lablet, now, bump_generation=True, **fields)


def reset(lablet: Lablet, now: datetime, class_end: datetime | None = None) -> Lablet:
    """Request a new lab in place of its lab, on the same worker with the same ports.

    The lab that it has is recorded as left behind, with the marker of its own: so it is removed whatever stops in
    between, and no lab that is made from now on can be taken for it. A failed seat, whose class is under way until
    `class_end`, has none and is made anew.
    """
    if lablet.status is LabletStatus.FAILED and lablet.wanted and class_end is not None:
        return make_anew(lablet, now, class_end, retries=0)
    _check_goes_on(lablet, "reset")
    if lablet.status is not LabletStatus.RUNNING:
        detail = f"only a RUNNING lablet can be reset; it is {lablet.status}"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    fields = on_enter(lablet, LabletStatus.INSTANTIATING, now)
    fields |= {"lab_id": None, "lab_started_at": None, "endpoints": (), "message": ""}
    fields |= {"placement_attempt": lablet.placement_attempt + 1, "left_behind": _add_left_behind(lablet)}
    fields["retries"] = 0
    return updated_record(lablet, now, bump_generation=True, **fields)


def make_anew(lablet: Lablet, now: datetime, class_end: datetime, *, retries: int) -> Lablet:
    """Schedule a failed seat of a class once more: under its id, so that its links and its learner's page stay.

    Labs left behind stay recorded. The next placement has a marker of its own, so none of them is taken for its lab.
    """
    fields = on_enter(lablet, LabletStatus.PENDING_SCHEDULING, now)
    fields |= {"ends_at": max(class_end, lablet.ends_at or class_end), "retries": retries}
    return updated_record(lablet, now, bump_generation=True, **fields)


def _check_goes_on(lablet: Lablet, done: str) -> None:
    if lablet.status in FINAL_LABLET_STATUSES:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"it has ended ({lablet.status}) and cannot be {done}")
    if not lablet.wanted or lablet.ending is not None:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"it is ending and cannot be {done}")


def on_enter(lablet: Lablet, status: LabletStatus, now: datetime) -> dict[str, Any]:
    """The fields that change on entering a status. Illegal transitions raise; the same status changes nothing."""
    check_lablet_transition(lablet.status, status)
    if status is lablet.status:
        return {}
    fields: dict[str, Any] = {"status": status, "status_since": now}
    if status is LabletStatus.RUNNING:
        fields["running_since"] = lablet.running_since or now  # after a reset its time goes on
    if status is LabletStatus.STOPPING and lablet.ending is None:
        fields["ending"] = LabletStatus.TERMINATED
    if status in FINAL_LABLET_STATUSES:
        # Its ports and addresses may belong to another lablet already. The worker it ran on stays on the record.
        fields |= {"ports": {}, "endpoints": (), "lab_id": None, "ending": status, "message": ""}
    if status is LabletStatus.PENDING_SCHEDULING:
        fields |= dict.fromkeys(_PLACEMENT_FIELDS) | {"ports": {}, "endpoints": (), "message": ""}
    return fields


def check_definition_enabled(definition: LabletDefinitionSummary) -> None:
    """Reject a disabled definition: no new lablets are created from it."""
    if not definition.enabled:
        detail = f"definition {definition.id} is disabled; enable it or choose another version"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


def check_times(request: CreateLabletRequest, now: datetime) -> None:
    """The end must be in the future, and after the start."""
    if request.ends_at is None:
        return
    if request.ends_at <= now:
        raise ProblemError(ProblemCode.INVALID, f"ends_at: {request.ends_at.isoformat()} is not in the future")
    if request.starts_at is not None and request.ends_at <= request.starts_at:
        raise ProblemError(ProblemCode.INVALID, "ends_at: must be after starts_at")


def _default_name(definition: str, lablet_id: str) -> str:
    suffix = lablet_id.rpartition("-")[2]
    return f"{definition[: _MAX_NAME_LENGTH - 1 - len(suffix)]}-{suffix}"


def apply_lablet_status(lablet: Lablet, write: LabletStatusUpdate, now: datetime) -> Lablet:
    """Apply what a controller observed or did. An illegal transition raises and changes nothing."""
    check_version("lablet", lablet.version, write.version)
    set_fields = write.model_fields_set
    fields = on_enter(lablet, write.status, now)
    _check_allowed_write(lablet, write.status)
    written: dict[str, Any] = {name: getattr(write, name) for name in _COPIED_FIELDS if name in set_fields}
    if write.placement is not None:
        written["placement"] = _changed_placement(lablet.placement, write.placement)
    if "ending" in set_fields:
        written |= _ending_fields(lablet, write)
    if write.removed_labs:
        written["left_behind"] = _without_removed(lablet, write.removed_labs)
    if write.status in FINAL_LABLET_STATUSES:
        written = {name: value for name, value in written.items() if name in ("message", "placement")}
        written["ending_reason"] = lablet.ending_reason or write.reason
    # Fields of the write override those that the status sets.
    return updated_record(lablet, now, **{**fields, **written})


def apply_release(lablet: Lablet, write: ReleaseLabletRequest, now: datetime) -> Lablet:
    """Release the reservation: the lablet is scheduled again, or has ended."""
    check_version("lablet", lablet.version, write.version)
    if write.status not in FINAL_LABLET_STATUSES and write.status is not LabletStatus.PENDING_SCHEDULING:
        detail = f"status: after a release it must be PENDING_SCHEDULING, {_FINAL_STATUS_NAMES}, not {write.status}"
        raise ProblemError(ProblemCode.INVALID, detail)
    if not lablet.assigned:
        detail = f"there is no reservation to release: the lablet is {lablet.status}"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    fields = on_enter(lablet, write.status, now)
    _check_allowed_write(lablet, write.status)
    if write.status in FINAL_LABLET_STATUSES:
        fields["ending_reason"] = lablet.ending_reason or write.reason
    if write.left_behind:
        fields["left_behind"] = _add_left_behind(lablet)
    return updated_record(lablet, now, **fields)


def _add_left_behind(lablet: Lablet) -> tuple[AbandonedLab, ...]:
    """The labs left behind on former workers, including this one; only the last few are kept."""
    assert lablet.worker_id is not None
    marker = f"{lablet.id}.{lablet.placement_attempt}"
    left = AbandonedLab(worker_id=lablet.worker_id, marker=marker, lab_id=lablet.lab_id)
    return (*lablet.left_behind, left)[-MAX_ABANDONED_LABS:]


def _without_removed(lablet: Lablet, markers: Iterable[str]) -> tuple[AbandonedLab, ...]:
    gone = {(lablet.worker_id, marker) for marker in markers}
    return tuple(left for left in lablet.left_behind if (left.worker_id, left.marker) not in gone)


def _check_allowed_write(lablet: Lablet, status: LabletStatus) -> None:
    """Reject transitions that are legal, but not through this write."""
    if status is lablet.status:
        return
    if status is LabletStatus.SCHEDULED:
        detail = "a lablet becomes SCHEDULED only with a reservation; use POST /api/internal/lablets/schedule"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if status is LabletStatus.INSTANTIATING and lablet.status is LabletStatus.RUNNING:
        detail = "a running lablet becomes INSTANTIATING only by a reset; use POST /api/lablets/{id}/reset"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if lablet.status is LabletStatus.FAILED:
        detail = "a failed seat is made anew only by its class or by a reset; use POST /api/lablets/{id}/reset"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if status is LabletStatus.PENDING_SCHEDULING and not lablet.wanted:
        detail = "the lablet is ending, so it is not scheduled again; write its final status"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


def _ending_fields(lablet: Lablet, write: LabletStatusUpdate) -> dict[str, Any]:
    if write.ending is not None and write.ending not in FINAL_LABLET_STATUSES:
        raise ProblemError(ProblemCode.INVALID, f"ending: must be {_FINAL_STATUS_NAMES}, not {write.ending}")
    if write.ending is None or write.ending is lablet.ending:
        return {}
    return {"ending": write.ending, "ending_reason": write.reason}


def _changed_placement(before: Placement | None, reported: Placement) -> Placement:
    """The placement, unless only its time differs: then the record stays as it is and no watcher is woken."""
    same = before is not None and before.model_copy(update={"at": reported.at}) == reported
    return before if same and before is not None else reported


def place_lablet(
    lablet: Lablet, worker: Worker, write: PlacementRequest, ports: PortRange, now: datetime
) -> tuple[Lablet, Allocation]:
    """The lablet with its worker and ports, and the worker's allocation after it; rejected unless it fits now.

    The caller, who may reserve for several lablets at once, increments the worker's version.
    """
    check_version("lablet", lablet.version, write.version)
    if lablet.status is not LabletStatus.PENDING_SCHEDULING:
        raise IllegalLabletTransitionError(lablet.status, LabletStatus.SCHEDULED)
    if not lablet.wanted:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the lablet is ending")
    needs = lablet.requirements
    until = lablet_end(lablet, now)
    reason_not = rejection_reason(
        worker,
        needs,
        now=now,
        aws_region=lablet.aws_region,
        ports=ports,
        until=until,
        booking_id=lablet.booking_id,
        team=lablet.team,
    )
    free_ports = ports.allocate(needs.ports, worker.allocation.ports)
    if reason_not is not None or free_ports is None:
        code = ProblemCode.HELD if check_hold(worker, now) else ProblemCode.NOT_POSSIBLE_NOW
        raise ProblemError(code, f"it does not fit on {worker.name}: {reason_not or 'too few ports are free'}")
    placed = updated_record(
        lablet,
        now,
        **on_enter(lablet, LabletStatus.SCHEDULED, now),
        worker_id=worker.id,
        ports=free_ports,
        placement=write.placement,
        placement_attempt=lablet.placement_attempt + 1,
        message="",
    )
    return placed, with_lablet(worker.allocation, needs, free_ports.values())


def release_reservations(worker: Worker, lablets: Iterable[Lablet], now: datetime) -> Worker:
    """The worker without the reservations of these lablets, given as they were before they left it."""
    allocation = worker.allocation
    for lablet in lablets:
        allocation = without_lablet(allocation, lablet.requirements, lablet.ports.values())
    return updated_record(worker, now, allocation=allocation)
