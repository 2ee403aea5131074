"""KVM: without it CML runs no virtual machines, which are most nodes. Only CML itself knows whether it has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.worker.decision import ConditionUpdate
from lcm.model.worker.conditions import ConditionStatus, ConditionType

if TYPE_CHECKING:
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

NO_KVM = "NoKvm"
"""The reason of Stuck for a worker that requires KVM and has none."""
KVM_NOT_MISSING = ConditionUpdate(ConditionType.NO_KVM, None)
_REPORTED = "CML reports that it has no KVM (kvm_vmx_enabled: false): nodes that are virtual machines do not start"


def kvm_conditions(observed: Observation) -> tuple[ConditionUpdate, ...]:
    """The condition NoKvm; unchanged as long as CML does not say whether it has KVM."""
    if observed.cml.kvm_enabled is None:
        return ()
    if observed.cml.kvm_enabled:
        return (KVM_NOT_MISSING,)
    return (ConditionUpdate(ConditionType.NO_KVM, ConditionStatus.TRUE, "ReportedByCml", _REPORTED),)


def missing_kvm(worker: Worker, observed: Observation) -> str | None:
    """Why the worker is of no use without KVM, and what to do; None if it has KVM, or does not require it."""
    enabled = observed.cml.kvm_enabled
    if not worker.requires_kvm or enabled or (enabled is None and not worker.lacks_kvm):
        return None
    source = f"template {worker.template_name}" if worker.template_name else "it"
    return (
        f"its CML reports that it has no KVM, which {source} requires;"
        " use a metal type, or nested_virtualization with a type that supports it (c8i, m8i, r8i),"
        f" then replace it: lcm workers terminate {worker.name}"
    )
