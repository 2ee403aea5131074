"""INSTANTIATING: look for the lab, import it, remember it, start it, and wait until it is up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.controllers.lablet.decide.decision import ChangeLab, ImportLab, LabOperation, WriteStatus, retry, then, wait
from lcm.controllers.lablet.decide.ending import fail_lablet, release_lablet
from lcm.controllers.lablet.decide.predicates import (
    POLL_SECONDS,
    lab_marker,
    seconds_in_status,
    worker_restarted_since_lab,
)
from lcm.controllers.lablet.observation import LAB_DEFINED, LAB_STOPPED, Visibility
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.observation import LabObservation, Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

STOPPED_BY_USER_MESSAGE = "somebody has stopped its lab on CML; it is left to them"


def decide(lablet: Lablet, worker: Worker, seen: Observation, policy: LabletPolicy, now: datetime) -> Decision:
    """One step further, or an end of the attempt when it takes too long."""
    lab = seen.lab
    if lab.visibility is Visibility.SEEN and lab.up and lab.id == lablet.lab_id:
        return _become_running(lab)
    if seconds_in_status(lablet, now) >= policy.start_timeout:
        last = seen.refusal or lab.trouble or (lab.progress if lab.visibility is Visibility.SEEN else "no lab was made")
        reason = f"not up within {policy.start_timeout:g} s: {last}"
        return fail_lablet("instantiating.timeout", reason)
    if lab.visibility is Visibility.NO_LOOK:
        message = f"the CML of worker {worker.name} cannot be asked: {lab.trouble}"
        return retry("instantiating.no_look", lab.trouble, message=message)
    if lab.visibility is Visibility.ABSENT:
        return _decide_absent(lablet, seen, now)
    return _decide_present(lablet, worker, seen, now)


def lab_imported(lablet: Lablet, worker: Worker, lab_id: str, now: datetime) -> Decision:
    """CML made the lab: remember which one it is. It is told to start right after, so that is written along."""
    reason = f"CML made lab {lab_id} of {lablet.definition}"
    return _record_lab(lab_id, worker, "instantiating.imported", reason, now)


def import_rejected(lablet: Lablet, cause: str) -> Decision:
    """CML does not take the topology: the same again would end the same."""
    return fail_lablet("instantiating.refused", f"CML refuses the topology of {lablet.definition}: {cause}")


def _decide_absent(lablet: Lablet, seen: Observation, now: datetime) -> Decision:
    if lablet.lab_id is not None:
        return release_lablet(lablet, "instantiating.deleted", "somebody has deleted its lab on CML", now)
    if seen.import_may_complete:
        reason = "an import may be under way whose answer nobody heard: it is looked for, not made twice"
        return wait(
            "instantiating.landing", reason, after=POLL_SECONDS, message="waits for an import whose answer was lost"
        )
    recipe = seen.recipe
    if recipe is None or recipe.trouble:
        trouble = "its definition was not read" if recipe is None else recipe.trouble
        if recipe is not None and recipe.lasting:
            return fail_lablet("instantiating.no_recipe", trouble)
        return retry("instantiating.no_recipe", trouble, message=trouble)
    marker = lab_marker(lablet)
    reason = f"there is no lab {marker} yet"
    return then("instantiating.import", reason, ImportLab(recipe.topology, lablet.name, marker), message=None)


def _decide_present(lablet: Lablet, worker: Worker, seen: Observation, now: datetime) -> Decision:
    lab = seen.lab
    assert lab.id is not None
    if lablet.lab_id is None:
        return _record_lab(lab.id, worker, "instantiating.found", f"lab {lab.id} carries its marker", now)
    again = worker_restarted_since_lab(lablet, worker)
    if lab.state == LAB_DEFINED or (lab.state == LAB_STOPPED and again):
        if LabOperation.START.value in seen.recent_operations:
            return wait("instantiating.starting", f"told to start; {lab.progress}", after=POLL_SECONDS)
        reason = (
            f"worker {worker.name} was started anew" if lab.state == LAB_STOPPED else "its lab is there and not started"
        )
        message = f"CML does not start its lab: {seen.refusal}" if seen.refusal else ""
        return wait(
            "instantiating.start", reason, ChangeLab(LabOperation.START, lab.id), after=POLL_SECONDS, message=message
        )
    if lab.state == LAB_STOPPED:
        return wait(
            "instantiating.stopped_by_somebody",
            STOPPED_BY_USER_MESSAGE,
            after=POLL_SECONDS,
            message=STOPPED_BY_USER_MESSAGE,
        )
    if again:
        return record_lab_restart(LabletStatus.INSTANTIATING, worker, now)
    return wait("instantiating.booting", lab.progress, after=POLL_SECONDS, message="waits until all nodes have booted")


def record_lab_restart(status: LabletStatus, worker: Worker, now: datetime) -> Decision:
    """It runs again since the machine does: whoever stops it from now on is a person."""
    reason = "its lab was started again after its worker was"
    write = WriteStatus(status, reason, fields={"lab_started_at": _lab_start_time(worker, now)})
    return then(f"{status.value.lower()}.restarted", reason, write)


def _record_lab(lab_id: str, worker: Worker, rule: str, reason: str, now: datetime) -> Decision:
    fields: dict[str, Any] = {"lab_id": lab_id, "lab_started_at": _lab_start_time(worker, now)}
    return then(rule, reason, WriteStatus(LabletStatus.INSTANTIATING, reason, fields=fields))


def _lab_start_time(worker: Worker, now: datetime) -> datetime:
    """Now, and surely not before the machine was started: that moment is of the control plane's clock."""
    return now if worker.last_resumed_at is None else max(now, worker.last_resumed_at)


def _become_running(lab: LabObservation) -> Decision:
    reason = "all nodes have booted" if lab.nodes else "its lab is there and has no nodes"
    fields: dict[str, Any] = {} if lab.endpoints is None else {"endpoints": lab.endpoints}
    return then("instantiating.up", reason, WriteStatus(LabletStatus.RUNNING, reason, fields=fields))
