"""A whole simulated server, without the network: its parts, and what can be asked of it from outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lcm.cml.simulator.state.boot import BootSequence
from lcm.cml.simulator.state.clock import SimulatedClock, new_uuid
from lcm.cml.simulator.state.faults import FaultInjector
from lcm.cml.simulator.state.labs import RUNNING_STATES, Lab, Labs
from lcm.cml.simulator.state.license import SimulatedLicensing, SmartAccount
from lcm.cml.simulator.state.sessions import CMLAccount, SimulatedSessions
from lcm.cml.simulator.state.telemetry import Telemetry
from lcm.cml.simulator.state.topology import find_node_definition, parse_topology
from lcm.cml.simulator.state.versions import VERSION_PROFILES, VersionProfile
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Callable

BACKGROUND_EVENT_SECONDS = 300.0
GIB = 1024**3

SAMPLE_TOPOLOGY = """\
lab: {version: 0.2.2, title: Evening exercise}
nodes:
  - {id: n0, label: sw, node_definition: unmanaged_switch, x: 0, y: 0,
     interfaces: [{id: i0, type: physical, slot: 0, label: port0}]}
  - {id: n1, label: host, node_definition: alpine, x: 100, y: 0,
     interfaces: [{id: i0, type: physical, slot: 0, label: eth0}]}
links:
  - {id: l0, n1: n0, i1: i0, n2: n1, i2: i0}
"""


@dataclass(frozen=True)
class SimulatorSettings:
    """How a simulated server is. All seconds are simulated ones but those of tokens and listeners."""

    version: str = "2.9"
    username: str = "admin"
    password: str = field(default="simulated", repr=False)
    speed: float = 1.0
    boot_seconds: float = 5.0
    login_seconds: float = 2.0
    register_seconds: float = 8.0
    deregister_seconds: float = 3.0
    token_seconds: float = 86_400.0
    listener_seconds: float = 10.0
    cpus: int = 16
    memory_gib: int = 64
    disk_gib: int = 200
    hostname: str = "cml-controller"


def find_version_profile(version: str) -> VersionProfile:
    """The profile of a version such as 2.9."""
    if version not in VERSION_PROFILES:
        raise ValueError(f"CML version {version!r}: must be one of {', '.join(VERSION_PROFILES)}")
    return VERSION_PROFILES[version]


class World:
    """The state of one server."""

    def __init__(
        self,
        settings: SimulatorSettings,
        account: SmartAccount | None = None,
        *,
        read: Callable[[], float] = clock.boottime,
    ) -> None:
        self.settings = settings
        self.profile = find_version_profile(settings.version)
        self.time = SimulatedClock(settings.speed, read)
        self.boot = BootSequence(self.time, settings.boot_seconds)
        self.telemetry = Telemetry(self.time, self.profile)
        self.sessions = SimulatedSessions(self.time, self.telemetry, settings.token_seconds)
        self.account = account or SmartAccount()
        self.licensing = SimulatedLicensing(
            self.time,
            self.telemetry,
            self.account,
            settings.hostname,
            settings.register_seconds,
            settings.deregister_seconds,
        )
        self.labs = Labs(self.time, self.telemetry, self.profile)
        self.faults = FaultInjector()
        self.opt_in = True
        self.login_seconds = settings.login_seconds
        self.listener_seconds = settings.listener_seconds
        self.compute_id = new_uuid()
        self.sessions.accounts[settings.username] = CMLAccount(settings.username, settings.password)
        self.time.later(BACKGROUND_EVENT_SECONDS, self._make_noise)

    def power_on(self) -> None:
        """Begin to boot."""
        self.time.advance()
        self.boot.power_on()

    def power_off(self) -> None:
        """Pull the plug: nodes stop, sessions end, labs and licence stay on the disk."""
        self.time.advance()
        self.boot.power_off()
        self.labs.lose_power()
        self.sessions.expire_all()

    def import_lab(self, topology: str, owner: CMLAccount, title: str | None = None) -> Lab:
        """Make a lab of YAML."""
        return self.labs.add(parse_topology(topology, self.profile.schema, title), owner)

    def start_user_lab(self, username: str, topology: str = SAMPLE_TOPOLOGY, title: str | None = None) -> Lab:
        """Somebody works on the server without asking us: makes a lab and starts it."""
        person = self.sessions.accounts.setdefault(username, CMLAccount(username, new_uuid(), admin=False))
        lab = self.import_lab(topology, person, title)
        self.labs.start(lab, person)
        return lab

    def load(self) -> tuple[float, int, int]:
        """Processor use in percent, memory and disk in use in bytes, as the running nodes cause them."""
        running = [node for node in self.labs.nodes if node.state in RUNNING_STATES]
        cpus = sum(find_node_definition(node.plan.definition).cpus for node in running)
        memory = sum(find_node_definition(node.plan.definition).memory_mib for node in running) * 1024**2
        percent = min(100.0, 2.0 + 25.0 * cpus / self.settings.cpus)
        used = min(self.settings.memory_gib * GIB, 4 * GIB + memory)
        return percent, used, min(self.settings.disk_gib * GIB, 30 * GIB + GIB * len(self.labs.nodes))

    def state(self) -> dict[str, Any]:
        """What somebody who runs the simulator wants to know."""
        self.time.advance()
        return {
            "version": self.profile.version,
            "phase": self.boot.phase.value,
            "speed": self.time.speed,
            "labs": [
                {"id": lab.id, "title": lab.plan.title, "owner": lab.owner.username, "state": lab.state}
                for lab in self.labs.all
            ],
            "labs_imported": self.labs.imported,
            "nodes_running": sum(node.state in RUNNING_STATES for node in self.labs.nodes),
            "license": {
                "mode": self.licensing.mode.value,
                "status": self.licensing.status,
                "registered_now": len(self.account.holders),
                "registered_ever": self.account.ever,
            },
            "logins": self.sessions.logins,
            "events": len(self.telemetry.events),
            "faults": [
                {"kind": fault.kind.value, "path": fault.path, "count": fault.count} for fault in self.faults.all
            ],
        }

    def _make_noise(self) -> None:
        """What a server writes into its telemetry although nobody does anything."""
        percent, _, _ = self.load()
        self.telemetry.note("system_stats", cpu_percent=percent)
        self.telemetry.note("running_nodes", count=sum(node.state in RUNNING_STATES for node in self.labs.nodes))
        self.time.later(BACKGROUND_EVENT_SECONDS, self._make_noise)
