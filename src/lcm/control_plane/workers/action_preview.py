"""A preview of what a command would do to a worker: for the dialogs of the dashboard, and for dry runs.

The preview runs the command itself on a copy of the record, so that it cannot differ from the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers import lifecycle
from lcm.model.change_preview import ChangePreview
from lcm.model.fleet.plan import DecisionState
from lcm.model.formatting import count_of, format_clock_time, format_usd
from lcm.model.problems import ProblemCode
from lcm.model.worker.cost import (
    can_release_license,
    cost_if,
    cost_so_far,
    current_cost,
    describe_license_release,
    describe_running_nodes,
)
from lcm.model.worker.next_step import next_step_of
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import (
    CML_STATUSES,
    DesiredStatus,
    IllegalWorkerTransitionError,
    LicenseStatus,
    WorkerStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from lcm.model.fleet.plan import PlannedWorker
    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.record import Worker

WORKER_ACTIONS: dict[str, str] = {
    "start": "Start",
    "stop": "Stop",
    "drain": "Drain",
    "cancel-drain": "Cancel the drain of",
    "retry": "Retry",
    "trust": "Trust the certificate of",
    "hold": "Hold",
    "release": "Release",
    "terminate": "Terminate",
    "leak-license": "Give up the license of",
}
"""Commands for a worker, with the labels of their buttons."""

DESTRUCTIVE_ACTIONS = ("terminate", "stop", "drain")
"""Commands that end or interrupt what runs on a worker."""


def leak_license(worker: Worker, now: datetime) -> Worker:
    """Terminate at once a worker whose termination waits for its license."""
    waits = worker.desired_status is DesiredStatus.TERMINATED and worker.status is not WorkerStatus.TERMINATED
    if not waits or worker.license_status is not LicenseStatus.REGISTERED:
        detail = "only a worker that is being terminated waits for its license; this one does not"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    return worker if not worker.release_license else lifecycle.terminate(worker, now, release_license=False)


_COMMANDS: dict[str, Callable[[Worker, datetime], Worker]] = {
    "start": lifecycle.start,
    "stop": lifecycle.stop,
    "drain": lifecycle.drain,
    "cancel-drain": lifecycle.cancel_drain,
    "retry": lifecycle.retry,
    "trust": lifecycle.trust,
    "hold": lambda worker, now: lifecycle.hold(worker, HoldRequest(reason="preview"), "you", now),
    "release": lifecycle.release,
    "terminate": lifecycle.terminate,
    "leak-license": leak_license,
}


def available_actions(worker: Worker, now: datetime) -> list[str]:
    """The commands that are possible now and have an effect."""
    return [
        action
        for action in WORKER_ACTIONS
        if (preview := preview_action(worker, action, now)).changes and not preview.refusal
    ]


def preview_action(
    worker: Worker,
    action: str,
    now: datetime,
    sample: MetricsSample | None = None,
    planned: PlannedWorker | None = None,
    *,
    release_license: bool = True,
    fleet_held: bool = False,
    until: datetime | None = None,
) -> ChangePreview:
    """What the command would do now. `sample` holds its latest metrics, `planned` what waits for its release."""
    if action == "release" and worker.hold is None:
        return ChangePreview(action=action, changes=False, effect="It is not on hold.")
    try:
        after = lifecycle.terminate(worker, now, release_license=False) if not release_license else None
        after = after or _run(worker, action, now, until)
    except (ProblemError, IllegalWorkerTransitionError) as error:
        return ChangePreview(action=action, refusal=str(getattr(error, "detail", error)), changes=False)
    if after == worker:
        return ChangePreview(action=action, changes=False, change=_status_text(worker), effect="No change needed.")
    cost, cost_change = _cost(worker, after, action)
    booked = _booked_text(worker, action, now)
    if booked and cost_change < 0:
        cost = f"{cost.removesuffix('.')}, until the class has another worker."
    losses = _interrupted(worker, action, sample)
    if action == "terminate":
        losses = _lost(worker, now, sample, release_license=release_license)
    elif action == "leak-license":
        losses = {"License": describe_license_release(after)}
    licensed = worker.license_status is LicenseStatus.REGISTERED and worker.release_license
    return ChangePreview(
        action=action,
        can_leak_license=action == "terminate" and licensed,
        change=_change_text(worker, after),
        effect=_release_text(planned, after, fleet_held)
        if planned is not None
        else _effect_text(after, action, now, fleet_held) + booked,
        takes=_duration(worker, after, action),
        cost=cost,
        cost_change_usd=cost_change,
        losses=losses,
    )


def _run(worker: Worker, action: str, now: datetime, until: datetime | None) -> Worker:
    if until is None or action not in ("start", "stop"):
        return _COMMANDS[action](worker, now)
    desired = DesiredStatus.RUNNING if action == "start" else DesiredStatus.STOPPED
    override = lifecycle.make_override(desired, until, "you", now)
    if action == "start":
        return lifecycle.start(worker, now, override=override)
    return lifecycle.stop(worker, now, override=override)


def _status_text(worker: Worker) -> str:
    return f"{worker.status}, desired {worker.desired_status}"


def _change_text(before: Worker, after: Worker) -> str:
    """The status and the desired status before and after; empty if neither changes."""
    texts = _status_text(before), _status_text(after)
    return "" if texts[0] == texts[1] else " → ".join(texts)


_WITHIN_STUCK_LIMIT = "15 minutes at most with the default timeouts; after that it is reported as stuck"


def _duration(worker: Worker, after: Worker, action: str) -> str:
    """How long the command takes, as far as the timeouts bound it."""
    if action not in ("start", "stop", "drain", "retry", "terminate"):
        return ""
    if after.desired_status is DesiredStatus.RUNNING:
        return describe_start_duration(worker)
    if after.instance_id is None and after.launch_intent is None:
        return "a few seconds"
    if action == "drain":
        wait = "it waits for its labs and lablets for 10 minutes at most with the default DRAIN_TIMEOUT"
        return f"{wait}; then its instance stops"
    if after.desired_status is DesiredStatus.TERMINATED and deregisters_license_first(after):
        return f"its license is deregistered first; then {_WITHIN_STUCK_LIMIT}"
    return _WITHIN_STUCK_LIMIT


def deregisters_license_first(worker: Worker) -> bool:
    """Whether its termination begins with the deregistration of a license."""
    licensed = worker.license_status is LicenseStatus.REGISTERED and worker.release_license
    return licensed and can_release_license(worker)


def describe_start_duration(worker: Worker) -> str:
    """How long a worker takes until it is ready."""
    if worker.status is WorkerStatus.DRAINING:
        return "a few seconds"
    launch = worker.instance_id is None
    return (
        f"{'an hour' if launch else '45 minutes'} at most with the default timeouts, usually much less;"
        " after that it is reported as a problem"
    )


def _effect_text(after: Worker, action: str, now: datetime, fleet_held: bool) -> str:
    if action == "hold":
        return "All changes to this worker will stop until it is released. Monitoring will continue."
    if action == "trust":
        return f"Passwords will be sent to the server with the certificate {after.cml_certificate}."
    until = None if after.override is None or not after.override.active(now) else after.override.until
    kept = "" if until is None else f" Policies will not change that until {format_clock_time(until, now)}."
    return f"{next_step_text(after, now, fleet_held=fleet_held)}{kept}"


def _booked_text(worker: Worker, action: str, now: datetime) -> str:
    """What a class that the worker is booked for loses: a booking outranks neither a termination nor a hold."""
    if action not in ("terminate", "hold") or not worker.is_booked(now) or worker.booked_until is None:
        return ""
    until = format_clock_time(worker.booked_until, now)
    seats = ", and the seats on this one will be placed anew" if action == "terminate" else ""
    return (
        f" It is booked for {worker.booking_id} until {until}. The class will get another worker, if the limits allow"
        f" it{seats}."
    )


def next_step_text(worker: Worker, now: datetime, *, fleet_held: bool) -> str:
    """What happens next with a worker, as sentences. A hold of it or of the fleet delays it."""
    step = next_step_of(worker)
    clause = step.clause.partition(": lcm ")[0]
    held = worker.hold is not None and worker.hold.active(now)
    if not (held or fleet_held) or step.is_settled:
        return f"{clause[0].upper()}{clause[1:]}."
    if held and fleet_held:
        return f"It is on hold, and so is the fleet. After both are released, {clause}."
    return f"{'It' if held else 'The fleet'} is on hold. After its release, {clause}."


def _release_text(planned: PlannedWorker, after: Worker, fleet_held: bool) -> str:
    """What will be done when the hold ends: what the controller has decided, not what the status suggests."""
    text = planned.summary
    if not text and planned.state is DecisionState.CURRENT:
        text = "No action is waiting for the release."
    elif not text:
        clause = next_step_of(after).clause.partition(": lcm ")[0]
        text = f"{planned.note[0].upper()}{planned.note[1:]}. Expected: {clause}."
    return f"The fleet stays on hold. After its release: {text}" if fleet_held else text


def _cost(worker: Worker, after: Worker, action: str) -> tuple[str, float]:
    """The cost as text, and the change of the hourly cost."""
    if action in ("hold", "release", "trust", "leak-license"):
        return "", 0.0
    cost_now = current_cost(worker)
    has_instance = worker.instance_id is not None or after.desired_status is DesiredStatus.RUNNING
    cost_then: float | None = 0.0
    if has_instance and after.desired_status is not DesiredStatus.TERMINATED:
        cost_then = cost_if(worker, running=after.desired_status is DesiredStatus.RUNNING)
    if cost_now is None or cost_then is None:
        return "The effect on the cost is unknown, because the price of this worker is not known.", 0.0
    change = round(cost_then - cost_now, 6)
    if not change:
        return f"The cost stays {format_usd(cost_now)} an hour.", 0.0
    if change > 0:
        return f"It will cost {format_usd(cost_then)} an hour.", change
    rest = f"; its disks still cost {format_usd(cost_then)}" if cost_then else ""
    return f"It will save {format_usd(-change)} an hour{rest}.", change


def _interrupted(worker: Worker, action: str, sample: MetricsSample | None) -> dict[str, str]:
    if action not in ("stop", "drain") or worker.status not in CML_STATUSES:
        return {}
    return {"Running now": describe_running_nodes(sample, worker), **_assigned_lablets(worker)}


def total_losses(workers: Sequence[Worker], samples: Mapping[str, MetricsSample | None], action: str) -> str:
    """What a command ends or interrupts on several workers together.

    `samples` has the latest metrics by worker. Workers whose labs are not known are counted as such.
    """
    known = [sample for sample in samples.values() if sample is not None and sample.labs_count is not None]
    unknown = sum(worker.status in CML_STATUSES for worker in workers) - len(known)
    nodes = sum(sample.running_nodes or 0 for sample in known)
    labs = f"{count_of(sum(sample.labs_count or 0 for sample in known), 'lab')} with {count_of(nodes, 'running node')}"
    if unknown:
        labs += f" (unknown for {count_of(unknown, 'worker')} without recent metrics)"
    parts = [labs, count_of(sum(worker.allocation.lablets for worker in workers), "lablet")]
    if action == "terminate":
        instances = sum(worker.instance_id is not None for worker in workers)
        licensed = sum(worker.license_status is LicenseStatus.REGISTERED for worker in workers)
        parts = [f"{count_of(instances, 'instance')} with all data on their disks", *parts]
        parts.append(f"{count_of(licensed, 'registered license')}")
    return f"{', '.join(parts)}."


def _assigned_lablets(worker: Worker) -> dict[str, str]:
    count = worker.allocation.lablets
    return {"Lablets": f"{count_of(count, 'lablet')} on it"} if count else {}


def _lost(worker: Worker, now: datetime, sample: MetricsSample | None, *, release_license: bool) -> dict[str, str]:
    cost = cost_so_far(worker, now)
    losses = {
        "Instance": f"{worker.instance_id}, with its disks and all their data" if worker.instance_id else "none",
        "Running now": describe_running_nodes(sample, worker),
        **_assigned_lablets(worker),
        "License": describe_license_release(worker, release=release_license),
    }
    if cost is None:
        return losses
    return {**losses, "Cost so far": f"about ${cost:,.2f}" if cost >= 0.01 else "less than $0.01"}
