"""Fleet settings, which can be changed at run time. A stored value overrides the startup configuration."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, create_model

from lcm.model.base import WHOLE_NUMBER, CaseInsensitiveEnum, LenientModel, SingleLineText, StrictBool, StrictModel

Minutes = Annotated[float, Field(ge=1, le=60 * 24 * 365, strict=True)]
MinutesOrZero = Annotated[float, Field(ge=0, le=60 * 24 * 365, strict=True)]
Seconds = Annotated[float, Field(ge=1, le=60 * 60 * 24 * 365, strict=True)]
SecondsOrZero = Annotated[float, Field(ge=0, le=60 * 60 * 24 * 365, strict=True)]


class IdleAction(CaseInsensitiveEnum):
    """Which policy handles an idle worker if both auto-pause and scale-down are enabled."""

    PAUSE = "pause"
    DRAIN = "drain"


class DriftPolicy(CaseInsensitiveEnum):
    """What happens when an instance that should run is stopped outside LCM."""

    RESTORE = "restore"
    ACCEPT = "accept"


class LicenseOnStop(CaseInsensitiveEnum):
    """What happens to the license of a worker when it is stopped."""

    KEEP = "keep"
    RELEASE = "release"


class MaintenancePolicy(CaseInsensitiveEnum):
    """What happens when EC2 announces maintenance of an instance, or reports it as impaired."""

    REPORT = "report"
    PLAN = "plan"


class IdleSettings(LenientModel):
    """When a worker is idle, and whether it is then paused."""

    worker_idle_timeout_minutes: Minutes = Field(
        default=60,
        description="Minutes without activity after which a worker counts as idle.",
    )
    worker_auto_pause_enabled: StrictBool = Field(
        default=True,
        description="Whether idle workers are stopped.",
    )
    worker_auto_pause_snooze_minutes: MinutesOrZero = Field(
        default=60,
        title="Snooze after a resume",
        description="Minutes after a resume during which a worker is not paused.",
    )
    idle_detection_interval: Seconds = Field(
        default=300,
        description="The minimum seconds between two idle checks of one worker.",
    )
    idle_action: IdleAction = Field(
        default=IdleAction.PAUSE,
        description="The action on an idle worker when both auto-pause and scale-down are enabled.",
    )
    license_on_stop: LicenseOnStop = Field(
        default=LicenseOnStop.KEEP,
        title="License of a stopped worker",
        description="Whether a license is deregistered before each stop, and registered again after the next start.",
    )


class DiscoverySettings(LenientModel):
    """How existing instances are discovered, and how lost and leaked ones are handled."""

    worker_discovery_enabled: StrictBool = Field(
        default=True,
        description="Whether unmanaged instances are discovered, and lost ones marked.",
    )
    discovery_interval: Seconds = Field(
        default=300,
        description="Seconds between two discovery scans.",
    )
    worker_discovery_tag_filter: Annotated[SingleLineText, Field(max_length=256)] | None = Field(
        default=None,
        title="Discovery by tag",
        description="The tag that selects instances to import; if unset, cml-managed=true.",
    )
    worker_discovery_ami_filter: Annotated[SingleLineText, Field(max_length=128)] = Field(
        default="",
        title="Discovery by image name",
        description="A pattern of image names; instances of such images are imported too, besides those with the tag.",
    )
    terminate_leaked_instances: StrictBool = Field(
        default=False,
        description="Whether leaked instances are terminated.",
    )
    breaker_enabled: StrictBool = Field(
        default=True,
        description="Whether marking workers as lost is suspended when too many were lost within 30 minutes.",
    )
    drift_policy: DriftPolicy = Field(
        default=DriftPolicy.RESTORE,
        title="After a stop outside LCM",
        description="Whether a worker that was stopped from outside is started again.",
    )


class ScalingSettings(LenientModel):
    """How the fleet scales down and up automatically."""

    scale_down_enabled: StrictBool = Field(
        default=False,
        description="Whether idle workers are drained.",
    )
    min_workers: Annotated[int, Field(ge=0, le=100_000), WHOLE_NUMBER] = Field(
        default=0,
        title="Minimum running workers",
        description="The number of running workers that automation always keeps.",
    )
    scale_down_cooldown_seconds: SecondsOrZero = Field(
        default=600,
        description="The minimum seconds between two scale-downs.",
    )
    max_workers_per_region: Annotated[int, Field(ge=0, le=100_000), WHOLE_NUMBER] = Field(
        default=10,
        title="Maximum workers per region",
        description="The number of workers in a region at which scale-up stops; stopped workers count.",
    )
    license_pool_size: Annotated[int, Field(ge=0, le=1_000_000), WHOLE_NUMBER] = Field(
        default=0,
        title="Licenses in the pool",
        description="The number of CML licenses that bookings may count on; 0: bookings are not limited by licenses.",
    )


class MaintenanceSettings(LenientModel):
    """What happens when EC2 announces maintenance of an instance, or reports it as impaired."""

    maintenance_policy: MaintenancePolicy = Field(
        default=MaintenancePolicy.REPORT,
        title="Announced maintenance and failed checks",
        description="Whether unused workers are stopped and started again, which moves them to another host"
        " (plan), or announced maintenance and failed status checks are only reported (report).",
    )
    impaired_after: Seconds = Field(
        default=900,
        title="Restart an impaired worker after",
        description="Seconds for which EC2 must report a worker's instance as impaired before it is restarted.",
    )


class FleetSettings(LenientModel):
    """All fleet settings."""

    idle: IdleSettings = IdleSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    scaling: ScalingSettings = ScalingSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()


def _make_patch_model(group: type[LenientModel]) -> type[StrictModel]:
    """Make a model of the group in which every field is optional; null resets a stored value to its default."""
    fields: dict[str, Any] = {}
    for name, info in group.model_fields.items():
        kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        fields[name] = (kind | None, Field(default=None, description=info.description))
    made: type[StrictModel] = create_model(f"{group.__name__}Patch", __base__=StrictModel, **fields)
    return made


IdleSettingsPatch = _make_patch_model(IdleSettings)
DiscoverySettingsPatch = _make_patch_model(DiscoverySettings)
ScalingSettingsPatch = _make_patch_model(ScalingSettings)
MaintenanceSettingsPatch = _make_patch_model(MaintenanceSettings)


class FleetSettingsPatch(StrictModel):
    """Values to store, by group and name; null resets a stored value to its default."""

    idle: IdleSettingsPatch = Field(default_factory=IdleSettingsPatch)  # type: ignore[valid-type]
    discovery: DiscoverySettingsPatch = Field(default_factory=DiscoverySettingsPatch)  # type: ignore[valid-type]
    scaling: ScalingSettingsPatch = Field(default_factory=ScalingSettingsPatch)  # type: ignore[valid-type]
    maintenance: MaintenanceSettingsPatch = Field(default_factory=MaintenanceSettingsPatch)  # type: ignore[valid-type]

    def provided(self, group: str) -> dict[str, Any]:
        """Return the given values of a group, in the form in which they are stored."""
        part: StrictModel = getattr(self, group)
        return part.model_dump(mode="json", include=part.model_fields_set)
