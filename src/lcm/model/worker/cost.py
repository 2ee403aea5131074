"""What a worker has cost, what stopping it saved, and what terminating it would lose."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from lcm.model.worker.conditions import STOPPED, ConditionType, find_condition
from lcm.model.worker.status import CML_STATUSES, STATUSES, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.record import Worker


METRICS_MAX_AGE = timedelta(minutes=30)
"""The maximum age of CML's metrics for statements about the present."""


def is_billed(worker: Worker) -> bool:
    """Whether its instance costs money now. The instance of a FAILED worker does, unless it was seen stopped."""
    if worker.status is not WorkerStatus.FAILED:
        return STATUSES[worker.status].billed
    observed = find_condition(worker.conditions, ConditionType.INSTANCE_READY)
    return worker.instance_id is not None and (observed is None or observed.reason != STOPPED)


def cost_so_far(worker: Worker, now: datetime) -> float | None:
    """Estimate what its instance has cost so far; a stopped instance costs nothing."""
    since = worker.instance_since or worker.created_at
    if worker.cost_per_hour_usd is None or worker.instance_id is None:
        return None
    stopped = timedelta(seconds=worker.stopped_seconds)
    if worker.status is WorkerStatus.STOPPED:
        stopped += now - worker.status_since
    hours = max(timedelta(), now - since - stopped) / timedelta(hours=1)
    return hours * worker.cost_per_hour_usd


def describe_running_nodes(sample: MetricsSample | None, worker: Worker) -> str:
    """Describe the running labs and nodes by the latest metrics."""
    if worker.status not in CML_STATUSES:
        return "nothing; it is not running"
    if sample is None or sample.labs_count is None:
        return "unknown; no CML metrics in the last 30 minutes"
    return f"{sample.running_nodes or 0} of {sample.nodes_count or 0} nodes, in {sample.labs_count} labs"


def describe_license_release(worker: Worker) -> str:
    """Describe what happens to the license on termination."""
    if worker.license_status is LicenseStatus.REGISTERED:
        return "registered; it is deregistered first, while CML is reachable"
    return f"{worker.license_status}; nothing to deregister"


class StoppedTransition(NamedTuple):
    """A status transition: whether it leaves or enters STOPPED, and whether a policy requested that stop."""

    at: datetime
    out: bool
    into: bool
    by_policy: bool


class StoppedTime(NamedTuple):
    """Seconds in STOPPED, by policy and by people. A stop of unknown origin counts as people's."""

    by_policy: float = 0.0
    by_people: float = 0.0

    @property
    def seconds(self) -> float:
        """The total."""
        return self.by_policy + self.by_people

    def plus(self, seconds: float, *, by_policy: bool) -> StoppedTime:
        """Return the sum with more seconds."""
        if by_policy:
            return StoppedTime(self.by_policy + seconds, self.by_people)
        return StoppedTime(self.by_policy, self.by_people + seconds)

    def usd(self, cost_per_hour: float) -> tuple[float, float]:
        """Return the savings by policy and by people."""
        return self.by_policy * cost_per_hour / 3600, self.by_people * cost_per_hour / 3600


def stopped_time(steps: Sequence[StoppedTransition], since: datetime, until: datetime) -> StoppedTime:
    """Sum up the time in STOPPED between `since` and `until`.

    `steps` are all transitions of the worker into and out of STOPPED since `since`, the oldest first; some may be later
    than `until`. The first one shows the status before it, and the last one the status that is still valid.
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
