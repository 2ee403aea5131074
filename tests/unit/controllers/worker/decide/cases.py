"""Workers and observations, cell by cell: every status, every desired status, every state of an instance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.cloud.types import InstanceState, LaunchParameters, launch_token
from lcm.controllers.worker.decide import decide
from lcm.controllers.worker.decision import (
    ChangeInstance,
    DeregisterLicense,
    Drain,
    Launch,
    RegisterLicense,
    StoreLaunchIntent,
    WriteStatus,
)
from lcm.controllers.worker.deps import Policy
from lcm.controllers.worker.observe.observation import (
    CmlObservation,
    InstanceObservation,
    LaunchedInstances,
    LaunchResolution,
    LossVerdict,
    Observation,
    Visibility,
)
from lcm.core.controller.resources import Outcome
from lcm.model.fleet.settings import FleetSettings
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lcm.controllers.worker.decision import Decision
    from lcm.model.worker.record import Worker

INSTANCE = "i-0abc"
PUBLIC, PRIVATE = "203.0.113.7", "10.0.0.7"
KIND, IMAGE = "t3.small", "ami-1"
BOOTTIME = 100_000.0
OBSERVED_AT = BOOTTIME - 1

COLUMNS: dict[str, Visibility | InstanceState] = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
    "stopped": InstanceState.STOPPED,
    "shutting-down": InstanceState.SHUTTING_DOWN,
    "terminated": InstanceState.TERMINATED,
    "unknown": InstanceState.UNKNOWN,
    "absent": Visibility.GONE,
    "not-visible": Visibility.NOT_VISIBLE,
    "not-observed": Visibility.NOT_OBSERVED,
}
"""What EC2 can report of an instance, by the names of the grids' columns."""

NO_INSTANCE = "none"
"""The column of workers that have no instance."""

POLICY = Policy(settings=FleetSettings())
_WITHOUT_ADDRESS = (WorkerStatus.PENDING, WorkerStatus.PROVISIONING, WorkerStatus.STOPPED, WorkerStatus.TERMINATED)


def parameters(attempt: int = 1, **changes: Any) -> LaunchParameters:
    """What an attempt would launch."""
    facts: dict[str, Any] = {
        "region": "eu-west-1",
        "client_token": launch_token("w-1", attempt),
        "image_id": IMAGE,
        "instance_type": KIND,
        "subnet_id": "subnet-1",
        "security_group_ids": ("sg-1",),
        "key_name": None,
        "tags": {"lcm:worker_id": "w-1", "lcm:attempt": str(attempt)},
    }
    return LaunchParameters(**{**facts, **changes})


def instance_observation(column: str, *, has_address: bool = True) -> InstanceObservation:
    """An observed instance; only a running one has a public address."""
    shown = COLUMNS[column]
    if isinstance(shown, Visibility):
        return InstanceObservation(shown, began_at=OBSERVED_AT)
    public = PUBLIC if has_address and shown is InstanceState.RUNNING else None
    private = PRIVATE if has_address and shown is not InstanceState.TERMINATED else None
    return InstanceObservation(Visibility.SEEN, shown, public, private, KIND, IMAGE, began_at=OBSERVED_AT)


def observing(column: str, *, has_address: bool = True, **more: Any) -> Observation:
    """An observation: EC2 reports this, CML is ready and unused, and an instance may be marked as lost."""
    instance = (
        InstanceObservation(Visibility.NOT_OBSERVED)
        if column == NO_INSTANCE
        else instance_observation(column, has_address=has_address)
    )
    facts: dict[str, Any] = {
        "instance": instance,
        "cml": CmlObservation(queried_at=NOW, ready=True, running_nodes=0),
        "loss_verdict": LossVerdict.ALLOWED,
        "boottime": BOOTTIME,
    }
    return Observation(**{**facts, **more})


def observing_no_launch(**more: Any) -> Observation:
    """The observation of a worker without an instance: a complete search found none, and the launch is resolved."""
    facts: dict[str, Any] = {
        "launched_instances": LaunchedInstances(complete=True, began_at=OBSERVED_AT),
        "resolution": LaunchResolution(parameters()),
    }
    return observing(NO_INSTANCE, **{**facts, **more})


def worker_in(status: WorkerStatus | str, desired: DesiredStatus | str = "RUNNING", **changes: Any) -> Worker:
    """A worker that has just entered this status, with a recorded instance; PENDING has none."""
    status = WorkerStatus(status)
    facts: dict[str, Any] = {
        "status": status,
        "desired_status": DesiredStatus(desired),
        "status_since": NOW - timedelta(seconds=10),
        "created_at": NOW - timedelta(days=2),
        "updated_at": NOW - timedelta(seconds=10),
    }
    if status is not WorkerStatus.PENDING:
        facts |= {
            "instance_id": INSTANCE,
            "instance_since": NOW - timedelta(days=1),
            "instance_type": KIND,
            "ami_id": IMAGE,
            "public_ip": None if status in _WITHOUT_ADDRESS else PUBLIC,
            "private_ip": PRIVATE,
            "launch_attempt": 1,
        }
    return a_worker(**{**facts, **changes})


def worker_without_instance(
    status: WorkerStatus | str, desired: DesiredStatus | str = "RUNNING", **changes: Any
) -> Worker:
    """A worker in this status without an instance."""
    nothing = {"instance_id": None, "instance_since": None, "public_ip": None, "private_ip": None}
    return worker_in(status, desired, **{**nothing, **changes})


def seconds_ago(seconds: float) -> Any:
    """The time that many seconds before now."""
    return NOW - timedelta(seconds=seconds)


def decided(worker: Worker, observed: Observation, policy: Policy = POLICY) -> Decision:
    """What is decided now."""
    return decide(worker, observed, policy, NOW)


def statuses(decision: Decision) -> list[WorkerStatus]:
    """The statuses that are written, in order."""
    return [action.status for action in decision.actions if isinstance(action, WriteStatus)]


def calls(decision: Decision) -> list[str]:
    """The calls with an external effect, in order."""
    words: list[str] = []
    for action in decision.actions:
        match action:
            case ChangeInstance(call):
                words.append(call.value)
            case StoreLaunchIntent():
                words.append("intent")
            case Launch():
                words.append("launch")
            case RegisterLicense():
                words.append("register")
            case DeregisterLicense():
                words.append("release")
            case Drain():
                words.append("drain")
            case _:
                pass
    return words


def notation(decision: Decision) -> str:
    """A decision in the notation of the grids."""
    done = ">".join(statuses(decision)) + "".join(f"+{call}" for call in calls(decision))
    if done:
        return done
    return {Outcome.SUCCESS: "rest", Outcome.SKIP: "skip"}.get(decision.outcome, "wait")


@dataclass(frozen=True)
class Cell:
    """A worker and its observation."""

    worker: Worker
    column: str
    observed: Observation

    def __str__(self) -> str:
        return f"{self.worker.status} desired {self.worker.desired_status}, EC2 reports {self.column}"

    def like(self, worker: dict[str, Any] | None = None, **observed: Any) -> Cell:
        """The same cell with other facts."""
        return Cell(self.worker.model_copy(update=worker or {}), self.column, replace(self.observed, **observed))

    def decided(self, policy: Policy = POLICY) -> Decision:
        """What is decided now."""
        return decided(self.worker, self.observed, policy)


def cell(status: WorkerStatus | str, desired: DesiredStatus | str, column: str) -> Cell:
    """The cell of a grid."""
    if column == NO_INSTANCE:
        return Cell(worker_without_instance(status, desired), column, observing_no_launch())
    if WorkerStatus(status) is WorkerStatus.PENDING:
        worker = worker_in(status, desired, instance_id=INSTANCE, instance_since=seconds_ago(86_400), launch_attempt=1)
        return Cell(worker, column, replace(observing_no_launch(), instance=instance_observation(column)))
    return Cell(worker_in(status, desired), column, observing(column))


def all_cells() -> Iterator[Cell]:
    """Every cell of every grid, and the impossible ones: PENDING with an instance."""
    for status in WorkerStatus:
        for desired in DesiredStatus:
            for column in (*COLUMNS, NO_INSTANCE):
                yield cell(status, desired, column)
