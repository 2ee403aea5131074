"""The whole state of one simulated server, without the network."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lcm.cml.simulator.state.clock import SimulatedClock, new_uuid
from lcm.cml.simulator.state.faults import FaultInjector
from lcm.cml.simulator.state.labs import RUNNING_STATES, Lab, Labs
from lcm.cml.simulator.state.license import SimulatedLicensing, SmartAccount
from lcm.cml.simulator.state.sessions import CMLAccount, SimulatedSessions
from lcm.cml.simulator.state.telemetry import Telemetry
from lcm.cml.simulator.state.topology import find_node_definition, parse_topology
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


@dataclass(frozen=True, slots=True)
class VersionProfile:
    """One version of CML."""

    name: str
    version: str
    schema: str
    session_check: str = "authok"
    diagnostics_by_category: bool = True
    opt_in_as_word: bool = False
    reports_features: bool = False
    stamp_fraction: bool = False
    stamp_zone: bool = False
    lab_event_names: tuple[str, str] = ("CREATED", "state")
    element_name: str = "Node"


VERSION_PROFILES: dict[str, VersionProfile] = {
    profile.name: profile
    for profile in (
        VersionProfile("2.7", "2.7.2+build.26", "0.2.2", diagnostics_by_category=False),
        VersionProfile("2.8", "2.8.1+build.14", "0.3.0", diagnostics_by_category=False, stamp_fraction=True),
        VersionProfile("2.9", "2.9.1+build.7", "0.3.0", lab_event_names=("ADD", "STATE_CHANGED"), element_name="NODE"),
        VersionProfile(
            "2.10",
            "2.10.0+build.3",
            "0.3.1",
            session_check="authentication",
            opt_in_as_word=True,
            reports_features=True,
            stamp_fraction=True,
            stamp_zone=True,
        ),
    )
}


class BootPhase(StrEnum):
    """What a client encounters."""

    OFF = "off"
    REFUSING = "refusing"  # the server is on, nothing is listening
    GATEWAY = "gateway"  # the web server responds with 502, because CML is not running
    STARTING = "starting"  # CML responds and reports that it is not ready
    READY = "ready"


# The fraction of the boot time after which each phase begins.
_PHASE_STARTS = ((0.0, BootPhase.REFUSING), (0.4, BootPhase.GATEWAY), (0.7, BootPhase.STARTING), (1.0, BootPhase.READY))


class BootSequence:
    """Whether the server is on, and since when."""

    def __init__(self, time: SimulatedClock, seconds: float) -> None:
        if not 0 <= seconds <= 86_400:
            raise ValueError(f"boot time {seconds:g} s: must be between 0 and 86400")
        self._time = time
        self.seconds = seconds
        self._since: float | None = None
        self._held: BootPhase | None = None

    @property
    def phase(self) -> BootPhase:
        """The current phase."""
        if self._since is None:
            return BootPhase.OFF
        if self._held is not None:
            return self._held
        elapsed = self._time.now - self._since
        reached = [phase for share, phase in _PHASE_STARTS if elapsed >= share * self.seconds]
        return reached[-1]

    @property
    def is_listening(self) -> bool:
        """Whether connections are accepted."""
        return self.phase not in (BootPhase.OFF, BootPhase.REFUSING)

    @property
    def uptime(self) -> float | None:
        """The simulated seconds since it was switched on, or None if it is off."""
        return None if self._since is None else self._time.now - self._since

    def power_on(self, ago: float = 0.0) -> None:
        """Begin to boot, or have begun `ago` seconds before, unless it is already on."""
        if self._since is None:
            self._since = self._time.now - ago

    def power_off(self) -> None:
        """Cut the power."""
        self._since = None

    def hold(self, phase: BootPhase | None) -> None:
        """Stay in a phase regardless of the time; None follows the time again."""
        self._held = phase


@dataclass(frozen=True)
class SimulatorSettings:
    """The settings of a simulated server. Seconds are simulated, except for `token_seconds` and `listener_seconds`."""

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
    kvm: bool | None = True  # what it reports of KVM; None: it does not say


def find_version_profile(version: str) -> VersionProfile:
    """The profile of a version, for example 2.9."""
    if version not in VERSION_PROFILES:
        raise ValueError(f"CML version {version!r}: must be one of {', '.join(VERSION_PROFILES)}")
    return VERSION_PROFILES[version]


class World:
    """The state of one simulated server, and the operations on it."""

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
        self.kvm = settings.kvm
        self.login_seconds = settings.login_seconds
        self.listener_seconds = settings.listener_seconds
        self.compute_id = new_uuid()
        self.sessions.accounts[settings.username] = CMLAccount(settings.username, settings.password)
        self.time.call_later(BACKGROUND_EVENT_SECONDS, self._record_background_events)

    def power_on(self) -> None:
        """Switch the server on; it begins to boot."""
        self.time.advance()
        self.boot.power_on()

    def power_off(self) -> None:
        """Cut the power: nodes stop and sessions end; labs and license stay on the disk."""
        self.time.advance()
        self.boot.power_off()
        self.labs.lose_power()
        self.sessions.expire_all()

    def import_lab(self, topology: str, owner: CMLAccount, title: str | None = None) -> Lab:
        """Create a lab from YAML."""
        return self.labs.add(parse_topology(topology, self.profile.schema, title), owner)

    def start_user_lab(self, username: str, topology: str = SAMPLE_TOPOLOGY, title: str | None = None) -> Lab:
        """A user works directly on the server: creates a lab and starts it."""
        user = self.sessions.accounts.setdefault(username, CMLAccount(username, new_uuid(), admin=False))
        lab = self.import_lab(topology, user, title)
        self.labs.start(lab, user)
        return lab

    def load(self) -> tuple[float, int, int]:
        """CPU usage in percent, memory and disk usage in bytes, caused by the running nodes."""
        running = [node for node in self.labs.nodes if node.state in RUNNING_STATES]
        cpus = sum(find_node_definition(node.plan.definition).cpus for node in running)
        memory = sum(find_node_definition(node.plan.definition).memory_mib for node in running) * 1024**2
        percent = min(100.0, 2.0 + 25.0 * cpus / self.settings.cpus)
        used = min(self.settings.memory_gib * GIB, 4 * GIB + memory)
        return percent, used, min(self.settings.disk_gib * GIB, 30 * GIB + GIB * len(self.labs.nodes))

    def state(self) -> dict[str, Any]:
        """A summary for the operator of the simulator."""
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
            "kvm": self.kvm,
            "nodes_running": sum(node.state in RUNNING_STATES for node in self.labs.nodes),
            "license": {
                "mode": self.licensing.mode.value,
                "status": self.licensing.status,
                "registered_now": len(self.account.holders),
                "registered_ever": self.account.total_registrations,
            },
            "logins": self.sessions.logins,
            "events": len(self.telemetry.events),
            "faults": [
                {"kind": fault.kind.value, "path": fault.path, "count": fault.count} for fault in self.faults.all
            ],
        }

    def _record_background_events(self) -> None:
        """Record the events that a server writes without any user activity."""
        percent, _, _ = self.load()
        self.telemetry.record("system_stats", cpu_percent=percent)
        self.telemetry.record("running_nodes", count=sum(node.state in RUNNING_STATES for node in self.labs.nodes))
        self.time.call_later(BACKGROUND_EVENT_SECONDS, self._record_background_events)
