"""A CML server that is none: what it says and does over time, over HTTPS, for demonstrations and tests.

Cisco's own client library accepts it. It runs no virtual machine; everything is states and timers.
"""

from lcm.cml.simulator.farm import SimulatorFarm
from lcm.cml.simulator.server import CmlSimulator
from lcm.cml.simulator.state.license import SmartAccount
from lcm.cml.simulator.state.versions import PROFILES
from lcm.cml.simulator.state.world import World, WorldSettings

__all__ = ["PROFILES", "CmlSimulator", "SimulatorFarm", "SmartAccount", "World", "WorldSettings"]
