"""Settings that people change at run time. A stored value overrides the startup configuration until it is reset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lcm.control_plane.records.kinds import SETTINGS
from lcm.control_plane.store.port import Put
from lcm.model.fleet.settings import FleetSettings
from lcm.model.validation import problems_of

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.fleet.settings import FleetSettingsPatch

_SETTINGS_ID = "fleet"
_GROUPS = ("idle", "discovery", "scaling")


async def read_fleet_settings(store: Store, base: FleetSettings) -> FleetSettings:
    """The settings in effect now."""
    stored = await store.get(SETTINGS, _SETTINGS_ID)
    return base if stored is None else _merge_settings(base, json.loads(stored.body))


async def patch_fleet_settings(tx: Transaction, base: FleetSettings, patch: FleetSettingsPatch) -> FleetSettings:
    """Store values, or reset stored ones with null. One invalid value rejects the whole patch."""
    stored = await tx.store.get(SETTINGS, _SETTINGS_ID)
    before: dict[str, dict[str, Any]] = {} if stored is None else json.loads(stored.body)
    before = {**{group: {} for group in _GROUPS}, **before}
    after = {group: dict(values) for group, values in before.items()}
    for group in _GROUPS:
        for name, value in patch.provided(group).items():
            if value is None:
                after[group].pop(name, None)
            else:
                after[group][name] = value
    settings = _merge_settings(base, after)
    if after != before:
        body = json.dumps(after, sort_keys=True).encode()
        tx.stage(Put(SETTINGS, _SETTINGS_ID, body, None if stored is None else stored.revision))
        tx.audit("settings_changed", "settings", changed={group: patch.provided(group) for group in _GROUPS})
    return settings


def _merge_settings(base: FleetSettings, stored: dict[str, dict[str, Any]]) -> FleetSettings:
    merged = {group: {**getattr(base, group).model_dump(), **stored.get(group, {})} for group in _GROUPS}
    try:
        return FleetSettings.model_validate(merged)
    except ValidationError as error:
        # Values of a newer version, such as another word for a policy: until the upgrade is done, ours count.
        for (group, name, *_), _ in problems_of(error):
            merged[group][name] = getattr(getattr(base, group), name)
        return FleetSettings.model_validate(merged)
