"""A sweep compared with all records of its region: whom it contradicts, and who would be lost by it.

Everything is counted before anything is written: one worker that is missing may be lost, a whole region that is missing
is a mistake of the one who looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lcm.cloud.types import InstanceState
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.cloud.types import Sweep
    from lcm.model.worker.record import Worker

MAX_LOST_AT_ONCE: Final = 3
LOST_DIVISOR: Final = 5

# The state of an instance that gives its worker nothing to do: as it should be, or on its way there.
_EXPECTED_STATES: Final = {
    WorkerStatus.PROVISIONING: InstanceState.PENDING,
    WorkerStatus.STARTING: InstanceState.PENDING,
    WorkerStatus.RUNNING: InstanceState.RUNNING,
    WorkerStatus.DRAINING: InstanceState.RUNNING,
    WorkerStatus.STOPPING: InstanceState.STOPPING,
    WorkerStatus.STOPPED: InstanceState.STOPPED,
    WorkerStatus.TERMINATING: InstanceState.SHUTTING_DOWN,
    WorkerStatus.UNKNOWN: InstanceState.UNKNOWN,
}
_NEVER_LOST: Final = (WorkerStatus.PENDING, WorkerStatus.TERMINATED)


@dataclass(frozen=True, slots=True)
class SweepDiff:
    """What a complete sweep says about the records of its region. Sets are of worker ids."""

    region: str
    sweep: Sweep
    workers: int
    mismatched: frozenset[str]
    lost: frozenset[str]
    absent: frozenset[str]  # those of the lost that EC2 shows no more, not even as terminated
    foreign: frozenset[str]
    none_visible: bool
    too_many: bool

    @property
    def loss_limit(self) -> float:
        """How many may be lost at once without anybody being asked."""
        return loss_limit(self.workers)


def diff_sweep(
    region: str,
    workers: Sequence[Worker],
    sweep: Sweep,
    gone: Callable[[Worker], bool],
    accepted: frozenset[str] = frozenset(),
) -> SweepDiff:
    """Compare all workers of a region that are not TERMINATED with a sweep that shows all that can be found of them."""
    if not sweep.complete:
        raise ValueError("an incomplete sweep says nothing about what it does not show")
    ours = [
        worker for worker in workers if worker.aws_region == region and worker.status is not WorkerStatus.TERMINATED
    ]
    recorded = [worker for worker in ours if worker.instance_id is not None]
    foreign = frozenset(worker.id for worker in recorded if is_foreign(worker, sweep.account_id))
    lost = frozenset(w.id for w in recorded if w.id not in foreign and _is_lost(w, sweep, gone))
    shown = {worker.id for worker in recorded if worker.instance_id in sweep.instances}
    return SweepDiff(
        region=region,
        sweep=sweep,
        workers=len(ours),
        mismatched=frozenset(worker.id for worker in recorded if not _matches_record(worker, sweep, gone)),
        lost=lost,
        absent=lost - shown,
        foreign=foreign,
        none_visible=bool(recorded) and not shown,
        too_many=len(lost - accepted) > loss_limit(len(ours)),
    )


def loss_limit(workers: int) -> float:
    """How many of so many may be lost at once: three, or one of five."""
    return max(MAX_LOST_AT_ONCE, workers / LOST_DIVISOR)


def is_foreign(worker: Worker, account_id: str) -> bool:
    """Whether it is recorded under another account than this one, in which its absence proves nothing."""
    return worker.aws_account_id is not None and worker.aws_account_id != account_id


def _is_lost(worker: Worker, sweep: Sweep, gone: Callable[[Worker], bool]) -> bool:
    if worker.status in _NEVER_LOST or worker.desired_status is DesiredStatus.TERMINATED:
        return False
    return _has_ended(worker, sweep, gone)


def _has_ended(worker: Worker, sweep: Sweep, gone: Callable[[Worker], bool]) -> bool:
    instance = sweep.instances.get(worker.instance_id or "")
    return gone(worker) if instance is None else instance.state is InstanceState.TERMINATED


def _matches_record(worker: Worker, sweep: Sweep, gone: Callable[[Worker], bool]) -> bool:
    if worker.status is WorkerStatus.FAILED:
        # It waits for a person, whatever its instance does meanwhile; only an end is written down.
        return not _has_ended(worker, sweep, gone)
    expected = _EXPECTED_STATES.get(worker.status)
    instance = sweep.instances.get(worker.instance_id or "")
    return expected is None or (instance is not None and instance.state is expected)
