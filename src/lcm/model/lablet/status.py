"""Where a lablet is in its life, and which status may follow which."""

from __future__ import annotations

from lcm.model.base import Choice


class LabletStatus(Choice):
    """Where a lablet is."""

    PENDING_SCHEDULING = "PENDING_SCHEDULING"
    SCHEDULED = "SCHEDULED"
    INSTANTIATING = "INSTANTIATING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"


class LostWorkerPolicy(Choice):
    """What becomes of a lablet whose worker was lost."""

    RESCHEDULE = "reschedule"
    FAIL = "fail"


_PENDING, _SCHEDULED = LabletStatus.PENDING_SCHEDULING, LabletStatus.SCHEDULED
_INSTANTIATING, _RUNNING, _STOPPING = LabletStatus.INSTANTIATING, LabletStatus.RUNNING, LabletStatus.STOPPING

FINAL = frozenset({LabletStatus.TERMINATED, LabletStatus.FAILED, LabletStatus.EXPIRED})
"""Nothing of it is left on any worker, and nothing is reserved for it."""

ASSIGNED = frozenset({_SCHEDULED, _INSTANTIATING, _RUNNING, _STOPPING})
"""It has a worker, and a reservation there."""

LABLET_LEGAL: dict[LabletStatus, frozenset[LabletStatus]] = {
    _PENDING: frozenset({_SCHEDULED}) | FINAL,
    # Until it is INSTANTIATING nothing was asked of CML: it may end, or look for another worker, at once.
    _SCHEDULED: frozenset({_INSTANTIATING, _PENDING}) | FINAL,
    # What may have left a lab behind ends by way of STOPPING, unless the whole worker is gone.
    _INSTANTIATING: frozenset({_RUNNING, _STOPPING, _PENDING}) | FINAL,
    _RUNNING: frozenset({_STOPPING, _PENDING}) | FINAL,
    _STOPPING: frozenset(FINAL | {_PENDING}),
    **{final: frozenset() for final in sorted(FINAL)},
}


class IllegalLabletTransition(Exception):
    """The table has no way from the one to the other."""

    def __init__(self, current: LabletStatus, wanted: LabletStatus) -> None:
        ways = ", ".join(sorted(LABLET_LEGAL[current])) or "nothing, it is final"
        super().__init__(f"a lablet that is {current} cannot become {wanted}; from there it can become {ways}")
        self.current = current
        self.wanted = wanted


def check_lablet_transition(current: LabletStatus, wanted: LabletStatus) -> None:
    """Raise unless the transition is legal; to stay is always allowed."""
    if wanted is not current and wanted not in LABLET_LEGAL[current]:
        raise IllegalLabletTransition(current, wanted)
