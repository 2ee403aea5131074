"""RUNNING: its lab is up. Its addresses are kept fresh, and what people do to it on CML is left as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.controllers.common.actions import Nature
from lcm.controllers.lablet.decide.decision import ChangeLab, LabCall, WriteStatus, wait
from lcm.controllers.lablet.decide.giving_up import give_up
from lcm.controllers.lablet.decide.instantiating import LEFT_ALONE, note_start
from lcm.controllers.lablet.decide.predicates import SOON, restarted
from lcm.controllers.lablet.observation import STARTED, STOPPED, Visibility
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import Policy
    from lcm.controllers.lablet.observation import Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

LOOK_EVERY: Final = 60.0
LOOK_EVERY_AT_FIRST: Final = 10.0
AT_FIRST: Final = 300.0
"""Nodes get their addresses some time after booting: for so long they are looked for more often."""


def look_every(lablet: Lablet, now: datetime) -> float:
    """Seconds between two looks at the lab."""
    began = lablet.running_since or lablet.status_since
    complete = bool(lablet.endpoints) and all(node.addresses for node in lablet.endpoints)
    return LOOK_EVERY if complete or (now - began).total_seconds() > AT_FIRST else LOOK_EVERY_AT_FIRST


def decide(lablet: Lablet, worker: Worker, seen: Observation, _policy: Policy, now: datetime) -> Decision:
    """As it should be, unless somebody did something on CML or the machine was started anew."""
    lab, pause = seen.lab, look_every(lablet, now)
    if lab.visibility is Visibility.NO_LOOK:
        message = f"the CML of worker {worker.name} cannot be asked: {lab.trouble}" if lab.trouble else None
        return wait("running.no_look", lab.trouble or "it was looked at a moment ago", after=pause, message=message)
    if lab.visibility is Visibility.ABSENT:
        return give_up(lablet, "running.deleted", "somebody has deleted its lab on CML", now, Nature.LOSS)
    if lab.state != STARTED and lab.nodes != 0:
        return _stopped(lablet, worker, seen, pause)
    if restarted(lablet, worker):
        return note_start(LabletStatus.RUNNING, worker, now)
    if lab.endpoints is not None and lab.endpoints != lablet.endpoints:
        reason = "the addresses of its nodes have changed"
        write = WriteStatus(LabletStatus.RUNNING, reason, fields={"endpoints": lab.endpoints})
        return wait("running.addresses", reason, write, after=pause, message="")
    return wait("running.up", "its lab is up", after=pause, message="")


def _stopped(lablet: Lablet, worker: Worker, seen: Observation, pause: float) -> Decision:
    lab = seen.lab
    if lab.state != STOPPED or not restarted(lablet, worker):
        # A person's act is not undone.
        return wait("running.stopped_by_somebody", LEFT_ALONE, after=pause, message=LEFT_ALONE)
    assert lab.id is not None
    reason = f"worker {worker.name} was started anew, and with it stopped the lab"
    message = f"CML does not start its lab: {seen.refusal}" if seen.refusal else f"{reason}; it is started again"
    if LabCall.START.value in seen.asked_recently:
        return wait("running.starting", reason, after=SOON, message=message)
    return wait("running.start_again", reason, ChangeLab(LabCall.START, lab.id), after=SOON, message=message)
