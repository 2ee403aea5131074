"""What a change of the fleet settings would do, from the records and by the rules that automation follows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from lcm.model.base import LenientModel
from lcm.model.calendar.precedence import NO_OTHER_CLAIMS
from lcm.model.fleet.settings import DriftPolicy, FleetSettings, IdleAction, MaintenancePolicy
from lcm.model.formatting import count_of, humanize_duration
from lcm.model.worker.idle import idle_action_due, idle_policy_action, next_idle_action
from lcm.model.worker.maintenance import lablet_block, restart_need

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lcm.model.calendar.precedence import OtherClaims
    from lcm.model.worker.record import Worker

_MIN_HORIZON: Final = timedelta(minutes=5)
_MAX_NAMES = 5


class SettingChange(LenientModel):
    """One setting whose value would change."""

    group: str
    name: str
    before: bool | float | str | None
    after: bool | float | str | None


class SettingsPreview(LenientModel):
    """The settings that would change, and what follows from that."""

    changes: tuple[SettingChange, ...] = ()
    effects: tuple[str, ...] = ()


def preview_settings(
    before: FleetSettings,
    after: FleetSettings,
    workers: Sequence[Worker],
    *,
    claims: Mapping[str, OtherClaims],
    workers_per_region: Mapping[str, int],
    fleet_held: bool,
    now: datetime,
) -> SettingsPreview:
    """Preview a change. `workers` are RUNNING and desired RUNNING; `claims` has the claims on them, by their ids."""
    changes = tuple(_changes(before, after))
    groups = {change.group for change in changes}
    effects: list[str] = []
    if groups & {"idle", "scaling"}:
        effects += _stops(before, after, workers, claims, now)
        effects += _drains(after, workers, claims, now)
        if fleet_held and effects:
            effects.append("The fleet is on hold: nothing is stopped or drained before its release.")
    if "maintenance" in groups:
        effects += _restarts(after, workers, now)
    effects += _other_effects(before, after, workers_per_region)
    return SettingsPreview(changes=changes, effects=tuple(effects))


def _changes(before: FleetSettings, after: FleetSettings) -> list[SettingChange]:
    found = []
    for group in FleetSettings.model_fields:
        old, new = getattr(before, group).model_dump(mode="json"), getattr(after, group).model_dump(mode="json")
        found += [
            SettingChange(group=group, name=name, before=old.get(name), after=value)
            for name, value in new.items()
            if value != old.get(name)
        ]
    return found


def _stops(
    before: FleetSettings,
    after: FleetSettings,
    workers: Sequence[Worker],
    claims: Mapping[str, OtherClaims],
    now: datetime,
) -> list[str]:
    horizon = _horizon(after)
    idle, currently = (
        _due(settings, workers, claims, now, horizon) if idle_policy_action(settings) is IdleAction.PAUSE else []
        for settings in (after, before)
    )
    stopped = idle[: max(0, len(workers) - after.scaling.min_workers)]
    stopped_currently = currently[: max(0, len(workers) - before.scaling.min_workers)]
    within = f"within {humanize_duration(horizon)}"
    text = f"No worker will be stopped {within}."
    if len(stopped) < len(idle):
        text = f"{len(stopped)} of {count_of(len(idle), 'idle worker')} will be stopped {within} unless they are used:"
        text += f" MIN_WORKERS keeps {after.scaling.min_workers} running."
    elif stopped:
        text = f"{count_of(len(stopped), 'worker')} will be stopped {within} unless used: {_names(stopped)}."
    if len(stopped) != len(stopped_currently):
        text += f" With the current settings: {count_of(len(stopped_currently), 'worker')}."
    return [text]


def _horizon(settings: FleetSettings) -> timedelta:
    return max(_MIN_HORIZON, timedelta(seconds=settings.idle.idle_detection_interval))


def _due(
    settings: FleetSettings,
    workers: Sequence[Worker],
    claims: Mapping[str, OtherClaims],
    now: datetime,
    horizon: timedelta,
) -> list[Worker]:
    """The workers that may be paused or drained until then, as in the plan. MIN_WORKERS limits how many of them are."""
    found = []
    for worker in workers:
        at = next_idle_action(worker, settings, now, claims.get(worker.id, NO_OTHER_CLAIMS))
        if at is not None and at <= now + horizon:
            found.append(worker)
    return found


def _drains(
    after: FleetSettings, workers: Sequence[Worker], claims: Mapping[str, OtherClaims], now: datetime
) -> list[str]:
    if idle_policy_action(after) is not IdleAction.DRAIN:
        return []
    due = _due(after, workers, claims, now, _horizon(after))
    idle = [worker for worker in due if idle_action_due(worker, after.idle) <= now]
    drained = idle[: max(0, len(workers) - after.scaling.min_workers)]
    if not drained:
        return ["No worker is idle now, so none will be drained."]
    pace = timedelta(seconds=after.scaling.scale_down_cooldown_seconds)
    each = f", at most one every {humanize_duration(pace)}" if pace else ""
    return [f"{count_of(len(drained), 'idle worker')} will be drained{each}: {_names(drained)}."]


def _restarts(after: FleetSettings, workers: Sequence[Worker], now: datetime) -> list[str]:
    """Which workers will be restarted because of announced maintenance or failed checks, and which wait for lablets."""
    if after.maintenance.maintenance_policy is not MaintenancePolicy.PLAN:
        return ["Announced maintenance and failed status checks will only be reported."]
    needs = [(worker, restart_need(worker, after.maintenance, now)) for worker in workers]
    due = [worker for worker, need in needs if need is not None and need.due <= now and not need.is_exhausted]
    used = [worker for worker in due if lablet_block(worker) is not None]
    unused = [worker for worker in due if lablet_block(worker) is None]
    one_by_one = "one at a time in each region, unless a node runs on it"
    effects = (
        [f"{count_of(len(unused), 'worker')} will be restarted, {one_by_one}: {_names(unused)}."] if unused else []
    )
    if used:
        effects.append(f"{count_of(len(used), 'worker')} will be restarted after their last lablet: {_names(used)}.")
    return effects or ["No worker has to be restarted now."]


def _names(workers: Sequence[Worker]) -> str:
    names = [worker.name for worker in workers]
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


_SWITCH_EFFECTS: Final[dict[tuple[str, Any], str]] = {
    ("worker_discovery_enabled", False): "Instances will not be imported, and lost workers will not be marked.",
    ("worker_discovery_enabled", True): "The next scan will import matching instances and mark lost workers.",
    ("terminate_leaked_instances", True): (
        "Leaked instances will be terminated with their data. How many there are is known after the next scan."
    ),
    ("terminate_leaked_instances", False): "Leaked instances will be reported but not terminated.",
    ("breaker_enabled", False): "Workers will be marked as lost however many are lost at once.",
    ("breaker_enabled", True): "When too many workers are lost at once, marking them will be suspended.",
    ("drift_policy", DriftPolicy.ACCEPT): "A worker that is stopped outside LCM will stay stopped.",
    ("drift_policy", DriftPolicy.RESTORE): "A worker that is stopped outside LCM will be started again.",
}


def _other_effects(before: FleetSettings, after: FleetSettings, workers_per_region: Mapping[str, int]) -> list[str]:
    effects = []
    for name, value in after.discovery:
        text = _SWITCH_EFFECTS.get((name, value))
        if text is not None and value != getattr(before.discovery, name):
            effects.append(text)
    limit = after.scaling.max_workers_per_region
    if limit != before.scaling.max_workers_per_region:
        full = [f"{region} has {count:,}" for region, count in sorted(workers_per_region.items()) if count >= limit]
        launches = f"Scale-up will launch no worker in a region that has {limit:,} or more"
        effects.append(f"{launches}: {', '.join(full)}." if full else f"{launches}; no region has so many now.")
    return effects
