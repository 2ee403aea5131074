"""KVM: a CML that reports that it has none, with and without a template that requires it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.types import ATTEMPT_TAG, Instance, InstanceState
from lcm.controllers.worker.decide.pending import launched
from lcm.controllers.worker.observe.observation import CmlObservation, LaunchedInstances
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.status import WorkerStatus
from tests.support.records.workers import NOW
from tests.unit.controllers.worker.decide.cases import decided, observing, observing_no_launch, statuses, worker_in

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Decision

NO_KVM = Condition(type=ConditionType.NO_KVM, status=ConditionStatus.TRUE, since=NOW)
CML_READY = Condition(type=ConditionType.CML_READY, status=ConditionStatus.TRUE, since=NOW)


def running(kvm: bool | None, *, ready: bool = True, **changes: Any) -> Decision:
    cml = CmlObservation(queried_at=NOW, ready=ready, running_nodes=0, kvm_enabled=kvm)
    return decided(worker_in("RUNNING", **changes), observing("running", cml=cml))


def condition(decision: Decision, kind: ConditionType) -> tuple[ConditionStatus | None, str] | None:
    """Status and reason of a condition that is set or removed; None if it stays as it is."""
    return next(((each.status, each.reason) for each in decision.conditions if each.type is kind), None)


def test_without_kvm_where_it_is_required_the_worker_is_stuck() -> None:
    decision = running(False, requires_kvm=True, template_name="nested-medium", name="alpha")
    assert decision.rule == "running.no_kvm"
    assert condition(decision, ConditionType.NO_KVM) == (ConditionStatus.TRUE, "ReportedByCml")
    assert condition(decision, ConditionType.STUCK) == (ConditionStatus.TRUE, "NoKvm")
    assert condition(decision, ConditionType.CML_READY) == (ConditionStatus.TRUE, "Ready")
    assert "which template nested-medium requires" in decision.reason
    assert decision.reason.endswith("lcm workers terminate alpha")


def test_without_kvm_where_it_is_not_required_the_worker_is_in_order() -> None:
    decision = running(False)
    assert decision.rule == "running.steady"
    assert condition(decision, ConditionType.NO_KVM) == (ConditionStatus.TRUE, "ReportedByCml")
    assert condition(decision, ConditionType.STUCK) == (None, "")


def test_with_kvm_the_worker_is_no_longer_stuck() -> None:
    decision = running(True, requires_kvm=True, conditions=(NO_KVM,))
    assert decision.rule == "running.steady"
    assert condition(decision, ConditionType.NO_KVM) == (None, "")
    assert condition(decision, ConditionType.STUCK) == (None, "")


def test_a_cml_that_does_not_say_changes_nothing() -> None:
    never_said = running(None, requires_kvm=True)
    assert never_said.rule == "running.steady"
    assert condition(never_said, ConditionType.NO_KVM) is None
    after_a_restart_of_the_controller = running(None, requires_kvm=True, conditions=(NO_KVM,))
    assert condition(after_a_restart_of_the_controller, ConditionType.NO_KVM) is None
    assert condition(after_a_restart_of_the_controller, ConditionType.STUCK) == (ConditionStatus.TRUE, "NoKvm")


def test_a_cml_that_is_not_ready_is_not_judged_by_what_it_said_before() -> None:
    decision = running(False, ready=False, requires_kvm=True)
    assert decision.rule == "running.booting"
    assert condition(decision, ConditionType.NO_KVM) is None


@pytest.mark.parametrize(("required", "ready"), [(True, False), (False, True)])
def test_only_a_worker_that_requires_kvm_is_not_ready_without_it(required: bool, ready: bool) -> None:
    worker = worker_in("RUNNING", conditions=(CML_READY, NO_KVM), requires_kvm=required)
    assert worker.ready is ready


def test_another_instance_is_not_judged_by_the_former_one() -> None:
    instance = Instance("i-new", InstanceState.PENDING, "m8i.2xlarge", "ami-1", NOW, tags={ATTEMPT_TAG: "1"})
    assert condition(launched(instance, None), ConditionType.NO_KVM) == (None, "")
    found = LaunchedInstances(complete=True, instances=(instance,))
    adopted = decided(worker_in("PENDING", conditions=(NO_KVM,)), observing_no_launch(launched_instances=found))
    assert statuses(adopted) == [WorkerStatus.PROVISIONING]
    assert condition(adopted, ConditionType.NO_KVM) == (None, "")
