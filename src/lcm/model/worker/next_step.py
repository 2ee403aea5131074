"""What happens to a worker next, for each status and each desired status."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lcm.model.worker.cost import can_release_license, is_instance_stopped
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

_RUNNING, _STOPPED, _TERMINATED = DesiredStatus.RUNNING, DesiredStatus.STOPPED, DesiredStatus.TERMINATED


@dataclass(frozen=True, slots=True)
class NextStep:
    """What happens next, as a clause. An action changes something outside LCM; a hold prevents it."""

    clause: str
    is_action: bool = False
    is_settled: bool = False  # nothing happens until a person requests a change


def _action(clause: str) -> NextStep:
    return NextStep(clause, is_action=True)


def _wait(clause: str) -> NextStep:
    return NextStep(clause)


def _settled(clause: str) -> NextStep:
    return NextStep(clause, is_settled=True)


_MAINTENANCE_STATUSES = (WorkerStatus.STOPPING, WorkerStatus.STOPPED)
_LAUNCH_STEPS = {
    _RUNNING: _action("an instance will be launched for it in {region}"),
    _STOPPED: _settled("no instance will be launched until a start is requested: lcm workers start {name}"),
    _TERMINATED: _wait("it will become TERMINATED because nothing was launched for it"),
}
_LAUNCH_INTENT_STEPS = {
    _RUNNING: _action("launch attempt {attempt} will be resolved: its instance is found and adopted, or launched"),
    _STOPPED: _action("launch attempt {attempt} will be resolved; an instance that it launched will be stopped"),
    _TERMINATED: _action("launch attempt {attempt} will be resolved; an instance that it launched will be terminated"),
}

NEXT_STEPS: dict[WorkerStatus, dict[DesiredStatus, NextStep]] = {
    WorkerStatus.PENDING: _LAUNCH_STEPS,
    WorkerStatus.PROVISIONING: {
        _RUNNING: _wait("it will become STARTING as soon as EC2 reports that {instance} is running"),
        _STOPPED: _action("{instance} will be stopped as soon as EC2 allows it"),
        _TERMINATED: _action("{instance} will be terminated"),
    },
    WorkerStatus.STARTING: {
        _RUNNING: _wait("it will become RUNNING as soon as {instance} is running and has an address"),
        _STOPPED: _action("{instance} will be stopped"),
        _TERMINATED: _action("{instance} will be terminated"),
    },
    WorkerStatus.RUNNING: {
        _RUNNING: _wait("it will accept lablets as soon as CML responds"),
        _STOPPED: _action("{instance} will be stopped"),
        _TERMINATED: _action("{instance} will be terminated{license}"),
    },
    WorkerStatus.DRAINING: {
        _RUNNING: _wait("it will return to RUNNING"),
        _STOPPED: _action(
            "it accepts no new lablets, and {instance} will be stopped once no node is running and no lablet is"
            " assigned to it, or when the drain times out"
        ),
        _TERMINATED: _action("{instance} will be terminated{license}"),
    },
    WorkerStatus.STOPPING: {
        _RUNNING: _action("{instance} will be started again once it has stopped"),
        _STOPPED: _wait("it will become STOPPED as soon as EC2 reports that {instance} has stopped"),
        _TERMINATED: _action("{instance} will be terminated{license}"),
    },
    WorkerStatus.STOPPED: {
        _RUNNING: _action("{instance} will be started"),
        _STOPPED: _settled("it will stay stopped until a start is requested{needed}: lcm workers start {name}"),
        _TERMINATED: _action("{instance} will be terminated{license}"),
    },
    WorkerStatus.TERMINATING: dict.fromkeys(
        DesiredStatus, _wait("it will become TERMINATED as soon as EC2 reports that {instance} is terminated{license}")
    ),
    WorkerStatus.TERMINATED: dict.fromkeys(
        DesiredStatus, _settled("no further changes: TERMINATED is final, and the record is kept as history")
    ),
    WorkerStatus.FAILED: {
        **dict.fromkeys(
            (_RUNNING, _STOPPED),
            _settled(
                "action required: fix the cause and run lcm workers retry {name},"
                " or remove the worker with lcm workers terminate {name}"
            ),
        ),
        _TERMINATED: _action("{cleanup}"),
    },
    WorkerStatus.UNKNOWN: {
        _RUNNING: _wait("the status will be updated as soon as EC2 reports a recognized state"),
        _STOPPED: _wait("{instance} will be stopped as soon as EC2 reports a state that allows it"),
        _TERMINATED: _action("{instance} will be terminated"),
    },
}


def next_step_of(worker: Worker) -> NextStep:
    """Return what happens next if nothing else changes."""
    if worker.unknown_words:
        return _wait(
            f"this version of LCM does not know {', '.join(worker.unknown_words)} and leaves it to a newer one"
        )
    if worker.lacks_kvm and worker.status is WorkerStatus.RUNNING and worker.desired_status is DesiredStatus.RUNNING:
        return _wait(
            f"it will accept lablets only if its CML reports KVM; to remove it: lcm workers terminate {worker.name}"
        )
    if worker.is_in_maintenance and worker.status in _MAINTENANCE_STATUSES:
        stops = " as soon as it has stopped" if worker.status is WorkerStatus.STOPPING else ""
        return _action(f"it will be started again{stops}, on another host")
    steps = NEXT_STEPS[worker.status]
    if worker.status is WorkerStatus.PENDING and worker.launch_intent is not None:
        steps = _LAUNCH_INTENT_STEPS
    step = steps[worker.desired_status]
    instance = f"instance {worker.instance_id}" if worker.instance_id else "its instance"
    cleanup = (
        f"{instance} will be terminated{_license_clause(worker)}"
        if worker.instance_id
        else "it will become TERMINATED because it has no instance"
    )
    clause = step.clause.format(
        name=worker.name,
        region=worker.aws_region,
        instance=instance,
        attempt=worker.launch_attempt,
        license=_license_clause(worker),
        needed=" or scale-up needs it" if worker.paused_by_policy else "",
        cleanup=cleanup,
    )
    return replace(step, clause=clause)


def _license_clause(worker: Worker) -> str:
    if worker.license_status is not LicenseStatus.REGISTERED:
        return ""
    if not worker.release_license:
        return "; its license will not be deregistered; it will be reported as leaked"
    if worker.license_release_started_at is not None:
        return "; it was started once more, and its license will be deregistered first"
    if not can_release_license(worker):
        return "; there are no CML credentials to deregister its license; it will be reported as leaked"
    if is_instance_stopped(worker):
        return "; it will be started once more before that, to deregister its license"
    return "; its license will be deregistered first"
