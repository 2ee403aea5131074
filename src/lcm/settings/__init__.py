"""Settings: groups to combine, `load` to read them, `describe` to document them.

Whatever must start fast imports this only where it is needed.
"""

from lcm.settings.base import Conflict, Settings
from lcm.settings.groups import (
    CoordinationSettings,
    DataSettings,
    ElectionSettings,
    HttpSettings,
    InstanceSettings,
    LogSettings,
    ReconcileSettings,
    WatchSettings,
)
from lcm.settings.loading import CONFIG_VARIABLE, Loaded, SettingsError, load
from lcm.settings.plane_groups import AccessSettings, FleetDefaults, FleetSources, StoreSettings
from lcm.settings.words import Allowed, SettingDoc, describe

__all__ = [
    "CONFIG_VARIABLE",
    "AccessSettings",
    "Allowed",
    "Conflict",
    "CoordinationSettings",
    "DataSettings",
    "ElectionSettings",
    "FleetDefaults",
    "FleetSources",
    "HttpSettings",
    "InstanceSettings",
    "Loaded",
    "LogSettings",
    "ReconcileSettings",
    "SettingDoc",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "WatchSettings",
    "describe",
    "load",
]
