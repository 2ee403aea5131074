"""INSTANTIATING: look for the lab, import it, remember it, start it, and wait until it is up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.controllers.lablet.decide.decision import ChangeLab, ImportLab, LabCall, WriteStatus, retry, then, wait
from lcm.controllers.lablet.decide.ending import fail
from lcm.controllers.lablet.decide.giving_up import give_up
from lcm.controllers.lablet.decide.predicates import SOON, in_status_for, marker_of, restarted
from lcm.controllers.lablet.observation import NEW, STOPPED, Visibility
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import Policy
    from lcm.controllers.lablet.observation import LabSight, Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

LEFT_ALONE = "somebody has stopped its lab on CML; it is left to them"


def decide(lablet: Lablet, worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """One step further, or an end of the attempt when it takes too long."""
    lab = seen.lab
    if lab.visibility is Visibility.SEEN and lab.up and lab.id == lablet.lab_id:
        return _running(lab)
    if in_status_for(lablet, now) >= policy.start_timeout:
        last = seen.refusal or lab.trouble or (lab.progress if lab.visibility is Visibility.SEEN else "no lab was made")
        reason = f"not up within {policy.start_timeout:g} s: {last}"
        return fail("instantiating.timeout", reason)
    if lab.visibility is Visibility.NO_LOOK:
        message = f"the CML of worker {worker.name} cannot be asked: {lab.trouble}"
        return retry("instantiating.no_look", lab.trouble, message=message)
    if lab.visibility is Visibility.ABSENT:
        return _absent(lablet, seen, now)
    return _present(lablet, worker, seen, now)


def imported(lablet: Lablet, worker: Worker, lab_id: str, now: datetime) -> Decision:
    """CML made the lab: remember which one it is. It is told to start right after, so that is written along."""
    reason = f"CML made lab {lab_id} of {lablet.definition}"
    return _remember(lab_id, worker, "instantiating.imported", reason, now)


def import_refused(lablet: Lablet, cause: str) -> Decision:
    """CML does not take the topology: the same again would end the same."""
    return fail("instantiating.refused", f"CML refuses the topology of {lablet.definition}: {cause}")


def _absent(lablet: Lablet, seen: Observation, now: datetime) -> Decision:
    if lablet.lab_id is not None:
        return give_up(lablet, "instantiating.deleted", "somebody has deleted its lab on CML", now)
    if seen.may_land:
        reason = "an import may be under way whose answer nobody heard: it is looked for, not made twice"
        return wait("instantiating.landing", reason, after=SOON, message="waits for an import whose answer was lost")
    recipe = seen.recipe
    if recipe is None or recipe.trouble:
        trouble = "its definition was not read" if recipe is None else recipe.trouble
        if recipe is not None and recipe.lasting:
            return fail("instantiating.no_recipe", trouble)
        return retry("instantiating.no_recipe", trouble, message=trouble)
    marker = marker_of(lablet)
    reason = f"there is no lab {marker} yet"
    return then("instantiating.import", reason, ImportLab(recipe.topology, lablet.name, marker), message=None)


def _present(lablet: Lablet, worker: Worker, seen: Observation, now: datetime) -> Decision:
    lab = seen.lab
    assert lab.id is not None
    if lablet.lab_id is None:
        return _remember(lab.id, worker, "instantiating.found", f"lab {lab.id} carries its marker", now)
    again = restarted(lablet, worker)
    if lab.state == NEW or (lab.state == STOPPED and again):
        if LabCall.START.value in seen.asked_recently:
            return wait("instantiating.starting", f"told to start; {lab.progress}", after=SOON)
        reason = (
            f"worker {worker.name} was started anew" if lab.state == STOPPED else "its lab is there and not started"
        )
        message = f"CML does not start its lab: {seen.refusal}" if seen.refusal else ""
        return wait("instantiating.start", reason, ChangeLab(LabCall.START, lab.id), after=SOON, message=message)
    if lab.state == STOPPED:
        return wait("instantiating.stopped_by_somebody", LEFT_ALONE, after=SOON, message=LEFT_ALONE)
    if again:
        return note_start(LabletStatus.INSTANTIATING, worker, now)
    return wait("instantiating.booting", lab.progress, after=SOON, message="waits until all nodes have booted")


def note_start(status: LabletStatus, worker: Worker, now: datetime) -> Decision:
    """It runs again since the machine does: whoever stops it from now on is a person."""
    reason = "its lab was started again after its worker was"
    write = WriteStatus(status, reason, fields={"lab_started_at": _after_resume(worker, now)})
    return then(f"{status.value.lower()}.restarted", reason, write)


def _remember(lab_id: str, worker: Worker, rule: str, reason: str, now: datetime) -> Decision:
    fields: dict[str, Any] = {"lab_id": lab_id, "lab_started_at": _after_resume(worker, now)}
    return then(rule, reason, WriteStatus(LabletStatus.INSTANTIATING, reason, fields=fields))


def _after_resume(worker: Worker, now: datetime) -> datetime:
    """Now, and surely not before the machine was started: that moment is of the control plane's clock."""
    return now if worker.last_resumed_at is None else max(now, worker.last_resumed_at)


def _running(lab: LabSight) -> Decision:
    reason = "all nodes have booted" if lab.nodes else "its lab is there and has no nodes"
    fields: dict[str, Any] = {} if lab.endpoints is None else {"endpoints": lab.endpoints}
    return then("instantiating.up", reason, WriteStatus(LabletStatus.RUNNING, reason, fields=fields))
