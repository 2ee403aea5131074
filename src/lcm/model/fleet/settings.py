"""Settings that people change at run time and controllers read: a stored value beats the environment."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, create_model

from lcm.model.base import WHOLE, Answer, Choice, Data, Flag, Text

Minutes = Annotated[float, Field(gt=0, le=60 * 24 * 365, strict=True)]
MinutesOrNone = Annotated[float, Field(ge=0, le=60 * 24 * 365, strict=True)]
Seconds = Annotated[float, Field(gt=0, le=60 * 60 * 24 * 365, strict=True)]
SecondsOrNone = Annotated[float, Field(ge=0, le=60 * 60 * 24 * 365, strict=True)]


class IdleAction(Choice):
    """Who acts on an idle worker when both auto-pause and scale-down are switched on."""

    PAUSE = "pause"
    DRAIN = "drain"


class DriftPolicy(Choice):
    """What follows when somebody stops an instance that should run."""

    RESTORE = "restore"
    ACCEPT = "accept"


class IdleSettings(Answer):
    """When a worker counts as idle, and whether it is then paused."""

    worker_idle_timeout_minutes: Minutes = 60
    worker_auto_pause_enabled: Flag = True
    worker_auto_pause_snooze_minutes: MinutesOrNone = 60
    idle_detection_interval: Seconds = 300
    idle_action: IdleAction = IdleAction.PAUSE


class DiscoverySettings(Answer):
    """How instances that are not ours yet are found."""

    worker_discovery_enabled: Flag = True
    discovery_interval: Seconds = 300
    worker_discovery_tag_filter: Annotated[Text, Field(max_length=256)] | None = None
    worker_discovery_ami_filter: Annotated[Text, Field(max_length=128)] = ""
    terminate_leaked_instances: Flag = False
    breaker_enabled: Flag = True
    drift_policy: DriftPolicy = DriftPolicy.RESTORE


class ScalingSettings(Answer):
    """How the fleet shrinks and grows by itself."""

    scale_down_enabled: Flag = False
    min_workers: Annotated[int, Field(ge=0, le=100_000), WHOLE] = 0
    scale_down_cooldown_seconds: SecondsOrNone = 600
    max_workers_per_region: Annotated[int, Field(ge=0, le=100_000), WHOLE] = 10


class FleetSettings(Answer):
    """All of them."""

    idle: IdleSettings = IdleSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    scaling: ScalingSettings = ScalingSettings()


def _patch_of(group: type[Answer]) -> type[Data]:
    """The group with every value optional: only what is given counts, and null takes a stored value back."""
    fields: dict[str, Any] = {}
    for name, info in group.model_fields.items():
        kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        fields[name] = (kind | None, None)
    made: type[Data] = create_model(f"{group.__name__}Patch", __base__=Data, **fields)
    return made


IdlePatch = _patch_of(IdleSettings)
DiscoveryPatch = _patch_of(DiscoverySettings)
ScalingPatch = _patch_of(ScalingSettings)


class SettingsPatch(Data):
    """Values to store, by group and name; null takes a stored value back."""

    idle: IdlePatch = Field(default_factory=IdlePatch)  # type: ignore[valid-type]
    discovery: DiscoveryPatch = Field(default_factory=DiscoveryPatch)  # type: ignore[valid-type]
    scaling: ScalingPatch = Field(default_factory=ScalingPatch)  # type: ignore[valid-type]

    def given(self, group: str) -> dict[str, Any]:
        """What is given for a group, as it is stored."""
        part: Data = getattr(self, group)
        return part.model_dump(mode="json", include=part.model_fields_set)
