"""Exponential backoff with jitter: min(base * multiplier**retries, max_delay) ± jitter."""

from __future__ import annotations

from dataclasses import dataclass

from lcm.core import clock

JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays between retries. Jitter keeps callers that failed together from retrying together."""

    base: float = 1.0
    multiplier: float = 2.0
    max_delay: float = 60.0
    jitter: float = JITTER

    def delay_without_jitter(self, retries: int) -> float:
        """The exact delay before retry number `retries`, counted from 0."""
        try:
            return min(self.base * self.multiplier**retries, self.max_delay)
        except OverflowError:
            return self.max_delay

    def delay(self, retries: int) -> float:
        """The delay with jitter: within ±10 % of the exact delay, also at the cap."""
        return self.delay_without_jitter(retries) * (1.0 + self.jitter * (2.0 * clock.rng().random() - 1.0))
