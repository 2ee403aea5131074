"""An EC2 that lags, throttles, pages and fails as the real one does, on the clock of the event loop."""

from lcm.cloud.simulated.machine import Timing
from lcm.cloud.simulated.provider import SimulatedProvider
from lcm.cloud.simulated.world import SimulatedCloud

__all__ = ["SimulatedCloud", "SimulatedProvider", "Timing"]
