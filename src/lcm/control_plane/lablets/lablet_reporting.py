"""What controllers write of a lablet: its status, what was found, that its reservation is given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.control_plane.errors import Refusal
from lcm.control_plane.lablets.lifecycle import entering, moved
from lcm.model.lablet.record import MOST_LEFT_BEHIND, LeftBehind
from lcm.model.lablet.status import FINAL, LabletStatus
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.record import Lablet, LabletRelease, LabletStatusWrite, Placement

_WRITTEN_AS_GIVEN = ("instance_id", "lab_id", "lab_started_at", "endpoints", "message")
_ENDINGS = ", ".join(sorted(FINAL))


def check_version(lablet: Lablet, version: int) -> None:
    """A writer that has not seen the present record must look again."""
    if version != lablet.version:
        detail = f"the lablet is at version {lablet.version}, not {version}; read it again"
        raise Refusal(ProblemCode.VERSION_CONFLICT, detail, current={"version": lablet.version})


def write_status(lablet: Lablet, write: LabletStatusWrite, now: datetime) -> Lablet:
    """Take over what a controller found or did; a transition that is not legal raises and changes nothing."""
    check_version(lablet, write.version)
    given = write.model_fields_set
    fields = entering(lablet, write.status, now)
    _check_way(lablet, write.status)
    told: dict[str, Any] = {name: getattr(write, name) for name in _WRITTEN_AS_GIVEN if name in given}
    if write.placement is not None:
        told["placement"] = _newer(lablet.placement, write.placement)
    if "ending" in given:
        told |= _ending(lablet, write)
    if write.status in FINAL:
        told = {name: value for name, value in told.items() if name in ("message", "placement")}
        told["ending_reason"] = lablet.ending_reason or write.reason
    # What a status brings with it counts, except where the writer knows better.
    return moved(lablet, now, **{**fields, **told})


def release(lablet: Lablet, write: LabletRelease, now: datetime) -> Lablet:
    """Give the reservation back: it looks for another worker, or has ended."""
    check_version(lablet, write.version)
    if write.status not in FINAL and write.status is not LabletStatus.PENDING_SCHEDULING:
        detail = f"status: a lablet without a worker is PENDING_SCHEDULING, {_ENDINGS}, not {write.status}"
        raise Refusal(ProblemCode.INVALID, detail)
    if not lablet.assigned:
        detail = f"there is nothing to give back: the lablet is {lablet.status}"
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, detail)
    fields = entering(lablet, write.status, now)
    _check_way(lablet, write.status)
    if write.status in FINAL:
        fields["ending_reason"] = lablet.ending_reason or write.reason
    if write.left_behind:
        fields["left_behind"] = _left_behind(lablet)
    return moved(lablet, now, **fields)


def _left_behind(lablet: Lablet) -> tuple[LeftBehind, ...]:
    """What it leaves on its worker, beside what it left before; only the last few are kept."""
    assert lablet.worker_id is not None
    marker = f"{lablet.id}.{lablet.placement_attempt}"
    left = LeftBehind(worker_id=lablet.worker_id, marker=marker, lab_id=lablet.lab_id)
    return (*lablet.left_behind, left)[-MOST_LEFT_BEHIND:]


def _check_way(lablet: Lablet, status: LabletStatus) -> None:
    """What the table allows but not by this way."""
    if status is lablet.status:
        return
    if status is LabletStatus.SCHEDULED:
        detail = "a lablet becomes SCHEDULED only with a reservation: POST /api/internal/lablets/schedule"
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if status is LabletStatus.PENDING_SCHEDULING and not lablet.wanted:
        detail = "the lablet is to end, so it does not look for another worker; write how it ended"
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, detail)


def _ending(lablet: Lablet, write: LabletStatusWrite) -> dict[str, Any]:
    if write.ending is not None and write.ending not in FINAL:
        raise Refusal(ProblemCode.INVALID, f"ending: must be {_ENDINGS}, not {write.ending}")
    if write.ending is None or write.ending is lablet.ending:
        return {}
    return {"ending": write.ending, "ending_reason": write.reason}


def _newer(before: Placement | None, told: Placement) -> Placement:
    """Looking again and finding the same is no news: the record stays as it is, and nobody is woken."""
    same = before is not None and before.model_copy(update={"at": told.at}) == told
    return before if same and before is not None else told
