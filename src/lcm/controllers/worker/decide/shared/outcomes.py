"""What follows when a call that changes an instance fails: a decision like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.errors import CapacityLacking, CloudError, InstanceNotFound, Refused, Throttled, WrongState
from lcm.controllers.common.actions import Nature
from lcm.controllers.worker.decide.shared.conditions import SOON, instance_ready, stuck
from lcm.controllers.worker.decision import CloudCall, WriteStatus, retry, success, wait
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Decision


def call_failed(call: CloudCall, error: Exception) -> Decision:
    """A definite refusal is told to people; whatever may have happened is looked at first."""
    if call is CloudCall.START and isinstance(error, CapacityLacking):
        reason = f"EC2 has no capacity to start it: {error}"
        write = WriteStatus(WorkerStatus.STOPPED, reason)
        said = instance_ready(False, "NoCapacity", reason)
        return retry("start.no_capacity", reason, write, conditions=(said,))
    if isinstance(error, Refused):
        reason = f"EC2 refuses to {call.value} it: {error}"
        if call is CloudCall.START:
            return success("start.refused", reason, WriteStatus(WorkerStatus.FAILED, reason, Nature.RECORD))
        return retry(f"{call.value}.refused", reason, conditions=(stuck("Refused", reason),))
    if isinstance(error, InstanceNotFound | WrongState):
        return wait(f"{call.value}.too_early", f"not possible now: {error}", after=SOON)
    if isinstance(error, Throttled):
        return retry(f"{call.value}.throttled", f"EC2 wants fewer calls: {error}")
    known = isinstance(error, CloudError)
    reason = str(error) if known else f"{type(error).__name__}: {error}"
    return retry(f"{call.value}.unknown", f"no answer to {call.value}: {reason}")
