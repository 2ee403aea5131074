"""What becomes of a worker by itself, for each status and each status that it can be wanted in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

_RUNNING, _STOPPED, _TERMINATED = DesiredStatus.RUNNING, DesiredStatus.STOPPED, DesiredStatus.TERMINATED


@dataclass(frozen=True, slots=True)
class NextStep:
    """What happens next, as a clause. `acts`: it takes a change of the world outside, which a hold keeps back."""

    clause: str
    acts: bool = False
    rests: bool = False  # nothing happens until somebody asks for something


def _action(clause: str) -> NextStep:
    return NextStep(clause, acts=True)


def _wait(clause: str) -> NextStep:
    return NextStep(clause)


def _settled(clause: str) -> NextStep:
    return NextStep(clause, rests=True)


_LAUNCH_STEPS = {
    _RUNNING: _action("an instance is launched for it in {region}"),
    _STOPPED: _settled("nothing is launched until somebody wants it running: lcm workers start {name}"),
    _TERMINATED: _wait("it becomes TERMINATED, as nothing was launched for it"),
}
_LAUNCH_INTENT_STEPS = {
    _RUNNING: _action("launch attempt {attempt} is settled: its instance is found and taken over, or launched"),
    _STOPPED: _action("launch attempt {attempt} is settled, and an instance that turns up is stopped"),
    _TERMINATED: _action("launch attempt {attempt} is settled, and an instance that turns up is terminated"),
}

NEXT_STEPS: dict[WorkerStatus, dict[DesiredStatus, NextStep]] = {
    WorkerStatus.PENDING: _LAUNCH_STEPS,
    WorkerStatus.PROVISIONING: {
        _RUNNING: _wait("it becomes STARTING as soon as EC2 says that {instance} is running"),
        _STOPPED: _action("{instance} is stopped as soon as EC2 allows it"),
        _TERMINATED: _action("{instance} is terminated"),
    },
    WorkerStatus.STARTING: {
        _RUNNING: _wait("it becomes RUNNING as soon as {instance} is running and has an address"),
        _STOPPED: _action("{instance} is stopped"),
        _TERMINATED: _action("{instance} is terminated"),
    },
    WorkerStatus.RUNNING: {
        _RUNNING: _wait("it takes lablets as soon as CML answers"),
        _STOPPED: _action("{instance} is stopped"),
        _TERMINATED: _action("{instance} is terminated{licence}"),
    },
    WorkerStatus.DRAINING: {
        _RUNNING: _wait("it goes back to RUNNING"),
        _STOPPED: _action(
            "it takes no new lablets, and {instance} is stopped once no node runs and no lablet is assigned to it,"
            " or when the drain has taken too long"
        ),
        _TERMINATED: _action("{instance} is terminated{licence}"),
    },
    WorkerStatus.STOPPING: {
        _RUNNING: _action("{instance} is started again once it has stopped"),
        _STOPPED: _wait("it becomes STOPPED as soon as EC2 says that {instance} has stopped"),
        _TERMINATED: _action("{instance} is terminated{licence}"),
    },
    WorkerStatus.STOPPED: {
        _RUNNING: _action("{instance} is started"),
        _STOPPED: _settled("it stays stopped until somebody wants it running{needed}: lcm workers start {name}"),
        _TERMINATED: _action("{instance} is terminated"),
    },
    WorkerStatus.TERMINATING: dict.fromkeys(
        DesiredStatus, _wait("it becomes TERMINATED as soon as EC2 says that {instance} has ended{licence}")
    ),
    WorkerStatus.TERMINATED: dict.fromkeys(
        DesiredStatus, _settled("nothing more happens: this is final, and the record is kept as history")
    ),
    WorkerStatus.FAILED: {
        **dict.fromkeys(
            (_RUNNING, _STOPPED),
            _settled(
                "nothing is tried until somebody asks for it: mend the cause and run lcm workers retry {name},"
                " or give it up with lcm workers terminate {name}"
            ),
        ),
        _TERMINATED: _action("{remains}"),
    },
    WorkerStatus.UNKNOWN: {
        _RUNNING: _wait("the record follows as soon as EC2 names a state that is known"),
        _STOPPED: _wait("{instance} is stopped as soon as EC2 names a state that allows it"),
        _TERMINATED: _action("{instance} is terminated"),
    },
}


def next_step_of(worker: Worker) -> NextStep:
    """What happens next if nobody interferes."""
    courses = NEXT_STEPS[worker.status]
    if worker.status is WorkerStatus.PENDING and worker.launch_intent is not None:
        courses = _LAUNCH_INTENT_STEPS
    course = courses[worker.desired_status]
    instance = f"instance {worker.instance_id}" if worker.instance_id else "its instance"
    clause = course.clause.format(
        name=worker.name,
        region=worker.aws_region,
        instance=instance,
        attempt=worker.launch_attempt,
        licence=_license_clause(worker),
        needed=" or scale-up needs it" if worker.paused_by_policy else "",
        remains=f"{instance} is terminated" if worker.instance_id else "it becomes TERMINATED, as it has no instance",
    )
    return NextStep(clause, course.acts, course.rests)


def _license_clause(worker: Worker) -> str:
    return "; its licence is given back first" if worker.license_status is LicenseStatus.REGISTERED else ""
