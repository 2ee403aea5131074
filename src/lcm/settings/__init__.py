"""Settings: groups to combine, `load` to read them, `describe` to document them.

Whatever must start fast imports this only where it is needed.
"""

from lcm.settings.base import Conflict, Settings
from lcm.settings.describe import Allowed, SettingDoc, describe
from lcm.settings.groups.common import (
    ControllerTokenSettings,
    CoordinationSettings,
    DataSettings,
    ElectionSettings,
    HttpSettings,
    InstanceSettings,
    LogSettings,
    ReconcileSettings,
    RegionSettings,
    WatchSettings,
)
from lcm.settings.groups.control_plane import AccessSettings, FleetDefaults, FleetSources, LabletPorts, StoreSettings
from lcm.settings.groups.controllers import (
    CloudSettings,
    CmlSettings,
    LabletControllerSettings,
    PlaneAddressSettings,
    ResourceSchedulerSettings,
    WorkerControllerSettings,
)
from lcm.settings.loading import CONFIG_VARIABLE, Loaded, SettingsError, load

__all__ = [
    "CONFIG_VARIABLE",
    "AccessSettings",
    "Allowed",
    "CloudSettings",
    "CmlSettings",
    "Conflict",
    "ControllerTokenSettings",
    "CoordinationSettings",
    "DataSettings",
    "ElectionSettings",
    "FleetDefaults",
    "FleetSources",
    "HttpSettings",
    "InstanceSettings",
    "LabletControllerSettings",
    "LabletPorts",
    "Loaded",
    "LogSettings",
    "PlaneAddressSettings",
    "ReconcileSettings",
    "RegionSettings",
    "ResourceSchedulerSettings",
    "SettingDoc",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "WatchSettings",
    "WorkerControllerSettings",
    "describe",
    "load",
]
