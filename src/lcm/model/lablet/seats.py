"""What a seat costs: how many lablets of a kind fit on a worker of each template, and the price of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from lcm.model.base import LenientModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import LabletRequirements
    from lcm.model.worker.template import Capacity, WorkerTemplate

_ROUNDING = 1e-9


class SeatCost(LenientModel):
    """What one seat costs on a worker of a template, if that worker is full."""

    template: str
    instance_type: str
    nested_virtualization: bool = Field(description="Whether its instances have KVM by nested virtualization.")
    seats: int = Field(description="How many of these lablets fit on one worker.")
    cost_per_hour_usd: float = Field(description="What a worker costs.")
    cost_per_seat_usd: float = Field(description="What a seat costs an hour.")


def seat_costs(
    templates: Iterable[WorkerTemplate], requirements: LabletRequirements, ports: PortRange
) -> tuple[SeatCost, ...]:
    """The enabled templates that require KVM and on which the lablet fits, cheapest seat first, ties by name.

    Those are the nested and the metal templates: what they offer is comparable, and without KVM most labs do not run.
    """
    found = [
        SeatCost(
            template=template.name,
            instance_type=template.instance_type,
            nested_virtualization=template.nested_virtualization,
            seats=seats,
            cost_per_hour_usd=template.cost_per_hour_usd,
            cost_per_seat_usd=round(template.cost_per_hour_usd / seats, 6),
        )
        for template in templates
        if template.enabled and template.requires_kvm and (seats := count_seats(template, requirements, ports))
    ]
    return tuple(sorted(found, key=lambda each: (each.cost_per_seat_usd, each.template)))


def count_seats(template: WorkerTemplate, requirements: LabletRequirements, ports: PortRange) -> int:
    """How many such lablets fit on an empty worker of the template."""
    return count_seats_in(template.capacity, requirements, ports)


def count_seats_in(size: Capacity, requirements: LabletRequirements, ports: PortRange) -> int:
    """How many such lablets fit on an empty worker of this capacity; 0 if they need nothing."""
    shares = (
        (size.cpu_cores, requirements.cpu_cores),
        (size.memory_gb, requirements.memory_gb),
        (size.storage_gb, requirements.storage_gb),
        (size.max_nodes, requirements.nodes),
        (ports.count_free(()), len(requirements.ports)),
    )
    return min((int(offered / needed + _ROUNDING) for offered, needed in shares if needed), default=0)
