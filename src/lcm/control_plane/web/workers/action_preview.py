"""What a command would do to a worker and what it costs or saves, told before anybody confirms it.

The command itself is asked, on a copy: so the plan that is shown and the change that is made cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.service import BILLED_STATUSES
from lcm.control_plane.web.rendering import usd
from lcm.control_plane.workers import lifecycle
from lcm.control_plane.workers import lifecycle as holding
from lcm.model.worker.cost import cost_so_far, describe_license_release, describe_running_nodes
from lcm.model.worker.next_step import next_step_of
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import DesiredStatus, IllegalWorkerTransitionError, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.record import Worker

WORKER_ACTIONS: dict[str, str] = {
    "start": "Start",
    "stop": "Stop",
    "drain": "Drain",
    "cancel-drain": "Cancel the drain of",
    "retry": "Retry",
    "hold": "Hold",
    "release": "Release",
    "terminate": "Terminate",
}
"""What can be asked of a worker, as a button says it."""

_COMMANDS: dict[str, Callable[[Worker, datetime], Worker]] = {
    "start": lifecycle.start,
    "stop": lifecycle.stop,
    "drain": lifecycle.drain,
    "cancel-drain": lifecycle.cancel_drain,
    "retry": lifecycle.retry,
    "hold": lambda worker, now: holding.hold(worker, HoldRequest(reason="asked"), "you", now),
    "release": holding.release,
    "terminate": lifecycle.terminate,
}


@dataclass(frozen=True, slots=True)
class ActionPreview:
    """What would happen; `refusal` says why nothing can."""

    action: str
    refusal: str = ""
    changes: bool = True
    happens: str = ""
    cost: str = ""
    losses: tuple[tuple[str, str], ...] = ()


def available_actions(worker: Worker, now: datetime) -> list[str]:
    """What fits the worker as it is: neither refused nor without effect."""
    return [
        action
        for action in WORKER_ACTIONS
        if (found := preview_action(worker, action, now)).changes and not found.refusal
    ]


def preview_action(worker: Worker, action: str, now: datetime, sample: MetricsSample | None = None) -> ActionPreview:
    """What the command would do now."""
    if action == "release" and worker.hold is None:
        return ActionPreview(action, changes=False, happens="It is not on hold.")
    try:
        after = _COMMANDS[action](worker, now)
    except (ProblemError, IllegalWorkerTransitionError) as error:
        return ActionPreview(action, refusal=str(getattr(error, "detail", error)), changes=False)
    if after == worker:
        return ActionPreview(action, changes=False, happens="It is so already: nothing changes.")
    return ActionPreview(
        action,
        happens=_effect_text(after, action, now),
        cost=_cost_text(worker, after, action),
        losses=_lost(worker, now, sample) if action == "terminate" else _interrupted(worker, action, sample),
    )


def _effect_text(after: Worker, action: str, now: datetime) -> str:
    clause = next_step_of(after).clause.partition(": lcm ")[0]
    if action == "hold":
        return "All changes of it stop until it is released. Watching and explaining go on."
    held = after.hold is not None and after.hold.active(now)
    lead = "It is on hold: only after its release " if held else ""
    return f"{lead}{clause}." if held else f"{clause[0].upper()}{clause[1:]}."


def _cost_text(worker: Worker, after: Worker, action: str) -> str:
    price = worker.cost_per_hour_usd
    if price is None or action in ("hold", "release"):
        return ""
    pays = worker.status in BILLED_STATUSES
    will_pay = after.desired_status is DesiredStatus.RUNNING
    if will_pay and not pays:
        return f"It will cost {usd(price)} an hour."
    if pays and not will_pay:
        disks = "; its disks are still billed" if after.desired_status is DesiredStatus.STOPPED else ""
        return f"It will save {usd(price)} an hour{disks}."
    return f"The cost stays {usd(price if pays else 0)} an hour."


def _interrupted(worker: Worker, action: str, sample: MetricsSample | None) -> tuple[tuple[str, str], ...]:
    if action not in ("stop", "drain") or worker.status not in (WorkerStatus.RUNNING, WorkerStatus.DRAINING):
        return ()
    return (("Running on it", describe_running_nodes(sample, worker)),)


def _lost(worker: Worker, now: datetime, sample: MetricsSample | None) -> tuple[tuple[str, str], ...]:
    cost = cost_so_far(worker, now)
    facts = [
        ("Instance", f"{worker.instance_id}, with its disks and all on them" if worker.instance_id else "none"),
        ("Running on it", describe_running_nodes(sample, worker)),
        ("Licence", describe_license_release(worker)),
    ]
    if cost is not None:
        facts.append(("Cost so far", f"about {usd(cost)}"))
    return tuple(facts)
