"""The licence of a worker that runs: registered as long as there is a token, given back when that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cml.licensing import LicensePhase
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decision import (
    ConditionUpdate,
    Decision,
    DeregisterLicense,
    RegisterLicense,
    WriteLicenseStatus,
)
from lcm.controllers.worker.observe.observation import LicenseTaskState
from lcm.model.worker.conditions import ConditionStatus, ConditionType
from lcm.model.worker.status import LicenseOperation, LicenseStatus

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Action
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

LICENSE_POLL_SECONDS = 10.0


def license_step(worker: Worker, seen: Observation) -> Decision | None:
    """What is to be done about the licence now; None: CML has not said anything about it."""
    progress = seen.cml.license
    if progress is None:
        return None
    pending = worker.pending_license_operation
    if pending is not None and pending.operation is LicenseOperation.DEREGISTER:
        return _deregister(worker, seen, progress.phase)
    if progress.phase is LicensePhase.REGISTERED:
        return _registered(worker, progress.reason)
    if progress.phase is LicensePhase.UNKNOWN:
        said = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.UNKNOWN, "Unknown", progress.reason)
        return Decision("licence.unknown", progress.reason, conditions=(said,))
    if not worker.has_license_token:
        return _unlicensed(worker, progress.phase, progress.reason)
    return _register(worker, seen, progress.phase, progress.reason)


def _registered(worker: Worker, reason: str) -> Decision:
    said = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.TRUE, "Registered", reason)
    actions: tuple[Action, ...] = ()
    if worker.license_status is not LicenseStatus.REGISTERED or worker.pending_license_operation is not None:
        actions = (WriteLicenseStatus(LicenseStatus.REGISTERED, reason, clear_pending=True),)
    return Decision("licence.registered", "CML is registered", actions, (said,))


def _unlicensed(worker: Worker, phase: LicensePhase, reason: str) -> Decision:
    said = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "NoToken", reason)
    under_way = phase is LicensePhase.REGISTERING
    stale = worker.license_status in (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING) and not under_way
    actions = (WriteLicenseStatus(LicenseStatus.UNREGISTERED, reason),) if stale else ()
    return Decision("licence.none", "there is no licence token", actions, (said,))


def _register(worker: Worker, seen: Observation, phase: LicensePhase, reason: str) -> Decision:
    if seen.license_task is LicenseTaskState.RUNNING or phase is LicensePhase.REGISTERING:
        said = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "Registering", reason)
        known = worker.license_status is LicenseStatus.REGISTERING
        actions: tuple[Action, ...] = () if known else (WriteLicenseStatus(LicenseStatus.REGISTERING),)
        return Decision("licence.registering", "CML is registering", actions, (said,), after=LICENSE_POLL_SECONDS)
    # Asked for in this life of the record: what CML says now is the answer to that.
    asked = worker.license_status is LicenseStatus.REGISTERING and seen.license_requested_at is not None
    if asked and (phase is LicensePhase.FAILED or seen.license_task is LicenseTaskState.REFUSED):
        reason = reason if phase is LicensePhase.FAILED else seen.license_error
        said = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "Failed", reason)
        write = WriteLicenseStatus(LicenseStatus.FAILED, reason, clear_pending=True)
        return Decision("licence.failed", f"CML could not register: {reason}", (write,), (said,))
    if worker.license_status is LicenseStatus.FAILED and worker.license_failed_generation == worker.generation:
        said = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "Failed", reason)
        why = "registration failed and is not tried again until the token or the worker is changed"
        return Decision("licence.given_up", why, conditions=(said,))
    said = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "Registering")
    known = worker.license_status is LicenseStatus.REGISTERING
    before: tuple[Action, ...] = (
        () if known else (WriteLicenseStatus(LicenseStatus.REGISTERING, nature=ActionKind.INTENT),)
    )
    return Decision(
        "licence.register",
        _with_last_error("it has a token and is not registered", seen),
        (*before, RegisterLicense()),
        (said,),
        after=LICENSE_POLL_SECONDS,
    )


def deregistration_result(worker: Worker, seen: Observation) -> WriteLicenseStatus | None:
    """What is to be written of a licence that was just given back as asked for, whatever becomes of the worker now."""
    pending = worker.pending_license_operation
    if pending is None or pending.operation is not LicenseOperation.DEREGISTER:
        return None
    if seen.license_task is LicenseTaskState.LEAKED:
        message = "CML gave it up without Cisco knowing"
        return WriteLicenseStatus(LicenseStatus.DEREGISTERED, message, clear_pending=True, leaked=True)
    if seen.license_task is LicenseTaskState.RELEASED:
        return WriteLicenseStatus(LicenseStatus.DEREGISTERED, "given back", clear_pending=True)
    return None


def _deregister(worker: Worker, seen: Observation, phase: LicensePhase) -> Decision:
    if seen.license_task is LicenseTaskState.RUNNING:
        return Decision("licence.releasing", "the licence is being given back", after=LICENSE_POLL_SECONDS)
    write = deregistration_result(worker, seen)
    if write is None and phase is LicensePhase.UNREGISTERED:
        write = WriteLicenseStatus(LicenseStatus.DEREGISTERED, "given back", clear_pending=True)
    if write is not None:
        said = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "GivenBack")
        return Decision("licence.released", write.message, (write,), (said,))
    # What failed is tried again. Meanwhile the record says what is: as long as CML is registered, so is the worker.
    why = _with_last_error("it was asked to give the licence back", seen)
    return Decision("licence.release", why, (DeregisterLicense(),), after=LICENSE_POLL_SECONDS)


def _with_last_error(why: str, seen: Observation) -> str:
    return f"{why}; the last try failed: {seen.license_error}" if seen.license_error else why
