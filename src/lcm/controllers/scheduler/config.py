"""The configuration of the scheduler, fixed at startup."""

from __future__ import annotations

from dataclasses import dataclass

from lcm.model.lablet.scheduling.planner import PlanningConfig
from lcm.settings import ResourceSchedulerSettings

_DEFAULTS = ResourceSchedulerSettings()  # defaults are declared once, with the settings


@dataclass(frozen=True, slots=True)
class SchedulerConfig(PlanningConfig):
    """How to plan, and how often workers may be requested."""

    scale_up_cooldown: float = _DEFAULTS.scale_up_cooldown_seconds
    """Seconds between two scale-up requests."""
