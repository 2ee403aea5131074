"""A sweep compared with records: who does not fit, who would be lost, and when that would be too many."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.types import Instance, InstanceState, Sweep
from lcm.controllers.worker.discovery.sweep_diff import SweepDiff, diff_sweep
from lcm.model.worker.conditions import ConditionStatus, ConditionType, with_condition
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.records.workers import a_worker

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

REGION = "eu-west-1"
ACCOUNT = "123456789012"
NOW = a_worker().created_at + timedelta(hours=1)
RUNNING, STOPPED, TERMINATED = InstanceState.RUNNING, InstanceState.STOPPED, InstanceState.TERMINATED


def sweep(**states: InstanceState) -> Sweep:
    """`w3=RUNNING`: the instance of worker w-3 is running."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    shown = [Instance(f"i-{w.removeprefix('w')}", s, "t3.large", "ami-1", moment) for w, s in states.items()]
    return Sweep(REGION, {instance.id: instance for instance in shown}, True, 0.0, ACCOUNT)


def worker(number: int, status: WorkerStatus = WorkerStatus.RUNNING, **changes: object) -> Worker:
    facts = {"id": f"w-{number}", "name": f"n{number}", "instance_id": f"i-{number}", "status": status}
    return a_worker(**{**facts, **changes})


def diff_of(workers: list[Worker], seen: Sweep, *gone: int, accepted: frozenset[str] = frozenset()) -> SweepDiff:
    ids = {f"w-{number}" for number in gone}
    return diff_sweep(REGION, workers, seen, lambda each: each.id in ids, accepted, now=NOW)


FITTING = {
    WorkerStatus.PROVISIONING: InstanceState.PENDING,
    WorkerStatus.STARTING: InstanceState.PENDING,
    WorkerStatus.RUNNING: RUNNING,
    WorkerStatus.DRAINING: RUNNING,
    WorkerStatus.STOPPING: InstanceState.STOPPING,
    WorkerStatus.STOPPED: STOPPED,
    WorkerStatus.TERMINATING: InstanceState.SHUTTING_DOWN,
    WorkerStatus.UNKNOWN: InstanceState.UNKNOWN,
}


@pytest.mark.parametrize("status", FITTING)
@pytest.mark.parametrize("state", InstanceState)
def test_a_status_fits_one_state_and_every_other_is_a_mismatch(status: WorkerStatus, state: InstanceState) -> None:
    """worker-lifecycle.md#statuses."""
    found = diff_of([worker(1, status)], sweep(w1=state))
    assert (found.mismatched == {"w-1"}) == (state is not FITTING[status])


@pytest.mark.parametrize("status", FITTING)
def test_whoever_is_not_to_be_seen_is_a_mismatch(status: WorkerStatus) -> None:
    assert diff_of([worker(1, status)], sweep()).mismatched == {"w-1"}


def test_a_failed_worker_is_woken_whenever_its_instance_is_not_as_recorded() -> None:
    """worker-lifecycle.md#failed: a running instance costs money, so what it does is recorded."""

    def failed(reason: str | None) -> Worker:
        kind, unknown = ConditionType.INSTANCE_READY, ConditionStatus.UNKNOWN
        known = () if reason is None else with_condition((), kind, unknown, now=NOW, reason=reason)
        return worker(1, WorkerStatus.FAILED, conditions=known)

    for seen, reason in ((sweep(w1=RUNNING), "Running"), (sweep(w1=STOPPED), "Stopped"), (sweep(), "NotVisible")):
        assert diff_of([failed(None)], seen).mismatched == {"w-1"}
        assert diff_of([failed("Pending")], seen).mismatched == {"w-1"}
        assert not diff_of([failed(reason)], seen).mismatched
    assert diff_of([failed("Terminated")], sweep(w1=TERMINATED)).mismatched == {"w-1"}
    assert diff_of([failed("NotVisible")], sweep(), 1).mismatched == {"w-1"}


def test_a_pending_worker_is_left_alone() -> None:
    found = diff_of([worker(1, WorkerStatus.PENDING, instance_id=None)], sweep())
    assert not found.mismatched | found.lost
    assert not found.unseen


def test_terminated_or_gone_is_lost_and_not_visible_is_not() -> None:
    """discovery.md#orphans: records compared with a scan."""
    found = diff_of([worker(1), worker(2), worker(3), worker(4)], sweep(w1=TERMINATED, w2=STOPPED), 3)
    assert found.lost == {"w-1", "w-3"}
    assert found.absent == {"w-3"}


@pytest.mark.parametrize(
    "wanted_or_ending",
    [
        worker(1, desired_status=DesiredStatus.TERMINATED),
        worker(1, WorkerStatus.TERMINATING, desired_status=DesiredStatus.TERMINATED),
        worker(1, WorkerStatus.PENDING),
    ],
)
def test_a_worker_that_ends_or_has_not_started_is_not_lost(wanted_or_ending: Worker) -> None:
    assert not diff_of([wanted_or_ending], sweep(), 1).lost


def test_an_undesired_termination_is_a_loss() -> None:
    assert diff_of([worker(1, WorkerStatus.TERMINATING)], sweep(), 1).lost == {"w-1"}


def test_a_worker_of_another_account_is_foreign_and_never_lost() -> None:
    workers = [worker(1, aws_account_id="999999999999"), worker(2, aws_account_id=ACCOUNT), worker(3)]
    found = diff_of(workers, sweep(), 1, 2, 3)
    assert found.foreign == {"w-1"}
    assert found.lost == {"w-2", "w-3"}


def test_seeing_none_of_two_or_more_recorded_instances() -> None:
    """worker-lifecycle.md#breaker: instances that are new or to be terminated do not count."""
    new = NOW - timedelta(seconds=299)
    assert diff_of([worker(1), worker(2)], sweep(w9=RUNNING)).unseen == {"w-1", "w-2"}
    assert not diff_of([worker(1), worker(2)], sweep(w2=TERMINATED)).unseen
    assert not diff_of([worker(1)], sweep()).unseen
    assert not diff_of([worker(1), worker(2, instance_since=new)], sweep()).unseen
    assert not diff_of([worker(1), worker(2, desired_status=DesiredStatus.TERMINATED)], sweep()).unseen
    assert diff_of([worker(1), worker(2), worker(3, instance_since=new)], sweep(w3=RUNNING)).unseen == {"w-1", "w-2"}
    assert not diff_of([worker(1), worker(2)], sweep(), accepted=frozenset({"w-1"})).unseen
    assert not diff_of([], sweep()).unseen


@pytest.mark.parametrize(
    ("workers", "lost", "too_many"),
    [(1, 1, False), (2, 1, False), (2, 2, True), (13, 2, False), (13, 3, True), (20, 4, False), (20, 5, True)],
)
def test_too_many_is_more_than_one_and_more_than_a_fifth(workers: int, lost: int, too_many: bool) -> None:
    everybody = [worker(number) for number in range(workers)]
    states = {f"w{number}": RUNNING for number in range(lost, workers)}
    found = diff_of(everybody, sweep(**states), *range(lost))
    assert len(found.lost) == lost
    assert found.too_many is too_many


def test_accepted_workers_are_not_counted_again() -> None:
    everybody = [worker(number) for number in range(13)]
    accepted = frozenset(f"w-{number}" for number in range(11))
    assert not diff_of(everybody, sweep(), *range(13), accepted=accepted).too_many
    assert diff_of(everybody, sweep(), *range(13), accepted=accepted - {"w-1"}).too_many


def test_workers_of_other_regions_and_terminated_ones_do_not_count() -> None:
    others = [worker(n, aws_region="us-east-1") for n in range(50)] + [worker(60, WorkerStatus.TERMINATED)]
    found = diff_of([*others, *(worker(number) for number in range(70, 74))], sweep(), *range(80))
    assert found.workers == 4
    assert found.too_many


def test_an_incomplete_sweep_is_never_reviewed() -> None:
    with pytest.raises(ValueError, match="incomplete"):
        diff_of([worker(1)], replace(sweep(), complete=False))
