"""INSTANTIATING: find the lab or import it, record its id, start it, and wait until it is up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lcm.controllers.lablet.decide.decision import (
    ChangeLab,
    ImportLab,
    LabOperation,
    WriteStatus,
    act_and_continue,
    retry,
    wait,
)
from lcm.controllers.lablet.decide.ending import fail_lablet, release_lablet
from lcm.controllers.lablet.decide.predicates import (
    POLL_SECONDS,
    lab_marker,
    removable_leftovers,
    seconds_in_status,
    worker_restarted_since_lab,
)
from lcm.controllers.lablet.decide.stopping import removal_step
from lcm.controllers.lablet.observation import LAB_DEFINED, LAB_STOPPED, Visibility
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.observation import LabObservation, Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

STOPPED_BY_USER_MESSAGE = "a user stopped its lab on CML; it is not restarted"


def decide(lablet: Lablet, worker: Worker, observed: Observation, policy: LabletPolicy, now: datetime) -> Decision:
    """The next step, or a failure after the timeout."""
    lab = observed.lab
    if lab.visibility is Visibility.SEEN and lab.up and lab.id == lablet.lab_id:
        return _become_running(lab)
    if seconds_in_status(lablet, now) >= policy.start_timeout:
        last = (
            observed.last_error
            or lab.error
            or (lab.progress if lab.visibility is Visibility.SEEN else "no lab created")
        )
        reason = f"not up within {policy.start_timeout:g} s: {last}"
        return fail_lablet("instantiating.timeout", reason)
    if lab.visibility is Visibility.NOT_OBSERVED:
        message = f"the CML of worker {worker.name} cannot be queried: {lab.error}"
        return retry("instantiating.not_observed", lab.error, message=message)
    if observed.leftover is not None:
        # Both labs have the same ports, and their nodes would count twice.
        return replace(removal_step(observed.leftover, observed), rule="instantiating.leftover")
    if lab.visibility is Visibility.ABSENT:
        return _decide_absent(lablet, observed, now)
    return _decide_present(lablet, worker, observed, now)


def lab_imported(lablet: Lablet, worker: Worker, lab_id: str, now: datetime) -> Decision:
    """Record the id of a lab that CML has created. It is started right after, so its start time is recorded, too."""
    reason = f"CML created lab {lab_id} from {lablet.definition}"
    return _record_lab(lablet, lab_id, worker, "instantiating.imported", reason, now)


def import_rejected(lablet: Lablet, cause: str) -> Decision:
    """CML rejected the topology: a retry would be rejected, too."""
    return fail_lablet("instantiating.refused", f"CML rejected the topology of {lablet.definition}: {cause}")


def _decide_absent(lablet: Lablet, observed: Observation, now: datetime) -> Decision:
    if lablet.lab_id is not None:
        return release_lablet(lablet, "instantiating.deleted", "its lab was deleted on CML", now)
    if observed.import_may_complete:
        reason = "an import with a lost response may still complete; waiting instead of importing twice"
        return wait(
            "instantiating.import_pending",
            reason,
            after=POLL_SECONDS,
            message="waiting for an import with a lost response",
        )
    topology = observed.topology
    if topology is None or topology.error:
        error = "its definition was not read" if topology is None else topology.error
        if topology is not None and topology.is_permanent:
            return fail_lablet("instantiating.no_topology", error)
        return retry("instantiating.no_topology", error, message=error)
    marker = lab_marker(lablet)
    reason = f"there is no lab {marker} yet"
    return act_and_continue("instantiating.import", reason, ImportLab(topology.text, lablet.name, marker), message=None)


def _decide_present(lablet: Lablet, worker: Worker, observed: Observation, now: datetime) -> Decision:
    lab = observed.lab
    assert lab.id is not None
    if lablet.lab_id is None:
        return _record_lab(lablet, lab.id, worker, "instantiating.found", f"lab {lab.id} has its marker", now)
    restarted = worker_restarted_since_lab(lablet, worker)
    if lab.state == LAB_DEFINED or (lab.state == LAB_STOPPED and restarted):
        if LabOperation.START.value in observed.recent_operations:
            return wait("instantiating.starting", f"start requested; {lab.progress}", after=POLL_SECONDS)
        reason = (
            f"worker {worker.name} was restarted" if lab.state == LAB_STOPPED else "its lab exists and is not started"
        )
        message = f"CML cannot start its lab: {observed.last_error}" if observed.last_error else ""
        return wait(
            "instantiating.start", reason, ChangeLab(LabOperation.START, lab.id), after=POLL_SECONDS, message=message
        )
    if lab.state == LAB_STOPPED:
        return wait(
            "instantiating.stopped_outside",
            STOPPED_BY_USER_MESSAGE,
            after=POLL_SECONDS,
            message=STOPPED_BY_USER_MESSAGE,
        )
    if restarted:
        return record_lab_restart(LabletStatus.INSTANTIATING, worker, now)
    return wait(
        "instantiating.booting", lab.progress, after=POLL_SECONDS, message="waiting until all nodes have booted"
    )


def record_lab_restart(status: LabletStatus, worker: Worker, now: datetime) -> Decision:
    """Record that the lab was started after a restart of its worker: if it stops from now on, a user stopped it."""
    reason = "its lab was started again after a restart of its worker"
    write = WriteStatus(status, reason, fields={"lab_started_at": _lab_start_time(worker, now)})
    return act_and_continue(f"{status.value.lower()}.restarted", reason, write)


def _record_lab(lablet: Lablet, lab_id: str, worker: Worker, rule: str, reason: str, now: datetime) -> Decision:
    fields: dict[str, Any] = {"lab_id": lab_id, "lab_started_at": _lab_start_time(worker, now)}
    if gone := tuple(left.marker for left in removable_leftovers(lablet, worker)):
        fields["removed_labs"] = gone  # or there would be no new lab yet
    return act_and_continue(rule, reason, WriteStatus(LabletStatus.INSTANTIATING, reason, fields=fields))


def _lab_start_time(worker: Worker, now: datetime) -> datetime:
    """Now, but not before the instance was started: that time is from the control plane's clock."""
    return now if worker.last_resumed_at is None else max(now, worker.last_resumed_at)


def _become_running(lab: LabObservation) -> Decision:
    reason = "all nodes have booted" if lab.nodes else "its lab exists and has no nodes"
    fields: dict[str, Any] = {} if lab.endpoints is None else {"endpoints": lab.endpoints}
    return act_and_continue("instantiating.up", reason, WriteStatus(LabletStatus.RUNNING, reason, fields=fields))
