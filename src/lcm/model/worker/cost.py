"""What runs on a worker, what it has cost, and what becomes of its licence, for whoever is about to end it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.record import Worker


METRICS_MAX_AGE = timedelta(minutes=30)
"""How old figures of CML may be to say something about now."""


def cost_so_far(worker: Worker, now: datetime) -> float | None:
    """About what its instance has cost: while it was stopped it cost nothing."""
    since = worker.instance_since or worker.created_at
    if worker.cost_per_hour_usd is None or worker.instance_id is None:
        return None
    stopped = timedelta(seconds=worker.stopped_seconds)
    if worker.status == "STOPPED":
        stopped += now - worker.status_since
    hours = max(timedelta(), now - since - stopped) / timedelta(hours=1)
    return hours * worker.cost_per_hour_usd


def describe_running_nodes(sample: MetricsSample | None, worker: Worker) -> str:
    """Labs and nodes, as they were last counted."""
    if worker.status not in ("RUNNING", "DRAINING"):
        return "nothing: it does not run"
    if sample is None or sample.labs_count is None:
        return "not known: CML has not been counted in the last 30 minutes"
    return f"{sample.running_nodes or 0} of {sample.nodes_count or 0} nodes, in {sample.labs_count} labs"


def describe_license_release(worker: Worker) -> str:
    """What becomes of the licence."""
    if worker.license_status == "registered":
        return "registered; it is given back first, while CML can be reached"
    return f"{worker.license_status}, nothing to give back"


class StoppedTransition(NamedTuple):
    """A step into STOPPED or out of it, or one of neither sort; whether a policy wanted that time in STOPPED."""

    at: datetime
    out: bool
    into: bool
    by_policy: bool


class StoppedTime(NamedTuple):
    """Seconds in STOPPED, split by who wanted it so; what nobody is known to have wanted counts as people's."""

    by_policy: float = 0.0
    by_people: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.by_policy + self.by_people

    def plus(self, seconds: float, *, by_policy: bool) -> StoppedTime:
        """With some more."""
        if by_policy:
            return StoppedTime(self.by_policy + seconds, self.by_people)
        return StoppedTime(self.by_policy, self.by_people + seconds)

    def usd(self, cost_per_hour: float) -> tuple[float, float]:
        """What it saved, by policy and by people."""
        return self.by_policy * cost_per_hour / 3600, self.by_people * cost_per_hour / 3600


def stopped_time(steps: Sequence[StoppedTransition], since: datetime, until: datetime) -> StoppedTime:
    """From all steps of a worker into and out of STOPPED since `since`, the oldest first; some may be after `until`.

    Whether it was stopped before the first of them that step tells; what it is after the last it stays.
    """
    total = StoppedTime()
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
