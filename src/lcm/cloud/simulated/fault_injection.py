"""How faults strike a region: what is on from now, and what is done to machines at once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lcm.cloud.errors import CloudError
from lcm.cloud.simulated import error_codes
from lcm.cloud.simulated.faults import (
    Action,
    Announce,
    Disturb,
    FailPage,
    Faults,
    HideNew,
    Impair,
    LagReads,
    LoseReplies,
    Outage,
    Refuse,
    Throttle,
)
from lcm.cloud.simulated.machine import COMPLETED, Event
from lcm.cloud.types import InstanceState

if TYPE_CHECKING:
    from lcm.cloud.simulated.faults import Fault
    from lcm.cloud.simulated.machine import Machine
    from lcm.cloud.simulated.region import Region

_FIT: Final = {
    Action.STOP: (InstanceState.RUNNING,),
    Action.START: (InstanceState.STOPPED,),
    Action.TERMINATE: (InstanceState.RUNNING, InstanceState.STOPPED),
}


def strike(region: Region, fault: Fault, now: float) -> None:
    """Let a fault happen. What is meant for an instance that cannot suffer it fails as the call would."""
    match fault:
        case Disturb() | Impair() | Announce():
            _strike_machine(region, fault, now)
        case Throttle(operation, times):
            region.faults.refuse(operation, error_codes.THROTTLED, times)
        case Refuse(operation, code, times):
            region.faults.refuse(operation, code, times)
        case LoseReplies(times, silent):
            region.faults.lost_replies = times
            region.faults.silent = silent
        case HideNew(seconds):
            region.faults.hide_seconds = seconds
        case LagReads(seconds):
            region.faults.read_lag = seconds
        case FailPage(number, times):
            region.faults.failing_pages[number] = times
        case Outage(seconds):
            region.faults.outage_until = now + seconds


def strike_if_possible(region: Region, fault: Fault, now: float) -> None:
    """Let a fault of a script happen: an instance that cannot suffer it is passed over."""
    with suppress(CloudError):
        strike(region, fault, now)


def clear(region: Region) -> None:
    """End all faults; what was done to machines stays done, and held transitions stay held."""
    region.faults = Faults(hold_transitions=region.faults.hold_transitions)


def reveal(region: Region, now: float) -> None:
    """Make everything visible, and what is launched from now on as soon as is usual."""
    region.faults.hide_seconds = None
    for machine in region.machines.values():
        machine.visible_at = min(machine.visible_at, now)


def heal(region: Region, instance_id: str) -> None:
    """All checks pass again, and no maintenance is shown."""
    machine = region.machines[instance_id]
    machine.impaired.clear()
    machine.events.clear()


def complete_maintenance(region: Region, instance_id: str) -> None:
    """What was announced has happened; it is still shown, and marked."""
    for event in region.machines[instance_id].events:
        if not event.completed:
            event.detail = COMPLETED + event.detail


def _strike_machine(region: Region, fault: Disturb | Impair | Announce, now: float) -> None:
    match fault:
        case Disturb(action, instance_id):
            chosen = instance_id or _pick(region, _FIT[action], now)
            if chosen is not None:
                _disturb(region, action, chosen, now)
        case Impair(kind, instance_id):
            if (machine := _running(region, instance_id, now)) is not None:
                machine.impaired.add(kind)
        case Announce(detail, after_seconds, instance_id):
            if (machine := _running(region, instance_id, now)) is not None:
                machine.events.append(Event(detail, now + after_seconds))


def _disturb(region: Region, action: Action, instance_id: str, now: float) -> None:
    match action:
        case Action.STOP:
            region.stop_instance(instance_id, now, "Out of band")
        case Action.START:
            region.start_instance(instance_id, now)
        case Action.TERMINATE:
            region.terminate_instance(instance_id, now, "Out of band")


def _running(region: Region, instance_id: str | None, now: float) -> Machine | None:
    chosen = instance_id or _pick(region, (InstanceState.RUNNING,), now)
    return None if chosen is None else region.machines.get(chosen)


def _pick(region: Region, states: tuple[InstanceState, ...], now: float) -> str | None:
    fit = [machine.id for machine in region.live(now) if machine.state in states and region.shown(machine, now)]
    return region.chance.choice(fit) if fit else None
