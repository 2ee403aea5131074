"""What a worker is, and what it is wanted to be."""

from __future__ import annotations

from lcm.model.base import CaseInsensitiveEnum


class WorkerStatus(CaseInsensitiveEnum):
    """Where a worker is in its life."""

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
    """What a worker is wanted to be. TERMINATED is final once set."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    TERMINATED = "TERMINATED"


class WorkerOrigin(CaseInsensitiveEnum):
    """How a record came to be."""

    CREATED = "created"
    IMPORTED = "imported"
    SCALE_UP = "scale-up"


class LostInstancePolicy(CaseInsensitiveEnum):
    """What becomes of a worker whose instance is gone."""

    TERMINATE = "terminate"
    REPLACE = "replace"


class LicenseStatus(CaseInsensitiveEnum):
    """Where a worker's licence stands."""

    UNREGISTERED = "unregistered"
    REGISTERING = "registering"
    REGISTERED = "registered"
    FAILED = "failed"
    DEREGISTERED = "deregistered"


class LicenseOperation(CaseInsensitiveEnum):
    """What can be done with a licence."""

    REGISTER = "register"
    DEREGISTER = "deregister"


_PENDING, _PROVISIONING, _STARTING = WorkerStatus.PENDING, WorkerStatus.PROVISIONING, WorkerStatus.STARTING
_RUNNING, _DRAINING, _UNKNOWN = WorkerStatus.RUNNING, WorkerStatus.DRAINING, WorkerStatus.UNKNOWN
_STOPPING, _STOPPED = WorkerStatus.STOPPING, WorkerStatus.STOPPED
_TERMINATING, _TERMINATED, _FAILED = WorkerStatus.TERMINATING, WorkerStatus.TERMINATED, WorkerStatus.FAILED

ALLOWED_TRANSITIONS: dict[WorkerStatus, frozenset[WorkerStatus]] = {
    _PENDING: frozenset({_PROVISIONING, _FAILED, _TERMINATED}),
    _PROVISIONING: frozenset(
        {_STARTING, _FAILED, _TERMINATING, _STOPPING, _STOPPED, _TERMINATED, _PENDING, _UNKNOWN},
    ),
    _STARTING: frozenset({_RUNNING, _FAILED, _STOPPING, _TERMINATING, _STOPPED, _TERMINATED, _PENDING, _UNKNOWN}),
    _RUNNING: frozenset(
        {_STOPPING, _TERMINATING, _DRAINING, _PROVISIONING, _STOPPED, _TERMINATED, _PENDING, _UNKNOWN},
    ),
    _DRAINING: frozenset({_STOPPING, _RUNNING, _TERMINATING, _STOPPED, _TERMINATED, _UNKNOWN}),
    _STOPPING: frozenset({_STOPPED, _RUNNING, _TERMINATING, _TERMINATED, _PENDING, _UNKNOWN}),
    _STOPPED: frozenset({_STARTING, _RUNNING, _TERMINATING, _TERMINATED, _PENDING, _UNKNOWN}),
    _TERMINATING: frozenset({_TERMINATED, _UNKNOWN}),
    _FAILED: frozenset({_STARTING, _PENDING, _TERMINATING, _TERMINATED}),
    _UNKNOWN: frozenset(
        {_PROVISIONING, _RUNNING, _STOPPING, _STOPPED, _TERMINATING, _TERMINATED, _STARTING, _PENDING},
    ),
    _TERMINATED: frozenset(),
}


class IllegalWorkerTransitionError(Exception):
    """The table has no way from the one to the other."""

    def __init__(self, current: WorkerStatus, wanted: WorkerStatus) -> None:
        ways = ", ".join(sorted(ALLOWED_TRANSITIONS[current])) or "nothing, it is final"
        super().__init__(f"a worker that is {current} cannot become {wanted}; from there it can become {ways}")
        self.current = current
        self.wanted = wanted


def is_allowed_transition(current: WorkerStatus, wanted: WorkerStatus) -> bool:
    """Whether a worker may go there. To stay is no transition, and always allowed."""
    return wanted is current or wanted in ALLOWED_TRANSITIONS[current]


def check_transition(current: WorkerStatus, wanted: WorkerStatus) -> None:
    """Raise unless the transition is legal."""
    if not is_allowed_transition(current, wanted):
        raise IllegalWorkerTransitionError(current, wanted)
