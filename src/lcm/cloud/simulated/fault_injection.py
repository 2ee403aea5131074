"""Injects faults into a region: activates them, or changes machines at once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lcm.cloud.errors import CloudError
from lcm.cloud.simulated import error_codes
from lcm.cloud.simulated.faults import (
    ActiveFaults,
    AnnounceMaintenance,
    CancelMaintenance,
    DropFromReads,
    ExternalAction,
    ExternalChange,
    FailPage,
    FailStatusCheck,
    HalvePages,
    HideInstances,
    HideNewInstances,
    LackCapacity,
    LagReads,
    LoseResponses,
    OmitInstanceType,
    Outage,
    RefuseCalls,
    RejectCredentials,
    RescheduleMaintenance,
    ThrottleCalls,
)
from lcm.cloud.simulated.machine import MaintenanceEvent
from lcm.cloud.types import InstanceState

if TYPE_CHECKING:
    from lcm.cloud.simulated.faults import Fault
    from lcm.cloud.simulated.machine import Machine
    from lcm.cloud.simulated.region import SimulatedRegion

_ELIGIBLE_STATES: Final = {
    ExternalAction.STOP: (InstanceState.RUNNING,),
    ExternalAction.START: (InstanceState.STOPPED,),
    ExternalAction.TERMINATE: (InstanceState.RUNNING, InstanceState.STOPPED),
}


def inject(region: SimulatedRegion, fault: Fault, now: float) -> None:
    """Inject a fault. A fault for an instance in an unsuitable state fails like the corresponding call."""
    match fault:
        case ExternalChange() | FailStatusCheck() | AnnounceMaintenance():
            _inject_into_machine(region, fault, now)
        case RescheduleMaintenance() | CancelMaintenance():
            _change_maintenance(region, fault, now)
        case LagReads() | HideInstances() | DropFromReads() | HalvePages() | FailPage():
            _inject_into_reads(region.faults, fault, now)
        case ThrottleCalls(operation, times):
            region.faults.refuse(operation, error_codes.THROTTLED, times)
        case RefuseCalls(operation, code, times):
            region.faults.refuse(operation, code, times)
        case RejectCredentials() | LackCapacity() | OmitInstanceType():
            _inject_refusal(region.faults, fault, now)
        case LoseResponses(times, silent):
            region.faults.lost_replies = times
            region.faults.silent = silent
        case HideNewInstances(seconds):
            region.faults.hide_seconds = seconds
        case Outage(seconds, silent):
            region.faults.outage_until = now + seconds
            region.faults.outage_is_silent = silent


def _inject_refusal(
    faults: ActiveFaults, fault: RejectCredentials | LackCapacity | OmitInstanceType, now: float
) -> None:
    match fault:
        case RejectCredentials(code, seconds):
            faults.credential_code = code
            faults.credentials_rejected_until = now + seconds
        case LackCapacity(seconds, instance_type, subnet_id):
            faults.lacking_capacity.append(LackCapacity(now + seconds, instance_type, subnet_id))
        case OmitInstanceType(instance_type, subnet_id):
            faults.omitted_types.add((instance_type, subnet_id))


def inject_if_possible(region: SimulatedRegion, fault: Fault, now: float) -> None:
    """Inject a scripted fault, which is skipped if the instance is in an unsuitable state."""
    with suppress(CloudError):
        inject(region, fault, now)


def clear_faults(region: SimulatedRegion) -> None:
    """Clear all active faults. Changes of machines stay, and held transitions stay held."""
    region.faults = ActiveFaults(hold_transitions=region.faults.hold_transitions)


def reveal_instances(region: SimulatedRegion, now: float) -> None:
    """Make all instances visible, and later ones after the usual delay."""
    region.faults.hide_seconds = None
    for machine in region.machines.values():
        machine.visible_at = min(machine.visible_at, now)


def heal_instance(region: SimulatedRegion, instance_id: str) -> None:
    """Let all status checks pass again, and remove maintenance events."""
    machine = region.machines[instance_id]
    machine.impaired.clear()
    machine.events.clear()


def complete_maintenance(region: SimulatedRegion, instance_id: str) -> None:
    """Mark scheduled maintenance as completed; it is still listed."""
    for event in region.machines[instance_id].events:
        event.completed = True


def _inject_into_reads(
    faults: ActiveFaults, fault: LagReads | HideInstances | DropFromReads | HalvePages | FailPage, now: float
) -> None:
    match fault:
        case LagReads(seconds, share):
            faults.read_lag = seconds
            faults.lagging_share = share
        case HideInstances(seconds, instance_ids):
            faults.hidden_until |= dict.fromkeys(instance_ids or ("",), now + seconds)
        case DropFromReads(share, seconds):
            faults.dropped_share = share
            faults.drops_until = now + seconds
        case HalvePages(times, listings_only):
            faults.halved_pages = times
            faults.halves_listings_only = listings_only
        case FailPage(number, times):
            faults.failing_pages[number] = times


def _inject_into_machine(
    region: SimulatedRegion, fault: ExternalChange | FailStatusCheck | AnnounceMaintenance, now: float
) -> None:
    match fault:
        case ExternalChange(action, instance_id):
            chosen = instance_id or _pick_instance(region, _ELIGIBLE_STATES[action], now)
            if chosen is not None:
                _apply_external_action(region, action, chosen, now)
        case FailStatusCheck(kind, instance_id):
            if (machine := _running_machine(region, instance_id, now)) is not None:
                machine.impaired.add(kind)
        case AnnounceMaintenance(detail, after_seconds, instance_id, code):
            if (machine := _running_machine(region, instance_id, now)) is not None:
                machine.events.append(MaintenanceEvent(detail, now + after_seconds, code=code))


def _change_maintenance(region: SimulatedRegion, fault: RescheduleMaintenance | CancelMaintenance, now: float) -> None:
    for event in region.machines[fault.instance_id].events:
        if event.completed or event.canceled or event.left_host_at is not None:
            continue
        if isinstance(fault, CancelMaintenance):
            event.canceled = True
        else:
            event.not_before = now + fault.after_seconds


def _apply_external_action(region: SimulatedRegion, action: ExternalAction, instance_id: str, now: float) -> None:
    match action:
        case ExternalAction.STOP:
            region.stop_instance(instance_id, now, "Out of band")
        case ExternalAction.START:
            region.start_instance(instance_id, now)
        case ExternalAction.TERMINATE:
            region.terminate_instance(instance_id, now, "Out of band")


def _running_machine(region: SimulatedRegion, instance_id: str | None, now: float) -> Machine | None:
    chosen = instance_id or _pick_instance(region, (InstanceState.RUNNING,), now)
    return None if chosen is None else region.machines.get(chosen)


def _pick_instance(region: SimulatedRegion, states: tuple[InstanceState, ...], now: float) -> str | None:
    fit = [machine.id for machine in region.live(now) if machine.state in states and region.shown(machine, now)]
    return region.rng.choice(fit) if fit else None
