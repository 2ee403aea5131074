"""Status values of a lablet, and a table of all that follows from a status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.model.base import CaseInsensitiveEnum

if TYPE_CHECKING:
    from collections.abc import Mapping


class LabletStatus(CaseInsensitiveEnum):
    """The lifecycle status of a lablet."""

    PENDING_SCHEDULING = "PENDING_SCHEDULING"
    SCHEDULED = "SCHEDULED"
    INSTANTIATING = "INSTANTIATING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"


class LostWorkerPolicy(CaseInsensitiveEnum):
    """What happens to a lablet whose worker is lost."""

    RESCHEDULE = "reschedule"
    FAIL = "fail"


_PENDING, _SCHEDULED = LabletStatus.PENDING_SCHEDULING, LabletStatus.SCHEDULED
_INSTANTIATING, _RUNNING, _STOPPING = LabletStatus.INSTANTIATING, LabletStatus.RUNNING, LabletStatus.STOPPING
_FINAL = frozenset({LabletStatus.TERMINATED, LabletStatus.FAILED, LabletStatus.EXPIRED})


@dataclass(frozen=True, slots=True, kw_only=True)
class LabletStatusInfo:
    """All that follows from the status alone. The sets below are derived from it."""

    next: frozenset[LabletStatus] = frozenset()  # allowed transitions
    final: bool = False
    assigned: bool = False
    has_lab: bool = False  # a lab may exist on the worker


class _LabletStatusTable(dict[LabletStatus, LabletStatusInfo]):
    """The statuses of this version. About one of a newer version nothing is known, and nothing follows from it."""

    def __missing__(self, status: LabletStatus) -> LabletStatusInfo:
        return LabletStatusInfo()


_TABLE: Mapping[LabletStatus, LabletStatusInfo] = {
    _PENDING: LabletStatusInfo(next=_FINAL | {_SCHEDULED}),
    # Before INSTANTIATING nothing was requested from CML: the lablet may end or be rescheduled at once.
    _SCHEDULED: LabletStatusInfo(next=_FINAL | {_INSTANTIATING, _PENDING}, assigned=True),
    # A lablet that may have a lab on the worker ends through STOPPING, unless the whole worker is gone.
    _INSTANTIATING: LabletStatusInfo(next=_FINAL | {_RUNNING, _STOPPING, _PENDING}, assigned=True, has_lab=True),
    # A reset makes a new lab on the same worker.
    _RUNNING: LabletStatusInfo(next=_FINAL | {_STOPPING, _PENDING, _INSTANTIATING}, assigned=True, has_lab=True),
    _STOPPING: LabletStatusInfo(next=_FINAL | {_PENDING}, assigned=True, has_lab=True),
    **dict.fromkeys(sorted(_FINAL), LabletStatusInfo(final=True)),
    # A failed seat of a class that is under way is made anew. Whatever else has failed stays so.
    LabletStatus.FAILED: LabletStatusInfo(next=frozenset({_PENDING}), final=True),
}
LABLET_STATUSES: Mapping[LabletStatus, LabletStatusInfo] = _LabletStatusTable(_TABLE)

FINAL_LABLET_STATUSES = frozenset(status for status, info in LABLET_STATUSES.items() if info.final)
"""Nothing of the lablet is left on any worker, and nothing is reserved for it."""

ASSIGNED_LABLET_STATUSES = frozenset(status for status, info in LABLET_STATUSES.items() if info.assigned)
"""The lablet has a reservation on a worker."""

NOT_ON_CML_STATUSES = frozenset(
    status for status, info in LABLET_STATUSES.items() if not info.final and not info.has_lab
)
"""No lab was requested from CML yet."""


class IllegalLabletTransitionError(Exception):
    """The requested status transition is not allowed."""

    def __init__(self, current: LabletStatus, target: LabletStatus) -> None:
        none = "none, the status is final" if current.is_known else "none that this version of LCM knows"
        allowed = ", ".join(sorted(LABLET_STATUSES[current].next)) or none
        super().__init__(f"a lablet cannot go from {current} to {target}; allowed next statuses: {allowed}")
        self.current = current
        self.target = target


def check_lablet_transition(current: LabletStatus, target: LabletStatus) -> None:
    """Raise unless the transition is allowed; keeping the status is always allowed."""
    if target is not current and target not in LABLET_STATUSES[current].next:
        raise IllegalLabletTransitionError(current, target)
