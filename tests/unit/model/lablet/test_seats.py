"""What a seat costs on nested and on metal templates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.model.lablet.ports import PortRange
from lcm.model.lablet.seats import count_seats, seat_costs
from lcm.model.worker.template import DEFAULT_TEMPLATES
from tests.support.records.placement import needs

if TYPE_CHECKING:
    from lcm.model.lablet.record import LabletRequirements

PORTS = PortRange(20000, 20009)
SEAT = needs(cpu=4, memory=16, storage=20, nodes=8)


def test_nested_seats_cost_less_than_metal_seats() -> None:
    found = [
        (each.template, each.instance_type, each.nested_virtualization, each.seats, each.cost_per_seat_usd)
        for each in seat_costs(DEFAULT_TEMPLATES, SEAT, PORTS)
    ]
    assert found == [
        ("nested-large", "m8i.8xlarge", True, 8, 0.21168),
        ("nested-medium", "m8i.2xlarge", True, 2, 0.21168),
        ("metal", "m5zn.metal", False, 12, 0.330342),
    ]


def test_only_enabled_templates_with_kvm_that_hold_it_are_compared() -> None:
    disabled = [each.model_copy(update={"enabled": each.name != "nested-large"}) for each in DEFAULT_TEMPLATES]
    large = needs(cpu=16, memory=16, storage=20, nodes=8)
    assert [each.template for each in seat_costs(disabled, large, PORTS)] == ["metal"]


@pytest.mark.parametrize(
    ("requirements", "seats"),
    [
        (needs(cpu=0.1, memory=1, storage=1, nodes=1), 32),  # memory
        (needs(cpu=1, memory=1, storage=1, nodes=1), 8),  # CPU
        (needs(cpu=0.1, memory=0.1, storage=100, nodes=1), 2),  # disk
        (needs(cpu=0.1, memory=0.1, storage=1, nodes=10), 3),  # nodes
        (needs(cpu=0.1, memory=0.1, storage=1, nodes=1, ports=("A", "B", "C")), 3),
        (needs(cpu=9, memory=1, storage=1, nodes=1), 0),
        (needs(cpu=0.8, memory=0.1, storage=1, nodes=1), 10),  # 8 / 0.8 is less than 10 in binary
    ],
)
def test_the_scarcest_resource_bounds_the_seats(requirements: LabletRequirements, seats: int) -> None:
    nested = next(each for each in DEFAULT_TEMPLATES if each.name == "nested-medium")
    assert count_seats(nested, requirements, PORTS) == seats
