"""Settings: groups to combine, `load` to read them, `describe` to document them.

Code that must start fast imports this package only where it is needed.
"""

from lcm.settings.base import Settings, SettingsConflict
from lcm.settings.describe import Allowed, SettingDoc, describe
from lcm.settings.groups.common import (
    ControllerTokenSettings,
    CoordinationSettings,
    DataSettings,
    ElectionSettings,
    HttpSettings,
    InstanceIdSettings,
    LogSettings,
    PrivateCaSettings,
    ReconcileSettings,
    RegionSettings,
    WatchSettings,
)
from lcm.settings.groups.control_plane import (
    AuthSettings,
    FleetDefaultSettings,
    FleetSourceSettings,
    LabletLimitSettings,
    LabletPlanningSettings,
    NotificationSettings,
    StoreSettings,
)
from lcm.settings.groups.controllers import (
    CloudSettings,
    CmlSettings,
    ControlPlaneAddressSettings,
    LabletControllerSettings,
    ResourceSchedulerSettings,
    WorkerControllerSettings,
)
from lcm.settings.loading import CONFIG_FILE_VARIABLE, LoadedSettings, SettingsError, load

__all__ = [
    "CONFIG_FILE_VARIABLE",
    "Allowed",
    "AuthSettings",
    "CloudSettings",
    "CmlSettings",
    "ControlPlaneAddressSettings",
    "ControllerTokenSettings",
    "CoordinationSettings",
    "DataSettings",
    "ElectionSettings",
    "FleetDefaultSettings",
    "FleetSourceSettings",
    "HttpSettings",
    "InstanceIdSettings",
    "LabletControllerSettings",
    "LabletLimitSettings",
    "LabletPlanningSettings",
    "LoadedSettings",
    "LogSettings",
    "NotificationSettings",
    "PrivateCaSettings",
    "ReconcileSettings",
    "RegionSettings",
    "ResourceSchedulerSettings",
    "SettingDoc",
    "Settings",
    "SettingsConflict",
    "SettingsError",
    "StoreSettings",
    "WatchSettings",
    "WorkerControllerSettings",
    "describe",
    "load",
]
