"""Whether a lablet fits on a worker, which worker is best, and what a reservation changes: pure rules.

The scheduler plans by them and the control plane checks them again in the commit that reserves, so that both say
the same in the same words. A worker that is not `ready` by its own record is never chosen.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from lcm.model.formatting import as_clause
from lcm.model.lablet.ports import DEFAULT_PORTS, PortRange
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus
from lcm.model.worker.template import Allocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from lcm.model.lablet.record import LabletRequirements
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Capacity, WorkerTemplate


_ROUNDING_DIGITS = 9
"""Sums of shares such as 0.1 are rounded: what is given back leaves exactly what was there before."""

_MAX_NAMED = 5
_MAX_LABLET_BONUS = 0.05
_LABLET_BONUS = 0.01


# Filters


def rejection_reason(
    worker: Worker,
    requirements: LabletRequirements,
    *,
    now: datetime,
    aws_region: str | None = None,
    ports: PortRange = DEFAULT_PORTS,
    taken: Allocation | None = None,
) -> str | None:
    """Why the lablet cannot be placed on the worker as it is now, as a person would say it; None: it fits.

    `taken` is what counts as taken, for whoever plans ahead; by itself it is what the record says.
    """
    used = worker.allocation if taken is None else taken
    return (
        check_ready(worker)
        or check_hold(worker, now)
        or check_license(worker, requirements)
        or check_capacity(worker.capacity, used, requirements)
        or check_cml_version(worker, requirements)
        or check_node_definitions(worker, requirements)
        or check_ports(used, requirements, ports)
        or check_region(worker, aws_region)
    )


def check_ready(worker: Worker) -> str | None:
    """Not `ready`: running, wanted so, and CML answers."""
    if worker.ready:
        return None
    if worker.status is not WorkerStatus.RUNNING:
        return f"it is {worker.status}"
    if worker.desired_status is not DesiredStatus.RUNNING:
        return f"it is wanted {worker.desired_status}"
    return "it is running, but its CML is not ready"


def check_hold(worker: Worker, now: datetime) -> str | None:
    """On hold by a person."""
    if worker.hold is None or not worker.hold.active(now):
        return None
    return f"it is on hold by {worker.hold.by}: {as_clause(worker.hold.reason)}"[:300]


def check_license(worker: Worker, requirements: LabletRequirements) -> str | None:
    """A licence is needed, and its CML is not registered."""
    if not requirements.license or worker.license_status is LicenseStatus.REGISTERED:
        return None
    return f"needs a licence, its CML is {worker.license_status}"


def check_capacity(capacity: Capacity | None, taken: Allocation, requirements: LabletRequirements) -> str | None:
    """Which of CPU, memory, storage and nodes is not left in the amount needed; the first of them."""
    if capacity is None:
        return "its capacity is not known: it has no template"
    if _rounded_sum(taken.cpu_cores, requirements.cpu_cores) > capacity.cpu_cores:
        return _shortage_reason(requirements.cpu_cores, capacity.cpu_cores - taken.cpu_cores, "CPU cores", "CPU core")
    if _rounded_sum(taken.memory_gb, requirements.memory_gb) > capacity.memory_gb:
        return _shortage_reason(requirements.memory_gb, capacity.memory_gb - taken.memory_gb, "GB of memory")
    if _rounded_sum(taken.storage_gb, requirements.storage_gb) > capacity.storage_gb:
        return _shortage_reason(requirements.storage_gb, capacity.storage_gb - taken.storage_gb, "GB of storage")
    if taken.nodes + requirements.nodes > capacity.max_nodes:
        return _shortage_reason(requirements.nodes, capacity.max_nodes - taken.nodes, "nodes", "node")
    return None


def check_cml_version(worker: Worker, requirements: LabletRequirements) -> str | None:
    """Its CML is not of a version that was asked for, or nobody knows its version."""
    if requirements.cml_version is None:
        return None
    if worker.cml_version is None:
        return f"needs CML {requirements.cml_version}, its version is not known yet"
    if version_in_range(worker.cml_version, requirements.cml_version):
        return None
    return f"needs CML {requirements.cml_version}, it runs {worker.cml_version}"


def check_node_definitions(worker: Worker, requirements: LabletRequirements) -> str | None:
    """Its CML does not offer a node definition that the topology uses, or nobody knows what it offers."""
    if not requirements.node_definitions:
        return None
    if worker.node_definitions is None:
        return "which node definitions its CML offers is not known yet"
    missing = sorted(set(requirements.node_definitions).difference(worker.node_definitions))
    if not missing:
        return None
    more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
    return f"its CML lacks node definition {', '.join(missing[:_MAX_NAMED])}{more}"[:300]


def check_ports(taken: Allocation, requirements: LabletRequirements, ports: PortRange) -> str | None:
    """Not as many ports are free as are named."""
    wanted = len(requirements.ports)
    if wanted and (free := ports.count_free(taken.ports)) < wanted:
        return _shortage_reason(wanted, free, "ports", "port")
    return None


def check_region(worker: Worker, aws_region: str | None) -> str | None:
    """In another region than was asked for."""
    if aws_region is None or worker.aws_region == aws_region:
        return None
    return f"it is in {worker.aws_region}, asked for is {aws_region}"


# The score


def placement_score(capacity: Capacity, taken: Allocation) -> float:
    """How full a worker is before the new lablet comes: the fullest that still fits is the best.

    The mean of what is taken of CPU and memory, and a little for each lablet that is there already.
    """
    share = (taken.cpu_cores / capacity.cpu_cores + taken.memory_gb / capacity.memory_gb) / 2
    return share + min(_MAX_LABLET_BONUS, _LABLET_BONUS * taken.lablets)


# What a reservation changes


def with_lablet(taken: Allocation, requirements: LabletRequirements, ports: Iterable[int] = ()) -> Allocation:
    """What is taken once the lablet is placed."""
    return Allocation(
        cpu_cores=_rounded_sum(taken.cpu_cores, requirements.cpu_cores),
        memory_gb=_rounded_sum(taken.memory_gb, requirements.memory_gb),
        storage_gb=_rounded_sum(taken.storage_gb, requirements.storage_gb),
        nodes=taken.nodes + requirements.nodes,
        lablets=taken.lablets + 1,
        ports=tuple(sorted({*taken.ports, *ports})),
    )


def without_lablet(taken: Allocation, requirements: LabletRequirements, ports: Iterable[int] = ()) -> Allocation:
    """What is taken once the lablet is gone; never less than nothing."""
    return Allocation(
        cpu_cores=max(0.0, _rounded_sum(taken.cpu_cores, -requirements.cpu_cores)),
        memory_gb=max(0.0, _rounded_sum(taken.memory_gb, -requirements.memory_gb)),
        storage_gb=max(0.0, _rounded_sum(taken.storage_gb, -requirements.storage_gb)),
        nodes=max(0, taken.nodes - requirements.nodes),
        lablets=max(0, taken.lablets - 1),
        ports=tuple(sorted(set(taken.ports).difference(ports))),
    )


# Templates


def cheapest_template(
    templates: Iterable[WorkerTemplate], requirements: LabletRequirements, *, ports: PortRange = DEFAULT_PORTS
) -> WorkerTemplate | None:
    """The cheapest enabled template whose whole capacity holds the lablet, ties by name; None: there is none."""
    fitting = [
        template
        for template in templates
        if template.enabled and check_template(template, requirements, ports=ports) is None
    ]
    return min(fitting, key=lambda template: (template.cost_per_hour_usd, template.name), default=None)


def check_template(
    template: WorkerTemplate, requirements: LabletRequirements, *, ports: PortRange = DEFAULT_PORTS
) -> str | None:
    """Why an empty worker of the template would not hold the lablet; None: it would."""
    nothing = Allocation()
    return check_capacity(template.capacity, nothing, requirements) or check_ports(nothing, requirements, ports)


def no_template_reason(
    templates: Iterable[WorkerTemplate], requirements: LabletRequirements, *, ports: PortRange = DEFAULT_PORTS
) -> str:
    """Why no worker that could be launched would ever hold the lablet."""
    told = []
    for template in sorted(templates, key=lambda template: template.name):
        why = "it is disabled" if not template.enabled else check_template(template, requirements, ports=ports)
        if why is not None:
            told.append(f"{template.name}: {why}")
    return f"no worker template can hold it ({'; '.join(told)})"[:500] if told else "there is no worker template"


def _rounded_sum(one: float, other: float) -> float:
    return round(one + other, _ROUNDING_DIGITS)


def _shortage_reason(needed: float, left: float, unit: str, one_unit: str | None = None) -> str:
    named = one_unit if one_unit is not None and needed == 1 else unit
    left = max(0.0, round(left, 3))
    return f"needs {needed:g} {named}, {left:g} {'is' if left == 1 else 'are'} left"


VersionNumbers = tuple[int, ...]

_VERSION_PARTS = 4
_LEADING_NUMBERS = re.compile(r"\s*v?(\d{1,9}(?:\.\d{1,9}){0,3})")
_COMPARISON = re.compile(r"\s*(==|!=|>=|<=|>|<)\s*(\d{1,9}(?:\.\d{1,9}){0,3})\s*")
_OPERATORS: dict[str, Callable[[VersionNumbers, VersionNumbers], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@lru_cache(maxsize=1024)
def version_in_range(version: str, wanted: str) -> bool:
    """Whether a version that CML tells (`2.7.0+build.4`) meets every comparison; what has no number meets none.

    Parts that are not written are nought: 2.6 is 2.6.0. What follows the numbers (a build) is not compared.
    """
    release = _parse_version(version)
    if release is None:
        return False
    for comparison in wanted.split(","):
        found = _COMPARISON.fullmatch(comparison)
        if found is None:
            return False
        bound = _pad_version(found.group(2))
        if not _OPERATORS[found.group(1)](release, bound):
            return False
    return True


def _parse_version(version: str) -> VersionNumbers | None:
    found = _LEADING_NUMBERS.match(version)
    return None if found is None else _pad_version(found.group(1))


def _pad_version(numbers: str) -> VersionNumbers:
    parts = tuple(int(part) for part in numbers.split("."))
    return parts + (0,) * (_VERSION_PARTS - len(parts))
