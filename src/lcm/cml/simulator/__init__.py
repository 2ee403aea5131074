"""A simulated CML server: the same HTTPS API and the same behavior over time, for demonstrations and tests.

Cisco's client library works with it. It runs no virtual machines, only states and timers.
"""

from lcm.cml.simulator.server import CmlSimulator, SimulatorFarm
from lcm.cml.simulator.state.license import SmartAccount
from lcm.cml.simulator.state.world import VERSION_PROFILES, SimulatorSettings, World

__all__ = ["VERSION_PROFILES", "CmlSimulator", "SimulatorFarm", "SimulatorSettings", "SmartAccount", "World"]
