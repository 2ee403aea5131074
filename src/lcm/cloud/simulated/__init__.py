"""A simulated EC2 that lags, throttles, paginates and fails like the real one, on the clock of the event loop."""

from lcm.cloud.simulated.machine import Timing
from lcm.cloud.simulated.provider import SimulatedProvider
from lcm.cloud.simulated.world import SimulatedCloud

__all__ = ["SimulatedCloud", "SimulatedProvider", "Timing"]
