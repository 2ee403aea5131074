"""A CML server that is none: what it says and does over time, over HTTPS, for demonstrations and tests.

Cisco's own client library accepts it. It runs no virtual machine; everything is states and timers.
"""

from lcm.cml.simulator.server import CmlSimulator, SimulatorFarm
from lcm.cml.simulator.state.license import SmartAccount
from lcm.cml.simulator.state.versions import VERSION_PROFILES
from lcm.cml.simulator.state.world import SimulatorSettings, World

__all__ = ["VERSION_PROFILES", "CmlSimulator", "SimulatorFarm", "SimulatorSettings", "SmartAccount", "World"]
