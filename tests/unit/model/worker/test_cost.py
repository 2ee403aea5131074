"""Which workers cost money now."""

from __future__ import annotations

import pytest

from lcm.model.worker.conditions import ConditionStatus, ConditionType, with_condition
from lcm.model.worker.cost import is_billed
from lcm.model.worker.status import WorkerStatus
from tests.support.records.workers import NOW, a_worker

FREE = (WorkerStatus.PENDING, WorkerStatus.STOPPED, WorkerStatus.TERMINATED)


@pytest.mark.parametrize("status", WorkerStatus)
def test_every_status_with_an_instance_costs_money_unless_it_is_stopped(status: WorkerStatus) -> None:
    assert is_billed(a_worker(status=status, instance_id="i-1")) is (status not in FREE)


@pytest.mark.parametrize(("reason", "billed"), [("Running", True), ("NotVisible", True), ("Stopped", False)])
def test_a_failed_worker_costs_money_unless_its_instance_was_seen_stopped(reason: str, billed: bool) -> None:
    """worker-lifecycle.md#failed."""
    seen = with_condition((), ConditionType.INSTANCE_READY, ConditionStatus.UNKNOWN, now=NOW, reason=reason)
    assert is_billed(a_worker(status=WorkerStatus.FAILED, instance_id="i-1", conditions=seen)) is billed
    assert not is_billed(a_worker(status=WorkerStatus.FAILED, instance_id=None, conditions=seen))
