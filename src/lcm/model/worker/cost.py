"""What a worker costs now and has cost, what stopping it saved, and what terminating it would lose.

`current_cost` is the only place that says what a worker costs now, and `fleet_cost` the only place that adds it up. The
record carries every price that they need, so that the API, the command line, the pages and the metrics cannot differ.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from lcm.model.formatting import count_of, format_usd
from lcm.model.worker.conditions import STOPPED, ConditionType, find_condition
from lcm.model.worker.status import CML_STATUSES, STATUSES, STOP_STATUSES, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.record import Worker


METRICS_MAX_AGE = timedelta(minutes=30)
"""The maximum age of CML's metrics for statements about the present."""

HOURS_PER_MONTH = 730
DEFAULT_STORAGE_PRICE = 0.08
"""Dollars per GB and month of disk: what AWS charges for gp3 volumes in most regions."""
MICRO = 1_000_000


class HourlyCost(NamedTuple):
    """What instances cost an hour now, and how many of them have a cost that is not known.

    The amount is a whole number of millionths of a dollar: such sums are exact, in whatever order they are added up.
    """

    micro_usd: int = 0
    unknown: int = 0

    @property
    def usd(self) -> float:
        """The known part, in dollars."""
        return self.micro_usd / MICRO

    def __str__(self) -> str:
        """Format it for people: `$4.21 per hour`, and the number of instances without a known price."""
        return f"{format_usd(self.usd)} per hour{f', {self.without_price}' if self.unknown else ''}"

    @property
    def without_price(self) -> str:
        """What is not in the amount: `plus 2 instances without a known price`."""
        return f"plus {count_of(self.unknown, 'instance')} without a known price"


def instance_runs(worker: Worker) -> bool:
    """Whether its instance is charged as running. It is in FAILED and TERMINATING too, unless it was seen stopped."""
    if worker.status in (WorkerStatus.FAILED, WorkerStatus.TERMINATING):
        return worker.instance_id is not None and not _was_seen_stopped(worker)
    return STATUSES[worker.status].billed


def is_instance_stopped(worker: Worker) -> bool:
    """Whether its instance is stopped, by its status or by what was last observed."""
    return worker.instance_id is not None and (worker.status in STOP_STATUSES or _was_seen_stopped(worker))


def disk_cost(worker: Worker) -> float | None:
    """What the disks of its instance cost an hour, running or stopped; None if their size is not known."""
    if worker.capacity is None:
        return None
    price = worker.storage_price_per_gb_month_usd
    price = DEFAULT_STORAGE_PRICE if price is None else price
    return worker.capacity.storage_gb * price / HOURS_PER_MONTH


def cost_if(worker: Worker, *, running: bool) -> float | None:
    """What it costs an hour with an instance, running or stopped, in dollars; None if that is not known."""
    price, disks = worker.cost_per_hour_usd if running else 0.0, disk_cost(worker)
    return None if price is None or disks is None else round(price + disks, 6)


def current_cost(worker: Worker) -> float | None:
    """What it costs an hour now, in dollars: its instance while that runs, and its disks. None if not known."""
    running = instance_runs(worker)
    if not running and (worker.instance_id is None or worker.status is WorkerStatus.TERMINATED):
        return 0.0
    return cost_if(worker, running=running)


def fleet_cost(workers: Iterable[Worker], leaked_instances: int = 0) -> HourlyCost:
    """What these workers cost an hour now, all together. So do leaked instances, of which no record has a price."""
    micro_usd, unknown = 0, leaked_instances
    for worker in workers:
        cost = current_cost(worker)
        if cost is None:
            unknown += 1
        else:
            micro_usd += round(cost * MICRO)
    return HourlyCost(micro_usd, unknown)


def cost_so_far(worker: Worker, now: datetime) -> float | None:
    """Estimate what it has cost so far: its instance without the time in STOPPED, and its disks; None if not known."""
    disks, price = disk_cost(worker), worker.cost_per_hour_usd
    if price is None or disks is None or worker.instance_id is None:
        return None
    lifetime = max(timedelta(), now - (worker.instance_since or worker.created_at))
    stopped = timedelta(seconds=worker.stopped_seconds)
    if worker.status is WorkerStatus.STOPPED:
        stopped += now - worker.status_since
    hours, hours_running = (max(timedelta(), each) / timedelta(hours=1) for each in (lifetime, lifetime - stopped))
    return hours_running * price + hours * disks


def _was_seen_stopped(worker: Worker) -> bool:
    observed = find_condition(worker.conditions, ConditionType.INSTANCE_READY)
    return observed is not None and observed.reason == STOPPED


def describe_running_nodes(sample: MetricsSample | None, worker: Worker) -> str:
    """Describe the running labs and nodes by the latest metrics."""
    if worker.status not in CML_STATUSES:
        return "nothing; it is not running"
    if sample is None or sample.labs_count is None:
        return "unknown; no CML metrics in the last 30 minutes"
    if not sample.labs_count:
        return "no labs"
    nodes = count_of(sample.nodes_count or 0, "node")
    return f"{sample.running_nodes or 0} of {nodes}, in {count_of(sample.labs_count, 'lab')}"


def can_release_license(worker: Worker) -> bool:
    """Whether its termination tries to deregister its license: nothing is started that nobody could sign in to."""
    return worker.can_sign_in or not is_instance_stopped(worker) or worker.license_release_started_at is not None


def describe_license_release(worker: Worker, *, release: bool = True) -> str:
    """Describe what happens to the license on termination, how long that takes and what it costs."""
    if worker.license_status is not LicenseStatus.REGISTERED:
        return f"{worker.license_status}; nothing to deregister"
    if not release or not worker.release_license:
        return "registered; it will not be deregistered, so Cisco will still count it (leaked)"
    if not can_release_license(worker):
        why = "LCM has no credentials for the CML of this worker and cannot deregister it"
        return f"registered; {why}; Cisco will still count it (leaked)"
    if not is_instance_stopped(worker):
        return "registered; it is deregistered first, while CML is reachable, usually within 2 minutes"
    cost = cost_if(worker, running=True)
    price = "at an unknown price" if cost is None else f"at {format_usd(cost)} an hour"
    return (
        "registered; the stopped instance is started once more to deregister it,"
        f" for 47 minutes at most with the default timeouts, {price};"
        " at most three instances per region are started at once, so it may first wait for its turn"
    )


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
