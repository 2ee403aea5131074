"""A preview of what a command would do to a worker, and what it would cost or save, for confirmation dialogs.

The preview runs the command itself on a copy of the record, so that it cannot differ from the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.web.rendering import usd
from lcm.control_plane.workers import lifecycle
from lcm.model.fleet.plan import DecisionState
from lcm.model.formatting import count_of
from lcm.model.problems import ProblemCode
from lcm.model.worker.cost import cost_if, cost_so_far, current_cost, describe_license_release, describe_running_nodes
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


@dataclass(frozen=True, slots=True)
class ActionPreview:
    """What would happen. `refusal` says why the command is not possible; `changes` is false if it has no effect.

    `cost_change_usd` is the change of the hourly cost: positive if it costs more, negative if it saves.
    """

    action: str
    refusal: str = ""
    changes: bool = True
    effect: str = ""
    cost: str = ""
    cost_change_usd: float = 0.0
    losses: tuple[tuple[str, str], ...] = ()
    can_leak_license: bool = False  # a registered license would be given back, which can be skipped


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
) -> ActionPreview:
    """What the command would do now. `sample` holds its latest metrics, `planned` what waits for its release."""
    if action == "release" and worker.hold is None:
        return ActionPreview(action, changes=False, effect="It is not on hold.")
    try:
        after = _COMMANDS[action](worker, now)
    except (ProblemError, IllegalWorkerTransitionError) as error:
        return ActionPreview(action, refusal=str(getattr(error, "detail", error)), changes=False)
    if after == worker:
        return ActionPreview(action, changes=False, effect="No change needed.")
    cost, cost_change = _cost(worker, after, action)
    losses = _lost(worker, now, sample) if action == "terminate" else _interrupted(worker, action, sample)
    if action == "leak-license":
        losses = (("License", describe_license_release(after)),)
    licensed = worker.license_status is LicenseStatus.REGISTERED and worker.release_license
    return ActionPreview(
        action,
        can_leak_license=action == "terminate" and licensed,
        effect=_release_text(planned, after) if planned is not None else _effect_text(after, action, now),
        cost=cost,
        cost_change_usd=cost_change,
        losses=losses,
    )


def _effect_text(after: Worker, action: str, now: datetime) -> str:
    clause = next_step_of(after).clause.partition(": lcm ")[0]
    if action == "hold":
        return "All changes to this worker will stop until it is released. Monitoring will continue."
    if action == "trust":
        return f"Passwords will be sent to the server with the certificate {after.cml_certificate}."
    held = after.hold is not None and after.hold.active(now)
    return f"It is on hold. After its release, {clause}." if held else f"{clause[0].upper()}{clause[1:]}."


def _release_text(planned: PlannedWorker, after: Worker) -> str:
    """What will be done when the hold ends: what the controller has decided, not what the status suggests."""
    if planned.summary:
        return planned.summary
    if planned.state is DecisionState.CURRENT:
        return "No action is waiting for the release."
    clause = next_step_of(after).clause.partition(": lcm ")[0]
    return f"{planned.note[0].upper()}{planned.note[1:]}. Expected: {clause}."


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
        return "The effect on the cost is unknown: nobody knows the price of this worker.", 0.0
    change = round(cost_then - cost_now, 6)
    if not change:
        return f"The cost stays {usd(cost_now)} an hour.", 0.0
    if change > 0:
        return f"It will cost {usd(cost_then)} an hour.", change
    rest = f"; its disks still cost {usd(cost_then)}" if cost_then else ""
    return f"It will save {usd(-change)} an hour{rest}.", change


def _interrupted(worker: Worker, action: str, sample: MetricsSample | None) -> tuple[tuple[str, str], ...]:
    if action not in ("stop", "drain") or worker.status not in CML_STATUSES:
        return ()
    return (("Running now", describe_running_nodes(sample, worker)), *_assigned_lablets(worker))


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


def _assigned_lablets(worker: Worker) -> tuple[tuple[str, str], ...]:
    count = worker.allocation.lablets
    return (("Lablets", f"{count_of(count, 'lablet')} on it"),) if count else ()


def _lost(worker: Worker, now: datetime, sample: MetricsSample | None) -> tuple[tuple[str, str], ...]:
    cost = cost_so_far(worker, now)
    losses = [
        ("Instance", f"{worker.instance_id}, with its disks and all their data" if worker.instance_id else "none"),
        ("Running now", describe_running_nodes(sample, worker)),
        *_assigned_lablets(worker),
        ("License", describe_license_release(worker)),
    ]
    if cost is not None:
        losses.append(("Cost so far", f"about {usd(cost)}"))
    return tuple(losses)
