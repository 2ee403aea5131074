"""Status values of a worker, and a table of all that follows from a status.

The control plane enforces the transitions, and the controllers decide by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lcm.model.base import CaseInsensitiveEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class WorkerStatus(CaseInsensitiveEnum):
    """The lifecycle status of a worker."""

    PENDING = "PENDING"
    PROVISIONING = "PROVISIONING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


class DesiredStatus(CaseInsensitiveEnum):
    """The desired status of a worker. TERMINATED is final once set."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    TERMINATED = "TERMINATED"


class WorkerOrigin(CaseInsensitiveEnum):
    """How a worker record was created."""

    CREATED = "created"
    IMPORTED = "imported"
    SCALE_UP = "scale-up"


class LostInstancePolicy(CaseInsensitiveEnum):
    """What happens to a worker whose instance is lost."""

    TERMINATE = "terminate"
    REPLACE = "replace"


class LicenseStatus(CaseInsensitiveEnum):
    """The license status of a worker."""

    UNREGISTERED = "unregistered"
    REGISTERING = "registering"
    REGISTERED = "registered"
    FAILED = "failed"
    DEREGISTERED = "deregistered"


class LicenseOperation(CaseInsensitiveEnum):
    """A license operation that can be requested."""

    REGISTER = "register"
    DEREGISTER = "deregister"


_PENDING, _PROVISIONING, _STARTING = WorkerStatus.PENDING, WorkerStatus.PROVISIONING, WorkerStatus.STARTING
_RUNNING, _DRAINING, _UNKNOWN = WorkerStatus.RUNNING, WorkerStatus.DRAINING, WorkerStatus.UNKNOWN
_STOPPING, _STOPPED = WorkerStatus.STOPPING, WorkerStatus.STOPPED
_TERMINATING, _TERMINATED, _FAILED = WorkerStatus.TERMINATING, WorkerStatus.TERMINATED, WorkerStatus.FAILED


class Tone(Enum):
    """How a status is shown; the command line maps it to colors."""

    HEALTHY = "healthy"
    IN_PROGRESS = "in progress"
    ENDING = "ending"
    INACTIVE = "inactive"
    UNKNOWN = "unknown"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInfo:
    """All that follows from the status alone. The sets below are derived from it."""

    next: frozenset[WorkerStatus]  # allowed transitions
    leads_to: DesiredStatus | None = None  # the desired status that it is, or is on its way to
    in_progress: bool = False
    settled_for: tuple[DesiredStatus, ...] = ()  # the desired statuses with which nothing is pending
    instance_state: str | None = None  # the EC2 state in which it needs no action; None: none or any
    has_address: bool = True  # whether its instance may have a public address
    runs_cml: bool = False
    billed: bool = False  # whether its instance is charged as running; use `instance_runs`, which knows what was seen
    tone: Tone = Tone.IN_PROGRESS


class _StatusTable(dict[WorkerStatus, StatusInfo]):
    """The statuses of this version. About one of a newer version nothing is known, and nothing follows from it."""

    def __missing__(self, status: WorkerStatus) -> StatusInfo:
        return StatusInfo(next=frozenset(), billed=True, tone=Tone.UNKNOWN)


_TABLE: Mapping[WorkerStatus, StatusInfo] = {
    _PENDING: StatusInfo(
        next=frozenset({_PROVISIONING, _FAILED, _TERMINATED}),
        leads_to=DesiredStatus.RUNNING,
        in_progress=True,
        settled_for=(DesiredStatus.STOPPED,),  # unless a launch attempt is unresolved
        has_address=False,
    ),
    _PROVISIONING: StatusInfo(
        next=frozenset({_STARTING, _FAILED, _TERMINATING, _STOPPING, _STOPPED, _TERMINATED, _PENDING, _UNKNOWN}),
        leads_to=DesiredStatus.RUNNING,
        in_progress=True,
        instance_state="pending",
        billed=True,
    ),
    _STARTING: StatusInfo(
        next=frozenset({_RUNNING, _FAILED, _STOPPING, _TERMINATING, _STOPPED, _TERMINATED, _PENDING, _UNKNOWN}),
        leads_to=DesiredStatus.RUNNING,
        in_progress=True,
        instance_state="pending",
        billed=True,
    ),
    _RUNNING: StatusInfo(
        next=frozenset({_STOPPING, _TERMINATING, _DRAINING, _PROVISIONING, _STOPPED, _TERMINATED, _PENDING, _UNKNOWN}),
        leads_to=DesiredStatus.RUNNING,
        instance_state="running",
        runs_cml=True,
        billed=True,
        tone=Tone.HEALTHY,
    ),
    _DRAINING: StatusInfo(
        next=frozenset({_STOPPING, _RUNNING, _TERMINATING, _STOPPED, _TERMINATED, _UNKNOWN}),
        leads_to=DesiredStatus.STOPPED,
        in_progress=True,
        instance_state="running",
        runs_cml=True,
        billed=True,
    ),
    _STOPPING: StatusInfo(
        next=frozenset({_STOPPED, _RUNNING, _TERMINATING, _TERMINATED, _PENDING, _UNKNOWN}),
        leads_to=DesiredStatus.STOPPED,
        in_progress=True,
        instance_state="stopping",
        billed=True,
    ),
    _STOPPED: StatusInfo(
        next=frozenset({_STARTING, _RUNNING, _TERMINATING, _TERMINATED, _PENDING, _UNKNOWN}),
        leads_to=DesiredStatus.STOPPED,
        settled_for=(DesiredStatus.STOPPED,),
        instance_state="stopped",
        has_address=False,
        tone=Tone.INACTIVE,
    ),
    _TERMINATING: StatusInfo(
        next=frozenset({_TERMINATED, _UNKNOWN}),
        leads_to=DesiredStatus.TERMINATED,
        in_progress=True,
        instance_state="shutting-down",
        billed=True,  # until EC2 has accepted the termination, which waits for the license
        tone=Tone.ENDING,
    ),
    _FAILED: StatusInfo(
        next=frozenset({_STARTING, _PENDING, _TERMINATING, _TERMINATED}),
        settled_for=(DesiredStatus.RUNNING, DesiredStatus.STOPPED),
        tone=Tone.FAILED,
    ),
    _UNKNOWN: StatusInfo(
        next=frozenset({_PROVISIONING, _RUNNING, _STOPPING, _STOPPED, _TERMINATING, _TERMINATED, _STARTING, _PENDING}),
        instance_state="unknown",
        billed=True,
        tone=Tone.UNKNOWN,
    ),
    _TERMINATED: StatusInfo(
        next=frozenset(),
        leads_to=DesiredStatus.TERMINATED,
        settled_for=tuple(DesiredStatus),
        has_address=False,
        tone=Tone.INACTIVE,
    ),
}
STATUSES: Mapping[WorkerStatus, StatusInfo] = _StatusTable(_TABLE)


def _statuses(condition: Callable[[StatusInfo], bool]) -> tuple[WorkerStatus, ...]:
    return tuple(status for status in WorkerStatus if condition(STATUSES[status]))


LAUNCHING_STATUSES = _statuses(lambda info: info.in_progress and info.leads_to is DesiredStatus.RUNNING)
CML_STATUSES = _statuses(lambda info: info.runs_cml)
"""CML runs: labs can be counted, and lablets may be on the worker."""
NO_ADDRESS_STATUSES = _statuses(lambda info: not info.has_address)
STOP_STATUSES = (_STOPPING, _STOPPED)


class IllegalWorkerTransitionError(Exception):
    """The requested status transition is not allowed."""

    def __init__(self, current: WorkerStatus, target: WorkerStatus) -> None:
        none = "none, the status is final" if current.is_known else "none that this version of LCM knows"
        allowed = ", ".join(sorted(STATUSES[current].next)) or none
        super().__init__(f"a worker cannot go from {current} to {target}; allowed next statuses: {allowed}")
        self.current = current
        self.target = target


def is_allowed_transition(current: WorkerStatus, target: WorkerStatus) -> bool:
    """Whether the transition is allowed. Keeping the status is always allowed."""
    return target is current or target in STATUSES[current].next


def check_transition(current: WorkerStatus, target: WorkerStatus) -> None:
    """Raise unless the transition is allowed."""
    if not is_allowed_transition(current, target):
        raise IllegalWorkerTransitionError(current, target)
