"""A preview of a license operation: for the dialogs of the dashboard, and for dry runs.

It applies the rule of the request itself to a copy of the record, and says what the controller then does with CML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.secrets.worker_secrets import LICENSE_TOKEN, is_stored_secret
from lcm.control_plane.workers import lifecycle
from lcm.core import clock
from lcm.model.change_preview import ChangePreview
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import LicenseRequest

_TAKES = "usually a minute or two; after 30 minutes with the default CAPACITY_WAIT_LIMIT it is reported as stuck"
_LICENSED = (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING)


async def preview_license(
    context: ControlPlaneContext, worker: Worker, request: LicenseRequest, *, fleet_held: bool
) -> ChangePreview:
    """What the operation would do now. A token in the request is compared with the stored one."""
    action, now = f"license-{request.operation.value}", clock.now()
    token = request.token
    same = token is not None and await is_stored_secret(
        context.store, context.secret_box, worker.id, LICENSE_TOKEN, token.get_secret_value()
    )
    try:
        after = lifecycle.apply_license_request(worker, request, "you", now, same_token=same)
    except ProblemError as error:
        return ChangePreview(action=action, refusal=error.detail, changes=False)
    status = f"license {worker.license_status}"
    if after is worker:
        return ChangePreview(
            action=action, changes=False, change=status, effect="No change needed: it is already requested."
        )
    registers = request.operation is LicenseOperation.REGISTER
    held = fleet_held or (worker.hold is not None and worker.hold.active(now))
    clause = _registration(worker, after, request) if registers else _deregistration(worker)
    effects = ["Its license token will be deleted at once."] if not registers and worker.has_license_token else []
    effects.append(_delayed(worker, clause, held=held) if clause else _no_call(request))
    return ChangePreview(
        action=action,
        change=f"{status} → {'registration' if registers else 'deregistration'} requested",
        effect=" ".join(effects),
        takes=_TAKES if registers and clause else "",
        losses={} if registers or not clause else {"Labs": "running labs may be limited without a license"},
    )


def calls_cml(preview: ChangePreview) -> bool:
    """Whether a controller has anything to do with CML for the operation."""
    return preview.changes and (bool(preview.takes) or bool(preview.losses))


def _registration(worker: Worker, after: Worker, request: LicenseRequest) -> str:
    """What CML does for a registration; empty if it does nothing."""
    pending, token = after.pending_license_operation, _token_text(request)
    if pending is not None and pending.deregister_first:
        return f"CML will deregister its present license and then register with {token} {{when}}"
    return "" if worker.license_status is LicenseStatus.REGISTERED else f"CML will register with {token} {{when}}"


def _deregistration(worker: Worker) -> str:
    """What CML does for a deregistration; empty if it does nothing."""
    if worker.license_status in _LICENSED:
        return "CML will deregister {when}; Cisco then no longer counts the license"
    if worker.license_status is LicenseStatus.FAILED:
        return "CML will deregister {when}, in case its failed registration left something behind"
    return ""


def _token_text(request: LicenseRequest) -> str:
    return "this token" if request.token is not None else "its stored token"


def _no_call(request: LicenseRequest) -> str:
    if request.operation is LicenseOperation.REGISTER:
        return f"CML is already registered with {_token_text(request)}."
    return "CML has no license to deregister."


def _delayed(worker: Worker, clause: str, *, held: bool) -> str:
    runs = worker.status is WorkerStatus.RUNNING and worker.desired_status is DesiredStatus.RUNNING
    text = clause.format(when="as soon as it responds" if runs else "once the worker is running")
    return f"After the release of the hold, {text}." if held else f"{text}."
