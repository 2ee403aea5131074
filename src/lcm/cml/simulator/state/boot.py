"""The phases of a CML server that is starting."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcm.cml.simulator.state.clock import SimulatedClock


class BootPhase(StrEnum):
    """What somebody who dials meets."""

    OFF = "off"
    REFUSING = "refusing"  # the machine is up, nobody listens
    GATEWAY = "gateway"  # the web server answers 502 for a CML that is not up
    STARTING = "starting"  # CML answers and says that it is not ready
    READY = "ready"


# The share of the boot time after which each phase begins.
_PHASE_STARTS = ((0.0, BootPhase.REFUSING), (0.4, BootPhase.GATEWAY), (0.7, BootPhase.STARTING), (1.0, BootPhase.READY))


class BootSequence:
    """Power and the time since it was switched on."""

    def __init__(self, time: SimulatedClock, seconds: float) -> None:
        if not 0 <= seconds <= 86_400:
            raise ValueError(f"boot time {seconds:g} s: must lie between 0 and a day")
        self._time = time
        self.seconds = seconds
        self._since: float | None = None
        self._held: BootPhase | None = None

    @property
    def phase(self) -> BootPhase:
        """Where the machine is now."""
        if self._since is None:
            return BootPhase.OFF
        if self._held is not None:
            return self._held
        elapsed = self._time.now - self._since
        reached = [phase for share, phase in _PHASE_STARTS if elapsed >= share * self.seconds]
        return reached[-1]

    @property
    def listens(self) -> bool:
        """Whether connections are accepted."""
        return self.phase not in (BootPhase.OFF, BootPhase.REFUSING)

    @property
    def uptime(self) -> float | None:
        """How many simulated seconds it has been on; None: it is off."""
        return None if self._since is None else self._time.now - self._since

    def power_on(self, ago: float = 0.0) -> None:
        """Begin to boot, or have begun so many seconds ago, unless it is on."""
        if self._since is None:
            self._since = self._time.now - ago

    def power_off(self) -> None:
        """As if the plug was pulled."""
        self._since = None

    def hold(self, phase: BootPhase | None) -> None:
        """Stay in a phase, whatever the time; None lets time decide again."""
        self._held = phase
