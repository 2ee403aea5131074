"""The licence of a worker that runs: registered as long as there is a token, given back when that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cml.licensing import LicensePhase
from lcm.controllers.common.actions import Nature
from lcm.controllers.worker.decision import (
    Decision,
    RegisterLicence,
    ReleaseLicence,
    WantedCondition,
    WriteLicence,
)
from lcm.controllers.worker.observe.observation import LicenceTask
from lcm.model.worker.conditions import ConditionStatus, ConditionType
from lcm.model.worker.status import LicenseOperation, LicenseStatus

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Action
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

LICENCE_SOON = 10.0


def licence_step(worker: Worker, seen: Observation) -> Decision | None:
    """What is to be done about the licence now; None: CML has not said anything about it."""
    progress = seen.cml.license
    if progress is None:
        return None
    pending = worker.pending_license_operation
    if pending is not None and pending.operation is LicenseOperation.DEREGISTER:
        return _give_back(worker, seen, progress.phase)
    if progress.phase is LicensePhase.REGISTERED:
        return _registered(worker, progress.reason)
    if progress.phase is LicensePhase.UNKNOWN:
        said = WantedCondition(ConditionType.LICENSED, ConditionStatus.UNKNOWN, "Unknown", progress.reason)
        return Decision("licence.unknown", progress.reason, conditions=(said,))
    if not worker.has_license_token:
        return _unlicensed(worker, progress.phase, progress.reason)
    return _register(worker, seen, progress.phase, progress.reason)


def _registered(worker: Worker, reason: str) -> Decision:
    said = WantedCondition(ConditionType.LICENSED, ConditionStatus.TRUE, "Registered", reason)
    actions: tuple[Action, ...] = ()
    if worker.license_status is not LicenseStatus.REGISTERED or worker.pending_license_operation is not None:
        actions = (WriteLicence(LicenseStatus.REGISTERED, reason, clear_pending=True),)
    return Decision("licence.registered", "CML is registered", actions, (said,))


def _unlicensed(worker: Worker, phase: LicensePhase, reason: str) -> Decision:
    said = WantedCondition(ConditionType.LICENSED, ConditionStatus.FALSE, "NoToken", reason)
    under_way = phase is LicensePhase.REGISTERING
    stale = worker.license_status in (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING) and not under_way
    actions = (WriteLicence(LicenseStatus.UNREGISTERED, reason),) if stale else ()
    return Decision("licence.none", "there is no licence token", actions, (said,))


def _register(worker: Worker, seen: Observation, phase: LicensePhase, reason: str) -> Decision:
    if seen.licence_task is LicenceTask.RUNNING or phase is LicensePhase.REGISTERING:
        said = WantedCondition(ConditionType.LICENSED, ConditionStatus.FALSE, "Registering", reason)
        known = worker.license_status is LicenseStatus.REGISTERING
        actions: tuple[Action, ...] = () if known else (WriteLicence(LicenseStatus.REGISTERING),)
        return Decision("licence.registering", "CML is registering", actions, (said,), after=LICENCE_SOON)
    # Asked for in this life of the record: what CML says now is the answer to that.
    asked = worker.license_status is LicenseStatus.REGISTERING and seen.licence_asked_at is not None
    if asked and (phase is LicensePhase.FAILED or seen.licence_task is LicenceTask.REFUSED):
        reason = reason if phase is LicensePhase.FAILED else seen.licence_trouble
        said = WantedCondition(ConditionType.LICENSED, ConditionStatus.FALSE, "Failed", reason)
        write = WriteLicence(LicenseStatus.FAILED, reason, clear_pending=True)
        return Decision("licence.failed", f"CML could not register: {reason}", (write,), (said,))
    if worker.license_status is LicenseStatus.FAILED and worker.license_failed_generation == worker.generation:
        said = WantedCondition(ConditionType.LICENSED, ConditionStatus.FALSE, "Failed", reason)
        why = "registration failed and is not tried again until the token or the worker is changed"
        return Decision("licence.given_up", why, conditions=(said,))
    said = WantedCondition(ConditionType.LICENSED, ConditionStatus.FALSE, "Registering")
    known = worker.license_status is LicenseStatus.REGISTERING
    before: tuple[Action, ...] = () if known else (WriteLicence(LicenseStatus.REGISTERING, nature=Nature.INTENT),)
    return Decision(
        "licence.register",
        _once_more("it has a token and is not registered", seen),
        (*before, RegisterLicence()),
        (said,),
        after=LICENCE_SOON,
    )


def given_back(worker: Worker, seen: Observation) -> WriteLicence | None:
    """What is to be written of a licence that was just given back as asked for, whatever becomes of the worker now."""
    pending = worker.pending_license_operation
    if pending is None or pending.operation is not LicenseOperation.DEREGISTER:
        return None
    if seen.licence_task is LicenceTask.LEAKED:
        message = "CML gave it up without Cisco knowing"
        return WriteLicence(LicenseStatus.DEREGISTERED, message, clear_pending=True, leaked=True)
    if seen.licence_task is LicenceTask.RELEASED:
        return WriteLicence(LicenseStatus.DEREGISTERED, "given back", clear_pending=True)
    return None


def _give_back(worker: Worker, seen: Observation, phase: LicensePhase) -> Decision:
    if seen.licence_task is LicenceTask.RUNNING:
        return Decision("licence.releasing", "the licence is being given back", after=LICENCE_SOON)
    write = given_back(worker, seen)
    if write is None and phase is LicensePhase.UNREGISTERED:
        write = WriteLicence(LicenseStatus.DEREGISTERED, "given back", clear_pending=True)
    if write is not None:
        said = WantedCondition(ConditionType.LICENSED, ConditionStatus.FALSE, "GivenBack")
        return Decision("licence.released", write.message, (write,), (said,))
    # What failed is tried again. Meanwhile the record says what is: as long as CML is registered, so is the worker.
    why = _once_more("it was asked to give the licence back", seen)
    return Decision("licence.release", why, (ReleaseLicence(),), after=LICENCE_SOON)


def _once_more(why: str, seen: Observation) -> str:
    return f"{why}; the last try failed: {seen.licence_trouble}" if seen.licence_trouble else why
