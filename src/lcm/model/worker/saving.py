"""How long a worker was stopped within a span of time, by whose will, and what that saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class Step(NamedTuple):
    """A step into STOPPED or out of it, or one of neither sort; whether a policy wanted that time in STOPPED."""

    at: datetime
    out: bool
    into: bool
    by_policy: bool


class Stopped(NamedTuple):
    """Seconds in STOPPED, split by who wanted it so; what nobody is known to have wanted counts as people's."""

    by_policy: float = 0.0
    by_people: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.by_policy + self.by_people

    def plus(self, seconds: float, *, by_policy: bool) -> Stopped:
        """With some more."""
        if by_policy:
            return Stopped(self.by_policy + seconds, self.by_people)
        return Stopped(self.by_policy, self.by_people + seconds)

    def usd(self, cost_per_hour: float) -> tuple[float, float]:
        """What it saved, by policy and by people."""
        return self.by_policy * cost_per_hour / 3600, self.by_people * cost_per_hour / 3600


def time_stopped(steps: Sequence[Step], since: datetime, until: datetime) -> Stopped:
    """From all steps of a worker into and out of STOPPED since `since`, the oldest first; some may be after `until`.

    Whether it was stopped before the first of them that step tells; what it is after the last it stays.
    """
    total = Stopped()
    if not steps:
        return total
    stopped, begin, by_policy = steps[0].out, since, steps[0].by_policy
    for step in steps:
        if stopped:
            total = total.plus(_overlap(begin, step.at, since, until), by_policy=by_policy)
        stopped, begin, by_policy = step.into, step.at, step.by_policy
    if stopped:
        total = total.plus(_overlap(begin, until, since, until), by_policy=by_policy)
    return total


def _overlap(begin: datetime, end: datetime, since: datetime, until: datetime) -> float:
    return max(0.0, (min(end, until) - max(begin, since)).total_seconds())
