"""The settings of the demo are valid at any speed."""

from __future__ import annotations

import pytest

from lcm.settings import load
from lcm.wiring.control_plane import fleet_defaults
from lcm.wiring.up import UpOptions, UpSettings, effective_settings


@pytest.mark.parametrize("speed", [0.5, 1.0, 20.0, 1000.0])
def test_the_demo_starts_at_any_speed(speed: float) -> None:
    settings = effective_settings(load(UpSettings, env={}), UpOptions(demo=True, speed=speed))
    defaults = fleet_defaults(settings)
    assert defaults.idle.worker_idle_timeout_minutes >= 1
    assert defaults.discovery.discovery_interval >= 1
