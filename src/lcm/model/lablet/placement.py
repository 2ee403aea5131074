"""Placement rules: whether a lablet fits on a worker, which worker is best, and what a reservation changes.

The rules are pure. The scheduler plans with them, and the control plane checks them again in the commit that reserves,
so that both give the same reasons. A worker that is not `ready` by its own record is never chosen.
"""

from __future__ import annotations

import operator
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lcm.model.base import CaseInsensitiveEnum, LenientModel, SingleLineText
from lcm.model.formatting import as_clause, format_instant
from lcm.model.lablet.ports import DEFAULT_PORTS, PortRange
from lcm.model.lablet.record import MAX_REJECTIONS, LabletRequirements, Rejection
from lcm.model.lablet.seats import SeatCost
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus
from lcm.model.worker.template import Allocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Capacity, WorkerTemplate


_ROUNDING_DIGITS = 9
"""Sums of fractions such as 0.1 are rounded, so that a release restores exactly the previous value."""

TIME_TO_RUN = timedelta(minutes=30)
"""How long a lablet may take until it runs, and its time to live begins."""
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
    until: datetime | None = None,
    booking_id: str | None = None,
    team: str = "",
) -> str | None:
    """Return why the lablet cannot be placed on the worker in its current state; None if it fits.

    `taken` replaces the allocation in the record when a caller plans ahead. `until` is the end of the lablet,
    `booking_id` the booking whose seat it is, and `team` its team.
    """
    used = worker.allocation if taken is None else taken
    return (
        check_ready(worker)
        or check_hold(worker, now)
        or check_booking(worker, booking_id, now)
        or check_team(worker, team)
        or check_health(worker, until)
        or check_license(worker, requirements)
        or check_capacity(worker.capacity, used, requirements)
        or check_cml_version(worker, requirements)
        or check_node_definitions(worker, requirements)
        or check_ports(used, requirements, ports)
        or check_region(worker, aws_region)
    )


def check_adopted(worker: Worker) -> str | None:
    """An imported worker takes no lablets until a person adopts it, and only if that person says so."""
    if not worker.is_adopted:
        return f"it was imported and is not adopted: lcm workers adopt {worker.name}"
    return None if worker.schedulable else "it is marked as not schedulable"


def check_ready(worker: Worker) -> str | None:
    """The worker must be `ready`, and one of ours."""
    if worker.ready:
        return check_adopted(worker)
    if worker.status is not WorkerStatus.RUNNING:
        return f"it is {worker.status}"
    if worker.desired_status is not DesiredStatus.RUNNING:
        return f"its desired status is {worker.desired_status}"
    return "it is running, but its CML has no KVM" if worker.lacks_kvm else "it is running, but its CML is not ready"


def check_hold(worker: Worker, now: datetime) -> str | None:
    """The worker must not be on hold."""
    if worker.hold is None or not worker.hold.active(now):
        return None
    return f"it is on hold by {worker.hold.by}: {as_clause(worker.hold.reason)}"[:300]


def check_booking(worker: Worker, booking_id: str | None, now: datetime) -> str | None:
    """Seats of a class are placed on the workers that are booked for it, and nothing else is placed there."""
    if worker.is_booked(now):
        if worker.booking_id == booking_id or worker.booked_until is None:
            return None
        return f"it is booked for {worker.booking_id} until {format_instant(worker.booked_until)}"
    return None if booking_id is None else "it is not booked for this class"


def check_team(worker: Worker, team: str) -> str | None:
    """A worker that is dedicated to a team takes no lablets of others. The reason does not name the team."""
    return None if worker.team in ("", team) else "it is dedicated to another team"


FOREVER = datetime.max.replace(tzinfo=UTC)
"""The end of a lablet that has none."""


def lablet_end(lablet: Lablet, now: datetime) -> datetime:
    """When a lablet that is placed now ends at the latest."""
    begins = max(now, lablet.starts_at or now)
    lives = lablet.time_to_live_minutes
    ends = [] if lives is None else [begins + timedelta(minutes=lives) + TIME_TO_RUN]
    return min([*ends, *([] if lablet.ends_at is None else [lablet.ends_at])], default=FOREVER)


def check_health(worker: Worker, until: datetime | None) -> str | None:
    """Its instance must not be impaired, and no announced maintenance may begin before the end of the lablet."""
    if worker.is_impaired:
        return "EC2 reports its instance as impaired"
    known_end = worker.known_end
    if known_end is None or until is None or until <= known_end:
        return None
    ends = "and the lablet has no end" if until >= FOREVER else "before the lablet ends"
    return f"maintenance of its instance may begin at {known_end:%Y-%m-%d %H:%M} UTC, {ends}"


def check_license(worker: Worker, requirements: LabletRequirements) -> str | None:
    """Its CML must be registered if the lablet needs a license."""
    if not requirements.license or worker.license_status is LicenseStatus.REGISTERED:
        return None
    return f"needs a license, but its CML is {worker.license_status}"


def check_capacity(capacity: Capacity | None, taken: Allocation, requirements: LabletRequirements) -> str | None:
    """CPU, memory, storage and nodes must suffice; the first shortage is returned."""
    if capacity is None:
        return "its capacity is unknown because it has no template"
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
    """The version of its CML must be known and in the required range."""
    if requirements.cml_version is None:
        return None
    if worker.cml_version is None:
        return f"needs CML {requirements.cml_version}, but its version is not known yet"
    if version_in_range(worker.cml_version, requirements.cml_version):
        return None
    return f"needs CML {requirements.cml_version}, but it runs {worker.cml_version}"


def check_node_definitions(worker: Worker, requirements: LabletRequirements) -> str | None:
    """Its CML must be known to offer all node definitions of the topology."""
    if not requirements.node_definitions:
        return None
    if worker.node_definitions is None:
        return "the node definitions of its CML are not known yet"
    missing = sorted(set(requirements.node_definitions).difference(worker.node_definitions))
    if not missing:
        return None
    more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
    return f"its CML lacks node definition {', '.join(missing[:_MAX_NAMED])}{more}"[:300]


def check_ports(taken: Allocation, requirements: LabletRequirements, ports: PortRange) -> str | None:
    """Enough ports must be free."""
    needed = len(requirements.ports)
    if needed and (free := ports.count_free(taken.ports)) < needed:
        return _shortage_reason(needed, free, "ports", "port")
    return None


def check_region(worker: Worker, aws_region: str | None) -> str | None:
    """The worker must be in the requested region."""
    if aws_region is None or worker.aws_region == aws_region:
        return None
    return f"it is in {worker.aws_region}, not in {aws_region}"


# Score


def placement_score(capacity: Capacity, taken: Allocation) -> float:
    """Return how full a worker is before the placement: the fullest worker that still fits is the best.

    The score is the mean utilization of CPU and memory, plus a small bonus for each lablet on the worker.
    """
    share = (taken.cpu_cores / capacity.cpu_cores + taken.memory_gb / capacity.memory_gb) / 2
    return share + min(_MAX_LABLET_BONUS, _LABLET_BONUS * taken.lablets)


# Reservations


def with_lablet(taken: Allocation, requirements: LabletRequirements, ports: Iterable[int] = ()) -> Allocation:
    """Return the allocation after a placement."""
    after = Allocation(
        cpu_cores=_rounded_sum(taken.cpu_cores, requirements.cpu_cores),
        memory_gb=_rounded_sum(taken.memory_gb, requirements.memory_gb),
        storage_gb=_rounded_sum(taken.storage_gb, requirements.storage_gb),
        nodes=taken.nodes + requirements.nodes,
        lablets=taken.lablets + 1,
        ports=tuple(sorted({*taken.ports, *ports})),
    )
    return after.with_unknown_fields_of(taken)


def without_lablet(taken: Allocation, requirements: LabletRequirements, ports: Iterable[int] = ()) -> Allocation:
    """Return the allocation after a release; no value becomes negative."""
    after = Allocation(
        cpu_cores=max(0.0, _rounded_sum(taken.cpu_cores, -requirements.cpu_cores)),
        memory_gb=max(0.0, _rounded_sum(taken.memory_gb, -requirements.memory_gb)),
        storage_gb=max(0.0, _rounded_sum(taken.storage_gb, -requirements.storage_gb)),
        nodes=max(0, taken.nodes - requirements.nodes),
        lablets=max(0, taken.lablets - 1),
        ports=tuple(sorted(set(taken.ports).difference(ports))),
    )
    return after.with_unknown_fields_of(taken)


# Templates


def cheapest_template(
    templates: Iterable[WorkerTemplate], requirements: LabletRequirements, *, ports: PortRange = DEFAULT_PORTS
) -> WorkerTemplate | None:
    """Return the cheapest enabled template whose capacity suffices for the lablet, ties by name; None if none does."""
    fitting = [
        template
        for template in templates
        if template.enabled and check_template(template, requirements, ports=ports) is None
    ]
    return min(fitting, key=lambda template: (template.cost_per_hour_usd, template.name), default=None)


def check_template(
    template: WorkerTemplate, requirements: LabletRequirements, *, ports: PortRange = DEFAULT_PORTS
) -> str | None:
    """Return why an empty worker of the template would not fit the lablet; None if it would."""
    nothing = Allocation()
    return check_capacity(template.capacity, nothing, requirements) or check_ports(nothing, requirements, ports)


def no_template_reason(
    templates: Iterable[WorkerTemplate], requirements: LabletRequirements, *, ports: PortRange = DEFAULT_PORTS
) -> str:
    """Return why no worker that could be launched would fit the lablet."""
    reasons = []
    for template in sorted(templates, key=lambda template: template.name):
        why = "it is disabled" if not template.enabled else check_template(template, requirements, ports=ports)
        if why is not None:
            reasons.append(f"{template.name}: {why}")
    return (
        f"no worker template is large enough ({'; '.join(reasons)})"[:500] if reasons else "no worker template exists"
    )


def _rounded_sum(one: float, other: float) -> float:
    return round(one + other, _ROUNDING_DIGITS)


def _shortage_reason(needed: float, left: float, unit: str, one_unit: str | None = None) -> str:
    named = one_unit if one_unit is not None and needed == 1 else unit
    left = max(0.0, round(left, 3))
    return f"needs {needed:g} {named}, but {left:g} {'is' if left == 1 else 'are'} available"


# Version ranges of CML


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
def version_in_range(version: str, version_range: str) -> bool:
    """Whether a version reported by CML (`2.7.0+build.4`) is in a range such as `>=2.6,<3`.

    Missing parts are zero: 2.6 is 2.6.0. A build suffix is not compared. A version without a number is in no range.
    """
    release = _parse_version(version)
    if release is None:
        return False
    for comparison in version_range.split(","):
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


# Preview


class PreviewOutcome(CaseInsensitiveEnum):
    """What the scheduler would do with the lablet now."""

    PLACE = "place"
    WAIT = "wait"
    RESUME = "resume"
    LAUNCH = "launch"
    REFUSE = "refuse"


class PlacementCandidate(LenientModel):
    """A worker that fits the lablet."""

    worker_id: str
    worker_name: str
    score: float


class LabletPreview(LenientModel):
    """The result of a dry run: nothing is reserved, launched or written."""

    definition: str = Field(description="name@version")
    requirements: LabletRequirements
    outcome: PreviewOutcome
    reason: Annotated[SingleLineText, Field(max_length=1000)]
    candidates: Annotated[tuple[PlacementCandidate, ...], Field(max_length=MAX_REJECTIONS)] = Field(
        default=(), description="Matching workers, the best first."
    )
    candidates_in_all: int = 0
    rejections: Annotated[tuple[Rejection, ...], Field(max_length=MAX_REJECTIONS)] = ()
    rejected: int = Field(default=0, description="Total number of rejected workers; the list may be truncated.")
    template: str | None = Field(
        default=None, description="The template of the worker that would be launched or resumed."
    )
    worker_id: str | None = Field(
        default=None, description="The worker that would get the lablet, be waited for, or be resumed."
    )
    aws_region: str | None = None
    cost_per_hour_usd: float = Field(default=0, description="Additional cost compared to now.")
    seat_costs: tuple[SeatCost, ...] = Field(
        default=(),
        description="What a seat costs on each enabled template that requires KVM, nested or metal, cheapest first.",
    )
    effect: str = Field(default="", description="What would happen, as sentences for people.")
    cost: str = Field(default="", description="What it would cost more than now, as a sentence for people.")
    blocked: str = Field(default="", description="Why nothing is placed at present; empty if placement goes on.")
    skipped: int = Field(default=0, description="Number of records that could not be planned with it.")
