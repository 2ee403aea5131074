"""Settings that people change at run time. A stored value overrides the startup configuration until it is reset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lcm.control_plane.calendar.schedule_reads import read_schedules
from lcm.control_plane.fleet.state_reads import read_fleet_state
from lcm.control_plane.records.kinds import SETTINGS, WORKERS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Put, Where
from lcm.core import clock
from lcm.model.calendar.precedence import OtherClaims
from lcm.model.calendar.schedule import schedule_claim
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.settings_preview import preview_settings
from lcm.model.validation import problems_of
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.fleet.settings import FleetSettingsPatch
    from lcm.model.fleet.settings_preview import SettingsPreview

_SETTINGS_ID = "fleet"
_GROUPS = ("idle", "discovery", "scaling", "maintenance")


async def read_fleet_settings(store: Store, base: FleetSettings) -> FleetSettings:
    """The settings in effect now."""
    stored = await store.get(SETTINGS, _SETTINGS_ID)
    return base if stored is None else _merge_settings(base, json.loads(stored.body))


async def preview_fleet_settings(store: Store, base: FleetSettings, patch: FleetSettingsPatch) -> SettingsPreview:
    """What a patch would change, and what would follow from it now. Nothing is stored."""
    stored = await store.get(SETTINGS, _SETTINGS_ID)
    values: dict[str, dict[str, Any]] = {} if stored is None else json.loads(stored.body)
    running = Where(any_of={"status": [WorkerStatus.RUNNING.value], "desired_status": [DesiredStatus.RUNNING.value]})
    not_terminated = Where(none_of={"status": [WorkerStatus.TERMINATED.value]})
    counts = await store.count_by(WORKERS, ["aws_region"], not_terminated)
    now, fleet = clock.now(), await read_fleet_state(store)
    schedules = await read_schedules(store, fleet)
    workers, claims = list[Worker](), dict[str, OtherClaims]()
    async for stored in find_all(store, WORKERS, running):
        worker = read_or_skip(stored, Worker, "worker")
        if worker is None:
            continue
        workers.append(worker)
        if schedules:
            claims[worker.id] = OtherClaims(schedule=schedule_claim(worker, schedules, now))
    return preview_settings(
        _merge_settings(base, values),
        _merge_settings(base, _patched(values, patch)),
        workers,
        claims=claims,
        workers_per_region={str(region): count for (region,), count, _ in counts},
        fleet_held=fleet.hold is not None and fleet.hold.active(now),
        now=now,
    )


async def patch_fleet_settings(tx: Transaction, base: FleetSettings, patch: FleetSettingsPatch) -> FleetSettings:
    """Store values, or reset stored ones with null. One invalid value rejects the whole patch."""
    stored = await tx.store.get(SETTINGS, _SETTINGS_ID)
    before: dict[str, dict[str, Any]] = {} if stored is None else json.loads(stored.body)
    before = {**{group: {} for group in _GROUPS}, **before}
    after = _patched(before, patch)
    settings = _merge_settings(base, after)
    if after != before:
        if after["scaling"] != before["scaling"]:
            await tx.take_calendar()  # bookings were admitted by these limits
        body = json.dumps(after, sort_keys=True).encode()
        tx.stage(Put(SETTINGS, _SETTINGS_ID, body, None if stored is None else stored.revision))
        tx.audit("settings_changed", "settings", changed={group: patch.provided(group) for group in _GROUPS})
    return settings


def _patched(stored: dict[str, dict[str, Any]], patch: FleetSettingsPatch) -> dict[str, dict[str, Any]]:
    after = {group: dict(stored.get(group, {})) for group in (*stored, *_GROUPS)}
    for group in _GROUPS:
        for name, value in patch.provided(group).items():
            if value is None:
                after[group].pop(name, None)
            else:
                after[group][name] = value
    return after


def _merge_settings(base: FleetSettings, stored: dict[str, dict[str, Any]]) -> FleetSettings:
    merged = {group: {**getattr(base, group).model_dump(), **stored.get(group, {})} for group in _GROUPS}
    try:
        return FleetSettings.model_validate(merged)
    except ValidationError as error:
        # Values of a newer version, such as another word for a policy: until the upgrade is done, ours count.
        for (group, name, *_), _ in problems_of(error):
            merged[group][name] = getattr(getattr(base, group), name)
        return FleetSettings.model_validate(merged)
