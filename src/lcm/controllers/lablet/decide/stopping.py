"""STOPPING: stop, wipe and delete the lab, then give the worker back. Each step may be repeated at any time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lcm.controllers.lablet.decide.decision import (
    ChangeLab,
    LabOperation,
    ReleaseReservation,
    WriteStatus,
    end,
    retry,
    then,
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
    from lcm.controllers.lablet.observation import Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

_REMOVAL_POLL_SECONDS: Final = 2.0


def decide(lablet: Lablet, worker: Worker, seen: Observation, policy: LabletPolicy, now: datetime) -> Decision:
    """One step further. When it takes too long that is said, and it goes on."""
    decided = _decide_step(lablet, worker, seen, now)
    over = any(isinstance(action, ReleaseReservation) for action in decided.actions)
    if over or seconds_in_status(lablet, now) < policy.stop_timeout:
        return decided
    last = seen.refusal or seen.lab.trouble or seen.lab.progress
    return replace(decided, message=f"{STUCK_PREFIX}its lab is not removed after {policy.stop_timeout:g} s: {last}")


def next_removal_operation(state: str) -> LabOperation:
    """What a lab in this state needs next on its way out."""
    return {LAB_STOPPED: LabOperation.WIPE, LAB_DEFINED: LabOperation.DELETE}.get(state, LabOperation.STOP)


def _decide_step(lablet: Lablet, worker: Worker, seen: Observation, now: datetime) -> Decision:
    lab = seen.lab
    if lab.visibility is Visibility.NO_LOOK:
        message = f"the CML of worker {worker.name} cannot be asked: {lab.trouble}"
        return retry("stopping.no_look", lab.trouble, message=message)
    if lab.visibility is Visibility.ABSENT:
        if lablet.lab_id is None and seen.import_may_complete:
            reason = "an import may be under way whose answer nobody heard: its lab must not be left behind"
            return wait(
                "stopping.landing", reason, after=POLL_SECONDS, message="waits for an import whose answer was lost"
            )
        becomes, why = find_ending(lablet, now) or (LabletStatus.TERMINATED, "it was to end")
        return end("stopping.gone", why, ReleaseReservation(becomes, why))
    assert lab.id is not None
    if lablet.lab_id is None:
        # Else, once ours is deleted, a copy that somebody made of it would be taken for it.
        reason = f"lab {lab.id} carries its marker"
        return then("stopping.found", reason, WriteStatus(LabletStatus.STOPPING, reason, fields={"lab_id": lab.id}))
    call = next_removal_operation(lab.state)
    if call.value in seen.recent_operations:
        return wait(f"stopping.{call.value}", f"told to {call.value}; {lab.progress}", after=_REMOVAL_POLL_SECONDS)
    change = ChangeLab(call, lab.id)
    message = f"CML does not {call.value} its lab: {seen.refusal}" if seen.refusal else ""
    if call is LabOperation.DELETE:
        return then("stopping.delete", lab.progress, change, message=message)
    return wait(f"stopping.{call.value}", lab.progress, change, after=_REMOVAL_POLL_SECONDS, message=message)
