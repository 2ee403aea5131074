"""The license of a running worker: registered while it has a token, deregistered on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cml.types import LicensePhase
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.waiting import NOT_WAITING, waiting_for
from lcm.controllers.worker.decision import (
    ConditionUpdate,
    Decision,
    DeregisterLicense,
    RegisterLicense,
    WriteLicenseStatus,
)
from lcm.controllers.worker.observe.observation import LicenseTaskState
from lcm.model.worker.conditions import LICENSE_PENDING, ConditionStatus, ConditionType
from lcm.model.worker.status import LicenseOperation, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Action
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

LICENSE_POLL_SECONDS = 10.0


def license_step(worker: Worker, observed: Observation) -> Decision | None:
    """What to do about the license now; None if CML has not reported it."""
    decided = _license_step(worker, observed)
    if decided is None or any(each.type is ConditionType.WAITING for each in decided.conditions):
        return decided
    return decided.with_added(conditions=(NOT_WAITING,))


def _license_step(worker: Worker, observed: Observation) -> Decision | None:
    progress = observed.cml.license
    if progress is None:
        return None
    pending = worker.pending_license_operation
    if pending is not None and pending.operation is LicenseOperation.DEREGISTER:
        return _deregister(worker, observed, progress.phase)
    if pending is not None and pending.deregister_first:
        return _replace_registration(observed, progress.phase)
    if progress.phase is LicensePhase.REGISTERED:
        return _registered(worker, progress.reason)
    if progress.phase is LicensePhase.UNKNOWN:
        condition = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.UNKNOWN, "Unknown", progress.reason)
        return Decision("license.unknown", progress.reason, conditions=(condition,))
    if not worker.has_license_token:
        return _unlicensed(worker, progress.phase, progress.reason)
    return _register(worker, observed, progress.phase, progress.reason)


def _registered(worker: Worker, reason: str) -> Decision:
    condition = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.TRUE, "Registered", reason)
    actions: tuple[Action, ...] = ()
    if worker.license_status is not LicenseStatus.REGISTERED or worker.pending_license_operation is not None:
        actions = (WriteLicenseStatus(LicenseStatus.REGISTERED, reason, clear_pending=True),)
    return Decision("license.registered", "CML is registered", actions, conditions=(condition,))


def _unlicensed(worker: Worker, phase: LicensePhase, reason: str) -> Decision:
    condition = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "NoToken", reason)
    under_way = phase is LicensePhase.REGISTERING
    stale = worker.license_status in (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING) and not under_way
    actions = (WriteLicenseStatus(LicenseStatus.UNREGISTERED, reason),) if stale else ()
    return Decision("license.none", "the worker has no license token", actions, conditions=(condition,))


def _register(worker: Worker, observed: Observation, phase: LicensePhase, reason: str) -> Decision:
    if observed.license_task is LicenseTaskState.RUNNING or phase is LicensePhase.REGISTERING:
        condition = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "Registering", reason)
        recorded = worker.license_status is LicenseStatus.REGISTERING
        actions: tuple[Action, ...] = () if recorded else (WriteLicenseStatus(LicenseStatus.REGISTERING),)
        waits = waiting_for(LICENSE_PENDING, f"CML is registering its license: {reason}".rstrip(": "))
        return Decision(
            "license.registering",
            "CML is registering",
            actions,
            conditions=(condition, waits),
            after=LICENSE_POLL_SECONDS,
        )
    # Registration was requested since the record became REGISTERING: CML now reports its outcome.
    requested = worker.license_status is LicenseStatus.REGISTERING and observed.license_requested_at is not None
    if requested and (phase is LicensePhase.FAILED or observed.license_task is LicenseTaskState.REFUSED):
        reason = reason if phase is LicensePhase.FAILED else observed.license_error
        condition = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "Failed", reason)
        write = WriteLicenseStatus(LicenseStatus.FAILED, reason, clear_pending=True)
        return Decision("license.failed", f"CML could not register: {reason}", (write,), conditions=(condition,))
    if worker.license_status is LicenseStatus.FAILED and worker.license_failed_generation == worker.generation:
        condition = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "Failed", reason)
        why = "registration failed and is not retried until the token or the worker is changed"
        return Decision("license.given_up", why, conditions=(condition,))
    condition = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "Registering")
    recorded = worker.license_status is LicenseStatus.REGISTERING
    before: tuple[Action, ...] = (
        () if recorded else (WriteLicenseStatus(LicenseStatus.REGISTERING, kind=ActionKind.INTENT),)
    )
    why = _with_last_error("the worker has a license token and is not registered", observed)
    return Decision(
        "license.register",
        why,
        (*before, RegisterLicense()),
        conditions=(condition, waiting_for(LICENSE_PENDING, why)),
        after=LICENSE_POLL_SECONDS,
    )


def _replace_registration(observed: Observation, phase: LicensePhase) -> Decision:
    """CML is registered with a former token: deregister it, then register with the new one."""
    task = observed.license_task
    ended = task in (LicenseTaskState.RELEASED, LicenseTaskState.LEAKED)
    if ended or phase in (LicensePhase.UNREGISTERED, LicensePhase.FAILED):
        leaked = task is LicenseTaskState.LEAKED
        why = "the former registration has ended; CML is registered with the new token"
        before = WriteLicenseStatus(
            LicenseStatus.REGISTERING, why, leaked=leaked, deregistered=True, kind=ActionKind.INTENT
        )
        condition = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "Registering", why)
        return Decision(
            "license.register_anew",
            why,
            (before, RegisterLicense()),
            conditions=(condition, waiting_for(LICENSE_PENDING, why)),
            after=LICENSE_POLL_SECONDS,
        )
    why = _with_last_error("the license token was replaced; CML deregisters the former one first", observed)
    calls = task is not LicenseTaskState.RUNNING and phase is LicensePhase.REGISTERED
    actions: tuple[Action, ...] = (DeregisterLicense(),) if calls else ()
    conditions = (waiting_for(LICENSE_PENDING, why),)
    return Decision("license.replace", why, actions, conditions=conditions, after=LICENSE_POLL_SECONDS)


def deregistration_result(worker: Worker, observed: Observation) -> WriteLicenseStatus | None:
    """The write for a license that was just deregistered, whatever the worker does next; None otherwise.

    Its instance may have ended before a pass could record it: a license that was given back is not leaked.
    """
    task = observed.license_task
    if task not in (LicenseTaskState.RELEASED, LicenseTaskState.LEAKED):
        return None
    leaked = task is LicenseTaskState.LEAKED
    message = "CML deregistered locally, but Cisco still counts the license" if leaked else "deregistered"
    pending = worker.pending_license_operation
    if pending is not None and pending.operation is LicenseOperation.DEREGISTER:
        return WriteLicenseStatus(LicenseStatus.DEREGISTERED, message, clear_pending=True, leaked=leaked)
    if pending is not None and pending.deregister_first:
        return WriteLicenseStatus(LicenseStatus.UNREGISTERED, message, leaked=leaked, deregistered=True)
    if worker.status is WorkerStatus.TERMINATING and releases_before_termination(worker):
        return WriteLicenseStatus(LicenseStatus.DEREGISTERED, message, clear_pending=True, leaked=leaked)
    return None


def releases_before_termination(worker: Worker) -> bool:
    """Whether its license is deregistered before its instance is terminated."""
    return worker.release_license and worker.license_status in (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING)


def _deregister(worker: Worker, observed: Observation, phase: LicensePhase) -> Decision:
    if observed.license_task is LicenseTaskState.RUNNING:
        why = "the license is being deregistered"
        waits = waiting_for(LICENSE_PENDING, why)
        return Decision("license.releasing", why, conditions=(waits,), after=LICENSE_POLL_SECONDS)
    write = deregistration_result(worker, observed)
    if write is None and phase is LicensePhase.UNREGISTERED:
        write = WriteLicenseStatus(LicenseStatus.DEREGISTERED, "deregistered", clear_pending=True)
    if write is not None:
        condition = ConditionUpdate(ConditionType.LICENSED, ConditionStatus.FALSE, "GivenBack")
        return Decision("license.released", write.message, (write,), conditions=(condition,))
    # A failed attempt is retried. Until it succeeds, the record stays REGISTERED, as CML is.
    why = _with_last_error("deregistration was requested", observed)
    waits = waiting_for(LICENSE_PENDING, why)
    return Decision("license.release", why, (DeregisterLicense(),), conditions=(waits,), after=LICENSE_POLL_SECONDS)


def _with_last_error(why: str, observed: Observation) -> str:
    return f"{why}; the last attempt failed: {observed.license_error}" if observed.license_error else why
