"""Compares a sweep with all records of its region: which workers differ, and which would be lost.

Everything is counted before anything is written: one missing worker may be lost, but a whole missing region is an error
of the sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from lcm.cloud.instance_cache import VISIBILITY_GRACE_SECONDS
from lcm.cloud.types import InstanceState
from lcm.controllers.worker.decide.shared.conditions import reason_of_state
from lcm.model.fleet.losses import loss_limit
from lcm.model.worker.conditions import NOT_VISIBLE, ConditionType, find_condition
from lcm.model.worker.status import STATUSES, DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from lcm.cloud.types import Sweep
    from lcm.model.worker.record import Worker

MIN_UNSEEN: Final = 2
"""So many recorded instances must be missing before a sweep that shows none of them is taken for an error."""

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
    unseen: frozenset[str]  # all workers whose instance should be visible, if the sweep shows none of them
    too_many: bool


def diff_sweep(
    region: str,
    workers: Sequence[Worker],
    sweep: Sweep,
    gone: Callable[[Worker], bool],
    accepted: frozenset[str] = frozenset(),
    *,
    now: datetime,
) -> SweepDiff:
    """Compare all workers of a region that are not TERMINATED with a complete sweep.

    `accepted` are workers whose loss was confirmed before: they are not counted again.
    """
    if not sweep.complete:
        raise ValueError("an incomplete sweep proves nothing about what is missing from it")
    ours = [
        worker for worker in workers if worker.aws_region == region and worker.status is not WorkerStatus.TERMINATED
    ]
    recorded = [worker for worker in ours if worker.instance_id is not None]
    foreign = frozenset(worker.id for worker in recorded if is_foreign(worker, sweep.account_id))
    lost = frozenset(w.id for w in recorded if w.id not in foreign and _is_lost(w, sweep, gone))
    shown = {worker.id for worker in recorded if worker.instance_id in sweep.instances}
    expected = frozenset(
        worker.id
        for worker in recorded
        if worker.id not in accepted and worker.id not in foreign and _should_be_visible(worker, now)
    )
    return SweepDiff(
        region=region,
        sweep=sweep,
        workers=len(ours),
        mismatched=frozenset(worker.id for worker in recorded if not _matches_record(worker, sweep, gone)),
        lost=lost,
        absent=lost - shown,
        foreign=foreign,
        unseen=expected if len(expected) >= MIN_UNSEEN and not expected & shown else frozenset(),
        too_many=len(lost - accepted) > loss_limit(len(ours)),
    )


def is_foreign(worker: Worker, account_id: str) -> bool:
    """Whether the worker is recorded under another account, so that its absence from this one proves nothing."""
    return worker.aws_account_id is not None and worker.aws_account_id != account_id


def _should_be_visible(worker: Worker, now: datetime) -> bool:
    """Whether EC2 must list the instance: it is not too new, and it is not being terminated on request."""
    if worker.status in _NEVER_LOST or worker.desired_status is DesiredStatus.TERMINATED:
        return False
    return now - (worker.instance_since or worker.created_at) >= timedelta(seconds=VISIBILITY_GRACE_SECONDS)


def _is_lost(worker: Worker, sweep: Sweep, gone: Callable[[Worker], bool]) -> bool:
    if worker.status in _NEVER_LOST or worker.desired_status is DesiredStatus.TERMINATED:
        return False
    return _has_ended(worker, sweep, gone)


def _has_ended(worker: Worker, sweep: Sweep, gone: Callable[[Worker], bool]) -> bool:
    instance = sweep.instances.get(worker.instance_id or "")
    return gone(worker) if instance is None else instance.state is InstanceState.TERMINATED


def _matches_record(worker: Worker, sweep: Sweep, gone: Callable[[Worker], bool]) -> bool:
    instance = sweep.instances.get(worker.instance_id or "")
    if worker.status is WorkerStatus.FAILED:
        # It waits for a person. What its instance does is recorded, because a running one costs money.
        recorded = find_condition(worker.conditions, ConditionType.INSTANCE_READY)
        observed = NOT_VISIBLE if instance is None else reason_of_state(instance.state)
        return recorded is not None and recorded.reason == observed and not _has_ended(worker, sweep, gone)
    expected = STATUSES[worker.status].instance_state
    return expected is None or (instance is not None and instance.state.value == expected)
