"""What goes wrong in a run, and when: the faults of its script that explain that something is late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.script import Event

RECOVERY = 1200.0
"""After a fault it takes this long at most until a class has its seats: a launch that waits, its deadline, another."""
COMEBACK = 240.0
"""After a fault of processes, links or etcd a scheduler leads again within this time: leases last a minute."""
CLOCKS_SETTLE = 500.0
_BEGIN = 1000.0
_LASTING = ("hold", "settings", "refuse", "lab-refused", "cml-certificate", "newer-writes")
"""What stays until a person acts: a worker on hold or failed, a rejected lab, a certificate that nobody trusts."""
_PEOPLE = ("hold", "hold-fleet", "terminate", "settings", "end-lab", "reset-lab")
_COORDINATION = (
    "crash",
    "crash-plane",
    "pause",
    "pause-plane",
    "cut",
    "flaky",
    "etcd-outage",
    "replace-etcd",
    "break-watches",
    "compact",
    "resign",
    "clock-jump",
    "deaf",
)


@dataclass
class Trouble:
    """The events of a script that disturb, and which processes do not run."""

    events: Sequence[Event] = ()
    down_at: float = field(default=float("-inf"))  # when a process was last seen not to run

    def begin(self, people: Sequence[Event], faults: Sequence[Event]) -> None:
        """The script of this run."""
        self.events = (*faults, *(event for event in people if event.kind in _PEOPLE))

    def clocks(self, now: float) -> bool:
        """Whether a clock may be wrong, or be taken for wrong."""
        return self._within(now, ("clock-jump",), CLOCKS_SETTLE) is not None

    def coordination(self, now: float) -> bool:
        """Whether the control plane may be away, or nobody leads."""
        return now - self.down_at < COMEBACK or self._within(now, _COORDINATION, COMEBACK) is not None

    def explanation(self, now: float) -> str | None:
        """The kind of the last event that may have kept a class from its seats."""
        lasting = [each for each in self.events if each.kind in _LASTING and _BEGIN + each.at <= now]
        recent = self._within(now, None, RECOVERY) or ("crash" if now - self.down_at < RECOVERY else None)
        return recent or (lasting[-1].kind if lasting else None)

    def _within(self, now: float, kinds: Sequence[str] | None, after: float) -> str | None:
        found = None
        for each in self.events:
            if (kinds is None or each.kind in kinds) and _BEGIN + each.at <= now <= _BEGIN + _end(each) + after:
                found = each.kind
        return found


def _end(event: Event) -> float:
    lasts = [event.facts.get(name, 0.0) or 0.0 for name in ("seconds", "lasting", "down")]
    return event.at + max(lasts) + 60.0 * (event.facts.get("minutes") or 0.0)
