"""What the simulated cloud reports of its machines: failed checks, announced maintenance, figures."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from lcm.cloud.simulated import monitoring
from lcm.cloud.simulated.machine import moment
from lcm.cloud.types import HealthKind, HealthNotice, InstanceMetrics, InstanceState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lcm.cloud.simulated.machine import Machine
    from lcm.cloud.simulated.region import Region

METRIC_NAMES: Final = (
    "cpu_utilization",
    "memory_utilization",
    "disk_utilization",
    "network_in",
    "network_out",
    "disk_read",
    "disk_write",
)
QUERIES_A_CALL: Final = 500

Query = tuple[str, str]


def notices(region: Region, kind: HealthKind, now: float) -> list[HealthNotice]:
    """DescribeInstanceStatus with the filter that finds this kind; only running machines have a status."""
    found: list[HealthNotice] = []
    for machine in region.machines.values():
        if machine.impaired or machine.events:
            found.extend(_of_machine(region, machine, kind, now))
    return found


def _of_machine(region: Region, machine: Machine, kind: HealthKind, now: float) -> list[HealthNotice]:
    if not region.shown(machine, now) or machine.state is not InstanceState.RUNNING:
        return []
    if kind is HealthKind.MAINTENANCE:
        return [
            HealthNotice(machine.id, kind, event.detail, moment(event.not_before))
            for event in machine.events
            if not event.completed
        ]
    if kind in machine.impaired:
        return [HealthNotice(machine.id, kind, "reachability: failed")]
    return []


def answer_queries(
    region: Region, seed: int | None, queries: Iterable[Query], now: float
) -> Mapping[str, Mapping[str, float]]:
    """GetMetricData: the latest value of each metric that has one. Without a seed only what was put there is known."""
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for instance_id, name in queries:
        wanted[instance_id].append(name)
    answer: dict[str, Mapping[str, float]] = {}
    for instance_id, names in wanted.items():
        figures = _figures(region, seed, instance_id, now)
        if figures is not None:
            answer[instance_id] = {
                "at": figures.at.timestamp(),
                **{name: value for name in names if (value := getattr(figures, name)) is not None},
            }
    return answer


def put_figures(region: Region, figures: InstanceMetrics) -> None:
    """Let the region know figures of an instance; older ones than it knows change nothing."""
    known = region.figures.get(figures.instance_id)
    if known is None or known.at <= figures.at:
        region.figures[figures.instance_id] = figures


def join_answers(answers: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, InstanceMetrics]:
    """Figures by instance from answers that may hold parts of one."""
    joined: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for answer in answers:
        for instance_id, values in answer.items():
            joined[instance_id].update(values)
    return {i: InstanceMetrics(i, moment(values.pop("at")), **values) for i, values in joined.items()}


def _figures(region: Region, seed: int | None, instance_id: str, now: float) -> InstanceMetrics | None:
    machine = region.machines.get(instance_id)
    if seed is None or machine is None:
        return region.figures.get(instance_id)
    if not region.shown(machine, now) or machine.state is not InstanceState.RUNNING:
        return None
    return monitoring.figures(seed, instance_id, machine.launched_at, now)
