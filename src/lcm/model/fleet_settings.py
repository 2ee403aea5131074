"""Settings that people change at run time and controllers read: a stored value beats the environment."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lcm.model.base import Answer, Choice, Data, Text

Minutes = Annotated[float, Field(gt=0, le=60 * 24 * 365)]
MinutesOrNone = Annotated[float, Field(ge=0, le=60 * 24 * 365)]
Seconds = Annotated[float, Field(gt=0, le=60 * 60 * 24 * 365)]
SecondsOrNone = Annotated[float, Field(ge=0, le=60 * 60 * 24 * 365)]


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
    worker_auto_pause_enabled: bool = True
    worker_auto_pause_snooze_minutes: MinutesOrNone = 60
    idle_detection_interval: Seconds = 300
    idle_action: IdleAction = IdleAction.PAUSE


class DiscoverySettings(Answer):
    """How instances that are not ours yet are found."""

    worker_discovery_enabled: bool = True
    discovery_interval: Seconds = 300
    worker_discovery_tag_filter: Annotated[Text, Field(max_length=256)] | None = None
    worker_discovery_ami_filter: Annotated[Text, Field(max_length=128)] = ""
    terminate_leaked_instances: bool = False
    breaker_enabled: bool = True
    drift_policy: DriftPolicy = DriftPolicy.RESTORE


class ScalingSettings(Answer):
    """How the fleet shrinks and grows by itself."""

    scale_down_enabled: bool = False
    min_workers: Annotated[int, Field(ge=0, le=100_000)] = 0
    scale_down_cooldown_seconds: SecondsOrNone = 600
    max_workers_per_region: Annotated[int, Field(ge=0, le=100_000)] = 10


class FleetSettings(Answer):
    """All of them."""

    idle: IdleSettings = IdleSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    scaling: ScalingSettings = ScalingSettings()


class SettingsPatch(Data):
    """Values to store, by group and name; null takes a stored value back."""

    idle: dict[str, object | None] = Field(default_factory=dict)
    discovery: dict[str, object | None] = Field(default_factory=dict)
    scaling: dict[str, object | None] = Field(default_factory=dict)
