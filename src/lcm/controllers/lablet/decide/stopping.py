"""STOPPING: stop, wipe and delete the lab, then release the worker. Each step may be repeated at any time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lcm.controllers.lablet.decide.decision import (
    ChangeLab,
    LabOperation,
    ReleaseReservation,
    WriteStatus,
    act_and_continue,
    end,
    retry,
    wait,
)
from lcm.controllers.lablet.decide.ending import find_ending
from lcm.controllers.lablet.decide.predicates import POLL_SECONDS, seconds_in_status
from lcm.controllers.lablet.observation import LAB_DEFINED, LAB_STOPPED, Visibility
from lcm.model.lablet.status import LabletStatus
from lcm.model.lablet.urgency import STUCK_PREFIX

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.observation import LabObservation, Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

_REMOVAL_POLL_SECONDS: Final = 2.0


def decide(lablet: Lablet, worker: Worker, observed: Observation, policy: LabletPolicy, now: datetime) -> Decision:
    """The next step. After the timeout the lablet is reported as stuck, and the steps continue."""
    decided = _decide_step(lablet, worker, observed, now)
    over = any(isinstance(action, ReleaseReservation) for action in decided.actions)
    if over or seconds_in_status(lablet, now) < policy.stop_timeout:
        return decided
    last = observed.last_error or observed.lab.error or observed.lab.progress
    return replace(decided, message=f"{STUCK_PREFIX}its lab was not removed within {policy.stop_timeout:g} s: {last}")


def next_removal_operation(state: str) -> LabOperation:
    """The next operation to remove a lab in this state."""
    return {LAB_STOPPED: LabOperation.WIPE, LAB_DEFINED: LabOperation.DELETE}.get(state, LabOperation.STOP)


def _decide_step(lablet: Lablet, worker: Worker, observed: Observation, now: datetime) -> Decision:
    lab = observed.lab
    if lab.visibility is Visibility.NOT_OBSERVED:
        message = f"the CML of worker {worker.name} cannot be queried: {lab.error}"
        return retry("stopping.not_observed", lab.error, message=message)
    if observed.leftover is not None:
        return replace(removal_step(observed.leftover, observed), rule="stopping.leftover")
    if lab.visibility is Visibility.ABSENT:
        if lablet.lab_id is None and observed.import_may_complete:
            reason = "an import with a lost response may still complete, and its lab must not be left behind"
            return wait(
                "stopping.import_pending",
                reason,
                after=POLL_SECONDS,
                message="waiting for an import with a lost response",
            )
        becomes, why = find_ending(lablet, now) or (LabletStatus.TERMINATED, "termination was requested")
        return end("stopping.gone", why, ReleaseReservation(becomes, why))
    assert lab.id is not None
    if lablet.lab_id is None:
        # Otherwise, once our lab is deleted, a user's copy of it would be taken for it.
        reason = f"lab {lab.id} has its marker"
        return act_and_continue(
            "stopping.found", reason, WriteStatus(LabletStatus.STOPPING, reason, fields={"lab_id": lab.id})
        )
    return removal_step(lab, observed)


def removal_step(lab: LabObservation, observed: Observation) -> Decision:
    """The next step that removes a lab."""
    assert lab.id is not None
    call = next_removal_operation(lab.state)
    if call.value in observed.recent_operations:
        return wait(f"stopping.{call.value}", f"requested: {call.value}; {lab.progress}", after=_REMOVAL_POLL_SECONDS)
    change = ChangeLab(call, lab.id)
    message = f"CML cannot {call.value} its lab: {observed.last_error}" if observed.last_error else ""
    if call is LabOperation.DELETE:
        return act_and_continue("stopping.delete", lab.progress, change, message=message)
    return wait(f"stopping.{call.value}", lab.progress, change, after=_REMOVAL_POLL_SECONDS, message=message)
