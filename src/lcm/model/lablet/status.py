"""Where a lablet is in its life, and which status may follow which."""

from __future__ import annotations

from lcm.model.base import CaseInsensitiveEnum


class LabletStatus(CaseInsensitiveEnum):
    """Where a lablet is."""

    PENDING_SCHEDULING = "PENDING_SCHEDULING"
    SCHEDULED = "SCHEDULED"
    INSTANTIATING = "INSTANTIATING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"


class LostWorkerPolicy(CaseInsensitiveEnum):
    """What becomes of a lablet whose worker was lost."""

    RESCHEDULE = "reschedule"
    FAIL = "fail"


_PENDING, _SCHEDULED = LabletStatus.PENDING_SCHEDULING, LabletStatus.SCHEDULED
_INSTANTIATING, _RUNNING, _STOPPING = LabletStatus.INSTANTIATING, LabletStatus.RUNNING, LabletStatus.STOPPING

FINAL_LABLET_STATUSES = frozenset({LabletStatus.TERMINATED, LabletStatus.FAILED, LabletStatus.EXPIRED})
"""Nothing of it is left on any worker, and nothing is reserved for it."""

ASSIGNED_LABLET_STATUSES = frozenset({_SCHEDULED, _INSTANTIATING, _RUNNING, _STOPPING})
"""It has a worker, and a reservation there."""

ALLOWED_LABLET_TRANSITIONS: dict[LabletStatus, frozenset[LabletStatus]] = {
    _PENDING: frozenset({_SCHEDULED}) | FINAL_LABLET_STATUSES,
    # Until it is INSTANTIATING nothing was asked of CML: it may end, or look for another worker, at once.
    _SCHEDULED: frozenset({_INSTANTIATING, _PENDING}) | FINAL_LABLET_STATUSES,
    # What may have left a lab behind ends by way of STOPPING, unless the whole worker is gone.
    _INSTANTIATING: frozenset({_RUNNING, _STOPPING, _PENDING}) | FINAL_LABLET_STATUSES,
    _RUNNING: frozenset({_STOPPING, _PENDING}) | FINAL_LABLET_STATUSES,
    _STOPPING: frozenset(FINAL_LABLET_STATUSES | {_PENDING}),
    **{final: frozenset() for final in sorted(FINAL_LABLET_STATUSES)},
}


class IllegalLabletTransitionError(Exception):
    """The table has no way from the one to the other."""

    def __init__(self, current: LabletStatus, wanted: LabletStatus) -> None:
        ways = ", ".join(sorted(ALLOWED_LABLET_TRANSITIONS[current])) or "nothing, it is final"
        super().__init__(f"a lablet that is {current} cannot become {wanted}; from there it can become {ways}")
        self.current = current
        self.wanted = wanted


def check_lablet_transition(current: LabletStatus, wanted: LabletStatus) -> None:
    """Raise unless the transition is legal; to stay is always allowed."""
    if wanted is not current and wanted not in ALLOWED_LABLET_TRANSITIONS[current]:
        raise IllegalLabletTransitionError(current, wanted)
