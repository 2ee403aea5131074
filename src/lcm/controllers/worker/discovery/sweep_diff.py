"""Compares a sweep with all records of its region: which workers differ, and which would be lost.

Everything is counted before anything is written: one missing worker may be lost, but a whole missing region is an error
of the sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lcm.cloud.types import InstanceState
from lcm.model.worker.status import STATUSES, DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.cloud.types import Sweep
    from lcm.model.worker.record import Worker

MAX_LOST_AT_ONCE: Final = 3
LOST_DIVISOR: Final = 5

_NEVER_LOST: Final = (WorkerStatus.PENDING, WorkerStatus.TERMINATED)


@dataclass(frozen=True, slots=True)
class SweepDiff:
    """The result of a complete sweep for the records of its region. The sets contain worker ids."""

    region: str
    sweep: Sweep
    workers: int
    mismatched: frozenset[str]
    lost: frozenset[str]
    absent: frozenset[str]  # the lost workers whose instance EC2 no longer lists, not even as terminated
    foreign: frozenset[str]
    none_visible: bool
    too_many: bool

    @property
    def loss_limit(self) -> float:
        """How many may be lost at once without confirmation."""
        return loss_limit(self.workers)


def diff_sweep(
    region: str,
    workers: Sequence[Worker],
    sweep: Sweep,
    gone: Callable[[Worker], bool],
    accepted: frozenset[str] = frozenset(),
) -> SweepDiff:
    """Compare all workers of a region that are not TERMINATED with a complete sweep."""
    if not sweep.complete:
        raise ValueError("an incomplete sweep proves nothing about what is missing from it")
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
    """How many of the workers may be lost at once: three or a fifth of them, whichever is more."""
    return max(MAX_LOST_AT_ONCE, workers / LOST_DIVISOR)


def is_foreign(worker: Worker, account_id: str) -> bool:
    """Whether the worker is recorded under another account, so that its absence from this one proves nothing."""
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
        # It waits for a person, whatever its instance does; only the end of the instance is recorded.
        return not _has_ended(worker, sweep, gone)
    expected = STATUSES[worker.status].instance_state
    instance = sweep.instances.get(worker.instance_id or "")
    return expected is None or (instance is not None and instance.state.value == expected)
