"""What workers cost now: each alone, and all together."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from lcm.control_plane.records.kinds import worker_fields
from lcm.model.worker.conditions import ConditionStatus, ConditionType, with_condition
from lcm.model.worker.cost import HourlyCost, cost_so_far, current_cost, fleet_cost, instance_runs
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import Capacity
from tests.support.records.workers import NOW, a_worker

WITHOUT_INSTANCE = (WorkerStatus.PENDING, WorkerStatus.STOPPED, WorkerStatus.TERMINATED)
DISK = Capacity(cpu_cores=2, memory_gb=4, storage_gb=730, max_nodes=5)  # 0.08 dollars an hour at the default price


@pytest.mark.parametrize("status", WorkerStatus)
def test_every_status_with_an_instance_runs_unless_it_is_stopped(status: WorkerStatus) -> None:
    assert instance_runs(a_worker(status=status, instance_id="i-1")) is (status not in WITHOUT_INSTANCE)


@pytest.mark.parametrize("status", [WorkerStatus.FAILED, WorkerStatus.TERMINATING])
@pytest.mark.parametrize(("reason", "cost"), [("Running", 1.08), ("NotVisible", 1.08), ("Stopped", 0.08)])
def test_a_failed_or_terminating_worker_costs_its_disks_only_if_its_instance_was_seen_stopped(
    status: WorkerStatus, reason: str, cost: float
) -> None:
    """worker-lifecycle.md#failed."""
    seen = with_condition((), ConditionType.INSTANCE_READY, ConditionStatus.UNKNOWN, now=NOW, reason=reason)
    facts = {"status": status, "conditions": seen, "cost_per_hour_usd": 1.0, "capacity": DISK}
    assert current_cost(a_worker(instance_id="i-1", **facts)) == cost
    assert current_cost(a_worker(instance_id=None, **facts)) == 0


@pytest.mark.parametrize(
    ("status", "cost"),
    [
        ("PENDING", 0.0),
        ("PROVISIONING", 1.08),
        ("RUNNING", 1.08),
        ("STOPPING", 1.08),
        ("STOPPED", 0.08),
        ("TERMINATED", 0.0),
    ],
)
def test_a_worker_costs_its_instance_while_it_runs_and_its_disks_as_long_as_they_exist(
    status: str, cost: float
) -> None:
    instance = None if status == "PENDING" else "i-1"
    worker = a_worker(status=status, instance_id=instance, cost_per_hour_usd=1.0, capacity=DISK)
    assert worker.current_cost_per_hour_usd == cost
    assert Worker.model_validate_json(worker.model_dump_json()) == worker


def test_the_price_of_disk_space_is_the_one_on_the_record() -> None:
    worker = a_worker(status="STOPPED", instance_id="i-1", capacity=DISK, storage_price_per_gb_month_usd=0.2)
    assert current_cost(worker) == 0.2


def test_an_unknown_price_is_counted_and_never_zero() -> None:
    known = a_worker(status="RUNNING", instance_id="i-1", cost_per_hour_usd=1.0, capacity=DISK)
    imported = a_worker(status="RUNNING", instance_id="i-2")
    unknown_disks = a_worker(status="STOPPED", instance_id="i-3", cost_per_hour_usd=1.0)
    assert current_cost(imported) is None
    assert current_cost(unknown_disks) is None
    total = fleet_cost([known, imported, unknown_disks, a_worker(status="TERMINATED", instance_id="i-4")])
    assert total == HourlyCost(1_080_000, unknown=2)
    assert str(total) == "$1.08 per hour, plus 2 instances without a known price"
    assert str(fleet_cost([known])) == "$1.08 per hour"
    assert str(fleet_cost([known], leaked_instances=1)) == "$1.08 per hour, plus 1 instance without a known price"


def test_a_stopped_hour_costs_the_disks() -> None:
    facts = {"instance_id": "i-1", "instance_since": NOW, "cost_per_hour_usd": 4.0, "capacity": DISK}
    later = NOW + timedelta(hours=3)
    assert cost_so_far(a_worker(status="RUNNING", **facts), later) == pytest.approx(12 + 0.24)
    assert cost_so_far(a_worker(status="RUNNING", stopped_seconds=3600, **facts), later) == pytest.approx(8 + 0.24)
    stopped = a_worker(status="STOPPED", **{**facts, "status_since": NOW + timedelta(hours=1)})
    assert cost_so_far(stopped, later) == pytest.approx(4 + 0.24)
    assert cost_so_far(a_worker(), later) is None


def test_sums_are_the_same_in_every_order_and_from_query_fields() -> None:
    """Floats are not: 0.1 + 0.2 + 0.3 depends on the order."""
    random = Random(7)
    for _ in range(100):
        workers = [_random_worker(random, number) for number in range(random.randrange(1, 40))]
        total = fleet_cost(workers)
        random.shuffle(workers)
        fields = [worker_fields(worker) for worker in workers]
        sums = [sum(float(str(each[name])) for each in fields) for name in ("cost_micro_usd", "price_unknown")]
        assert fleet_cost(workers) == total == HourlyCost(*map(round, sums))


def _random_worker(random: Random, number: int) -> Worker:
    size = Capacity(cpu_cores=2, memory_gb=4, storage_gb=random.uniform(0.1, 2000), max_nodes=5)
    return a_worker(
        id=f"w-{number}",
        status=random.choice(list(WorkerStatus)),
        instance_id=random.choice(["i-1", None]),
        cost_per_hour_usd=random.choice([None, random.uniform(0, 5)]),
        capacity=random.choice([None, size]),
        storage_price_per_gb_month_usd=random.choice([None, random.uniform(0, 0.2)]),
    )
