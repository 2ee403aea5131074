"""RUNNING: the lab is up. Its addresses are kept current, and changes made by users on CML are not undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.lablet.decide.decision import ChangeLab, LabOperation, WriteStatus, wait
from lcm.controllers.lablet.decide.ending import release_lablet
from lcm.controllers.lablet.decide.instantiating import STOPPED_BY_USER_MESSAGE, record_lab_restart
from lcm.controllers.lablet.decide.predicates import POLL_SECONDS, worker_restarted_since_lab
from lcm.controllers.lablet.observation import LAB_STARTED, LAB_STOPPED, Visibility
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.observation import Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

CHECK_INTERVAL: Final = 60.0
INITIAL_CHECK_INTERVAL: Final = 10.0
INITIAL_PERIOD: Final = 300.0
"""Nodes get their addresses some time after booting: during this period they are queried more often."""


def check_interval(lablet: Lablet, now: datetime) -> float:
    """Seconds between two queries of the lab."""
    complete = bool(lablet.endpoints) and all(node.addresses for node in lablet.endpoints)
    return (
        CHECK_INTERVAL
        if complete or (now - lablet.status_since).total_seconds() > INITIAL_PERIOD
        else INITIAL_CHECK_INTERVAL
    )


def decide(lablet: Lablet, worker: Worker, observed: Observation, _policy: LabletPolicy, now: datetime) -> Decision:
    """Nothing to do, unless a user changed the lab on CML or the instance was restarted."""
    lab, pause = observed.lab, check_interval(lablet, now)
    if lab.visibility is Visibility.NOT_OBSERVED:
        message = f"the CML of worker {worker.name} cannot be queried: {lab.error}" if lab.error else None
        return wait("running.not_observed", lab.error or "it was checked recently", after=pause, message=message)
    if lab.visibility is Visibility.ABSENT:
        return release_lablet(lablet, "running.deleted", "its lab was deleted on CML", now, ActionKind.LOSS)
    if lab.state != LAB_STARTED and lab.nodes != 0:
        return _decide_stopped(lablet, worker, observed, pause)
    if worker_restarted_since_lab(lablet, worker):
        return record_lab_restart(LabletStatus.RUNNING, worker, now)
    if lab.endpoints is not None and lab.endpoints != lablet.endpoints:
        reason = "the addresses of its nodes have changed"
        write = WriteStatus(LabletStatus.RUNNING, reason, fields={"endpoints": lab.endpoints})
        return wait("running.addresses", reason, write, after=pause, message="")
    return wait("running.up", "its lab is up", after=pause, message="")


def _decide_stopped(lablet: Lablet, worker: Worker, observed: Observation, pause: float) -> Decision:
    lab = observed.lab
    if lab.state != LAB_STOPPED or not worker_restarted_since_lab(lablet, worker):
        # A user's action is not undone.
        return wait("running.stopped_outside", STOPPED_BY_USER_MESSAGE, after=pause, message=STOPPED_BY_USER_MESSAGE)
    assert lab.id is not None
    reason = f"worker {worker.name} was restarted, which stopped the lab"
    message = (
        f"CML cannot start its lab: {observed.last_error}" if observed.last_error else f"{reason}; starting it again"
    )
    if LabOperation.START.value in observed.recent_operations:
        return wait("running.starting", reason, after=POLL_SECONDS, message=message)
    return wait(
        "running.start_again", reason, ChangeLab(LabOperation.START, lab.id), after=POLL_SECONDS, message=message
    )
