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
_LASTING = ("hold", "settings", "refuse", "cml-certificate", "newer-writes")
"""What stays until a person acts: a worker on hold or failed, a certificate that nobody trusts.

What happens to labs does not last: a seat whose lab has failed is made anew.
"""
_PEOPLE = ("hold", "hold-fleet", "terminate", "settings", "end-lab", "reset-lab")
_WORKERS = (
    "no-capacity",
    "zone-without-type",
    "no-address",
    "stop-outside",
    "terminate-outside",
    "vanish",
    "hold",
    "terminate",
    "impair",
    "refuse",
    "odd-license",
    "license-server-silent",
)
"""What keeps workers from being ready. Seats are late because of it only if AtRisk has named workers."""
_LABS = ("lab-lands-late", "lab-vanishes", "lab-stopped", "lab-refused", "cml-loses", "cml-forgets", "reset-lab")
"""What happens to labs: AtRisk names seats."""
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

    def fleet_is_held(self, now: float) -> bool:
        """Whether the fleet may be on hold, or was a moment ago."""
        return self._within(now, ("hold-fleet",), 60.0) is not None

    def explanation(self, now: float, said: Sequence[tuple[float, str]]) -> str | None:
        """The kind of the last event that may have kept a class from its seats, and that AtRisk has named.

        `said` is what AtRisk named, and when. While nobody leads it says nothing, so such a fault needs no name.
        """
        begun = [each for each in self.events if _BEGIN + each.at <= now and _is_named(each, said)]
        recent = [each.kind for each in begun if now <= _BEGIN + _end(each) + RECOVERY]
        recent += ["crash"] if not recent and now - self.down_at < RECOVERY else []
        lasting = [each.kind for each in begun if each.kind in _LASTING]
        return next(iter([*reversed(recent), *reversed(lasting)]), None)

    def _within(self, now: float, kinds: Sequence[str] | None, after: float) -> str | None:
        found = None
        for each in self.events:
            if (kinds is None or each.kind in kinds) and _BEGIN + each.at <= now <= _BEGIN + _end(each) + after:
                found = each.kind
        return found


def _is_named(event: Event, said: Sequence[tuple[float, str]]) -> bool:
    """Whether AtRisk has named, since the event began, what it concerns."""
    if event.kind in _COORDINATION:
        return True
    texts = [text for at, text in said if at >= _BEGIN + event.at]
    if said and not texts:
        texts = [said[-1][1]]  # it stayed the same
    words = ("worker",) if event.kind in _WORKERS else ("seat",) if event.kind in _LABS else ("worker", "seat")
    return any(word in text for text in texts for word in words)


def _end(event: Event) -> float:
    lasts = [event.facts.get(name, 0.0) or 0.0 for name in ("seconds", "lasting", "down")]
    return event.at + max(lasts) + 60.0 * (event.facts.get("minutes") or 0.0)
