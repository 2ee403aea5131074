"""Workers with nested virtualization: a fleet of seats on them, and what happens where KVM is missing all the same."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from lcm.model.lablet.record import CreateLabletRequest, LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.conditions import ConditionType, find_condition, is_condition_true
from tests.support.virtual.fleet import a_fleet
from tests.support.virtual.full_platform import a_whole

if TYPE_CHECKING:
    from lcm.model.lablet.seats import SeatCost

SEAT = LabletRequirements(cpu_cores=4, memory_gb=16, storage_gb=20, nodes=2, license=False)
SEATS = 30


def fleet_cost(each: SeatCost) -> float:
    """What all seats cost an hour on workers of one template."""
    return math.ceil(SEATS / each.seats) * each.cost_per_hour_usd


async def test_thirty_seats_on_nested_templates_cost_less_than_on_metal() -> None:
    """cloud-and-cml.md#nested-virtualization. The table shows what the preview promised beside what runs."""
    async with a_whole() as whole:
        await whole.define("seat", SEAT)
        preview = await whole.fleet.people.lablets.preview(CreateLabletRequest(definition="seat@1"))
        assert preview.template == "nested-medium"
        costs = {each.template: each for each in preview.seat_costs}
        for _ in range(SEATS):
            await whole.make("seat")

        async def all_run() -> bool:
            return all(lablet.status is LabletStatus.RUNNING for lablet in await whole.lablets())

        await whole.until(all_run, "all seats are taken")
        workers = await whole.workers()
        assert Counter(worker.template_name for worker in workers) == {"nested-medium": 15}
        for worker in workers:
            machine = whole.fleet.machine(worker)
            assert (machine.instance_type, machine.nested_virtualization) == ("m8i.2xlarge", True)
            assert (worker.nested_virtualization, worker.requires_kvm, worker.ready) == (True, True, True)
            assert find_condition(worker.conditions, ConditionType.NO_KVM) is None
        await whole.check_books()
        paid = sum(worker.cost_per_hour_usd or 0 for worker in workers)

    print(f"\n{SEATS} seats of 4 CPU and 16 GB:")
    for name in ("nested-medium", "nested-large", "metal"):
        total = fleet_cost(costs[name])
        print(f"  {name:14} {costs[name].seats:3} a worker  ${total:8.4f}/h  ${total / SEATS:.4f}/h a seat")
    print(f"  {'simulated':14} {len(workers):3} workers   ${paid:8.4f}/h  ${paid / SEATS:.4f}/h a seat")
    assert round(paid, 5) == round(fleet_cost(costs["nested-medium"]), 5) == 6.3504
    assert round(fleet_cost(costs["metal"]), 4) == 11.8923
    assert paid / SEATS < 0.55 * fleet_cost(costs["metal"]) / SEATS


async def test_a_template_without_kvm_is_tried_once_and_then_skipped() -> None:
    """The image cannot use KVM on one type: its first worker shows that, and scale-up goes on with another template."""
    async with a_whole() as whole:
        whole.servers.types_without_kvm = {"m8i.2xlarge"}
        await whole.define("seat", SEAT)
        lablets = [await whole.make("seat") for _ in range(2)]
        for lablet in lablets:
            await whole.until_status(lablet, LabletStatus.RUNNING)
        late = await whole.running("seat")
        workers = {worker.template_name: worker for worker in await whole.workers()}
        assert sorted(workers, key=str) == ["nested-large", "nested-medium"]
        without, with_kvm = workers["nested-medium"], workers["nested-large"]
        assert {(await whole.lablet(each.id)).worker_id for each in (*lablets, late)} == {with_kvm.id}
        assert (without.ready, without.allocation.lablets, with_kvm.ready) == (False, 0, True)
        stuck = find_condition(without.conditions, ConditionType.STUCK)
        assert stuck is not None
        assert stuck.reason == "NoKvm"
        assert "which template nested-medium requires" in stuck.message
        explanation = await whole.fleet.people.workers.explain(without.id)
        assert "its CML has reported no KVM" in explanation.summary
        assert whole.fleet.calls("RunInstances") == 2


async def test_a_worker_that_loses_kvm_and_has_it_again() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha", template_name="nested-medium")
        assert fleet.machine(worker).nested_virtualization
        plain = await fleet.running("beta", template_name="small")
        assert is_condition_true(plain.conditions, ConditionType.NO_KVM), "it is said, and does no harm"
        assert (plain.ready, plain.requires_kvm) == (True, False)
        fleet.cml_of(worker).kvm = False

        async def stuck() -> bool:
            now = await fleet.worker(worker.id)
            return is_condition_true(now.conditions, ConditionType.STUCK) and not now.ready

        await fleet.until(stuck, "it is stuck without KVM", within=2 * 3600)
        fleet.cml_of(worker).kvm = True
        await fleet.until_ready(worker.id)
        again = await fleet.worker(worker.id)
        assert find_condition(again.conditions, ConditionType.NO_KVM) is None
        assert not is_condition_true(again.conditions, ConditionType.STUCK)
