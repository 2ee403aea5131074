"""Which time deadlines are measured with after a clock has jumped: the earliest, so that a jump ends nothing.

A process knows several clocks: its own wall clock, and those of the processes that it talks to. Each is compared with
the boot time, which never jumps. An earlier time can only end something later: a deadline, a timeout, a retention. So
the earliest time counts that follows from anything a clock has shown within the last `SETTLE_SECONDS`. A deadline that
is no longer than that is never concluded too early, whichever clock jumped, in whichever direction. After that time
without a jump the clocks have settled, and the clock of the authority counts, whatever it shows.

A process also hears which time others measure with, because it may have started after a jump. What it hears it does not
pass on: two processes would remind each other of a jump for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TOLERANCE_SECONDS = 30.0
"""Smaller differences are delays of requests, and corrections of a clock that is kept right."""

SETTLE_SECONDS = 3600.0
"""How long no clock may jump until all are trusted again."""

OWN_CLOCK = "the clock of this host"
_MAX_CLOCKS = 16
_MAX_READINGS = 16


@dataclass(slots=True)
class _Reading:
    """What a clock showed for some time: so many seconds more than the boot time."""

    offset: float
    since: float
    last_seen: float


@dataclass(slots=True)
class ClockGuard:
    """The clocks that one process knows. Times are in seconds: `wall` since 1970, `boot` of the boot time.

    The moments in the records are of the `authority`.
    """

    authority: str = OWN_CLOCK
    _readings: dict[str, list[_Reading]] = field(default_factory=dict)  # by clock, the present one last
    _reported: dict[str, _Reading] = field(default_factory=dict)  # by process: the earliest time that it knows

    def observe(self, name: str, wall: float, boot: float) -> None:
        """Take note of what a clock shows."""
        if name not in self._readings and len(self._readings) == _MAX_CLOCKS:
            return
        readings, offset = self._readings.setdefault(name, []), wall - boot
        if readings and abs(offset - readings[-1].offset) <= TOLERANCE_SECONDS:
            readings[-1].offset, readings[-1].last_seen = offset, boot
        else:
            readings.append(_Reading(offset, boot, boot))
        while len(readings) > 1 and not self._counts(readings[0], boot):
            del readings[0]
        if len(readings) > _MAX_READINGS:
            readings.remove(max(readings[:-1], key=lambda reading: reading.offset))

    def record_earliest(self, name: str, earliest: float, boot: float) -> None:
        """Record the earliest time that another process knows from clocks, until it reports another one."""
        if name in self._reported or len(self._reported) < _MAX_CLOCKS:
            self._reported[name] = _Reading(earliest - boot, boot, boot)

    def earliest(self, boot: float) -> float:
        """The time that deadlines are measured with."""
        leading = self._leading()
        if self._agree(leading):
            return boot + leading
        return self._earliest({**self._counted(boot), **self._counted_reports(boot)}, leading, boot)

    def earliest_known(self, boot: float) -> float:
        """The same, from clocks alone: what is reported to other processes."""
        leading = self._leading()
        return boot + leading if self._agree(leading) else self._earliest(self._counted(boot), leading, boot)

    @staticmethod
    def _earliest(counted: dict[str, float], leading: float, boot: float) -> float:
        lowest = min(counted.values(), default=leading)
        return boot + (lowest if lowest < leading - TOLERANCE_SECONDS else leading)

    def problem(self, boot: float) -> str:
        """Which clocks have not settled; empty if all have."""
        leading = self._leading()
        if self._agree(leading):
            return ""
        counted = {**self._counted(boot), **self._counted_reports(boot)}
        off = {name: offset - leading for name, offset in counted.items()}
        apart = [f"{name}: {_describe(by)}" for name, by in sorted(off.items()) if abs(by) > TOLERANCE_SECONDS]
        return f"clocks have jumped or disagree ({', '.join(apart)}); the earliest counts" if apart else ""

    def _agree(self, leading: float) -> bool:
        """Whether no clock has changed or differs. It almost always is so, and every request asks several times."""
        for readings in self._readings.values():
            if len(readings) > 1 or abs(readings[0].offset - leading) > TOLERANCE_SECONDS:
                return False
        return all(abs(reading.offset - leading) <= TOLERANCE_SECONDS for reading in self._reported.values())

    def _leading(self) -> float:
        """The authority's clock; our own where it agrees with it, since it is exact."""
        own = self._readings[OWN_CLOCK][-1].offset
        readings = self._readings.get(self.authority)
        leading = own if readings is None else readings[-1].offset
        return leading if abs(leading - own) > TOLERANCE_SECONDS else own

    def _counted(self, boot: float) -> dict[str, float]:
        """What each clock shows, and the earliest that it has shown before, as long as they have not settled."""
        counted: dict[str, float] = {}
        for name, readings in self._readings.items():
            for reading in readings[:-1]:
                if self._counts(reading, boot):
                    earlier = f"{name} before it changed"
                    counted[earlier] = min(reading.offset, counted.get(earlier, reading.offset))
            present = readings[-1]
            if name == self.authority or boot - present.since < SETTLE_SECONDS:
                counted[name] = present.offset
        return counted

    def _counted_reports(self, boot: float) -> dict[str, float]:
        return {name: reading.offset for name, reading in self._reported.items() if self._counts(reading, boot)}

    @staticmethod
    def _counts(reading: _Reading, boot: float) -> bool:
        return boot - reading.last_seen < SETTLE_SECONDS


def _describe(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}"
