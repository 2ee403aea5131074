"""How long to wait before trying again: min(base * multiplier**retries, longest), give or take the jitter."""

from __future__ import annotations

from dataclasses import dataclass

from lcm.core import clock

JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff. The jitter spreads those who failed together, so that they do not come back together."""

    base: float = 1.0
    multiplier: float = 2.0
    longest: float = 60.0
    jitter: float = JITTER

    def exact(self, retries: int) -> float:
        """The delay before retry number `retries`, counted from 0, without jitter."""
        try:
            return min(self.base * self.multiplier**retries, self.longest)
        except OverflowError:
            return self.longest

    def delay(self, retries: int) -> float:
        """The delay with jitter: within ±10 % of the exact one, also at the cap."""
        return self.exact(retries) * (1.0 + self.jitter * (2.0 * clock.rng().random() - 1.0))
