"""Placement rules: each filter alone and in order, the score, ports, versions, reservations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.model.lablet.placement import (
    FOREVER,
    cheapest_template,
    lablet_end,
    no_template_reason,
    placement_score,
    rejection_reason,
    version_in_range,
    with_lablet,
    without_lablet,
)
from lcm.model.lablet.ports import DEFAULT_PORTS, PortRange, parse_port_range
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.maintenance import AnnouncedMaintenance
from lcm.model.worker.record import Hold
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus
from lcm.model.worker.template import DEFAULT_TEMPLATES, Allocation
from tests.support.records.placement import CML_READY, a_capacity, a_lablet, a_ready_worker, a_template, needs
from tests.support.records.workers import NOW

HOLD = Hold(reason="do not touch.", by="ada", since=NOW, until=NOW + timedelta(hours=1))
IMPAIRED = Condition(type=ConditionType.IMPAIRED, status=ConditionStatus.TRUE, since=NOW)
RETIREMENT = AnnouncedMaintenance(code="instance-retirement", not_before=NOW + timedelta(days=7))
FULL = Allocation(cpu_cores=6, memory_gb=30, storage_gb=199, nodes=49, lablets=4)

REJECTED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"status": WorkerStatus.STOPPED}, {}, "it is STOPPED"),
    ({"status": WorkerStatus.DRAINING}, {}, "it is DRAINING"),
    ({"desired_status": DesiredStatus.STOPPED}, {}, "its desired status is STOPPED"),
    ({"conditions": ()}, {}, "it is running, but its CML is not ready"),
    ({"hold": HOLD}, {}, "it is on hold by ada: do not touch"),
    ({"conditions": (CML_READY, IMPAIRED)}, {}, "EC2 reports its instance as impaired"),
    ({"license_status": LicenseStatus.REGISTERING}, {}, "needs a license, but its CML is registering"),
    ({"capacity": None}, {}, "its capacity is unknown because it has no template"),
    ({"allocation": FULL}, {"cpu": 4}, "needs 4 CPU cores, but 2 are available"),
    ({"allocation": FULL}, {"memory": 2.5}, "needs 2.5 GB of memory, but 2 are available"),
    ({"allocation": FULL}, {"storage": 2}, "needs 2 GB of storage, but 1 is available"),
    ({"allocation": FULL}, {"nodes": 2}, "needs 2 nodes, but 1 is available"),
    ({}, {"cml_version": ">=2.8"}, "needs CML >=2.8, but it runs 2.7.0+build.4"),
    ({"cml_version": None}, {"cml_version": ">=2.8"}, "needs CML >=2.8, but its version is not known yet"),
    ({}, {"node_definitions": ("iosv", "nxos", "asav")}, "its CML lacks node definition asav, nxos"),
    (
        {"node_definitions": None},
        {"node_definitions": ("iosv",)},
        "the node definitions of its CML are not known yet",
    ),
    ({"allocation": Allocation(ports=(1, 2))}, {"ports": ("A", "B")}, "needs 2 ports, but 1 is available"),
    ({}, {"aws_region": "us-east-1"}, "it is in eu-west-1, not in us-east-1"),
]


def reject(worker: dict[str, Any], requirements: dict[str, Any]) -> str | None:
    requirements = dict(requirements)
    region = requirements.pop("aws_region", None)
    return rejection_reason(
        a_ready_worker(**worker), needs(**requirements), now=NOW, aws_region=region, ports=PortRange(1, 3)
    )


@pytest.mark.parametrize(("worker", "requirements", "reason"), REJECTED)
def test_each_filter_gives_its_reason(worker: dict[str, Any], requirements: dict[str, Any], reason: str) -> None:
    assert reject({}, {}) is None
    assert reject(worker, requirements) == reason


def test_filters_have_their_order() -> None:
    """All filters fail at first; fixing one reveals the next."""
    worker: dict[str, Any] = {
        "status": WorkerStatus.STARTING,
        "hold": HOLD,
        "license_status": LicenseStatus.FAILED,
        "allocation": Allocation(cpu_cores=8, memory_gb=32, storage_gb=200, nodes=50, lablets=1, ports=(1, 2, 3)),
        "node_definitions": (),
    }
    requirements: dict[str, Any] = {
        "cml_version": "<2",
        "node_definitions": ("x",),
        "ports": ("A",),
        "aws_region": "us-east-1",
    }
    taken = worker["allocation"]
    mends: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("STARTING", {"status": WorkerStatus.RUNNING}, {}),
        ("hold", {"hold": None}, {}),
        ("license", {"license_status": LicenseStatus.REGISTERED}, {}),
        ("CPU", {"allocation": taken.model_copy(update={"cpu_cores": 0})}, {}),
        ("memory", {"allocation": taken.model_copy(update={"cpu_cores": 0, "memory_gb": 0})}, {}),
        ("storage", {"allocation": Allocation(nodes=50, ports=(1, 2, 3))}, {}),
        ("node,", {"allocation": Allocation(ports=(1, 2, 3))}, {}),
        ("needs CML", {}, {"cml_version": ">=2"}),
        ("definition", {"node_definitions": ("x",)}, {}),
        ("port", {"allocation": Allocation()}, {}),
        ("us-east-1", {}, {"aws_region": "eu-west-1"}),
    ]
    for word, mended, asked_instead in mends:
        reason = reject(worker, requirements)
        assert reason is not None
        assert word in reason
        worker |= mended
        requirements |= asked_instead
    assert reject(worker, requirements) is None


def test_an_expired_hold_and_an_unneeded_license_do_not_reject() -> None:
    over = HOLD.model_copy(update={"until": NOW})
    assert reject({"hold": over}, {}) is None
    assert reject({"license_status": LicenseStatus.UNREGISTERED}, {"license": False}) is None


def test_the_last_bit_can_be_taken() -> None:
    """Ten tenths add up to one, and subtracting them leaves zero: sums of fractions do not drift."""
    tenth = needs(cpu=0.1, memory=0.1, storage=0.1)
    worker = a_ready_worker(capacity=a_capacity(cpu=1, memory=1, storage=1))
    taken = Allocation()
    for _ in range(10):
        assert rejection_reason(worker, tenth, now=NOW, taken=taken) is None
        taken = with_lablet(taken, tenth)
    assert rejection_reason(worker, tenth, now=NOW, taken=taken) == "needs 0.1 CPU cores, but 0 are available"
    assert (taken.cpu_cores, taken.memory_gb, taken.storage_gb) == (1.0, 1.0, 1.0)
    for _ in range(10):
        taken = without_lablet(taken, tenth)
    assert taken == Allocation()


@given(
    cpu=st.floats(0, 64, allow_subnormal=False),
    memory=st.floats(0, 512, allow_subnormal=False),
    lablets=st.integers(0, 20),
)
def test_the_score_is_the_mean_share_and_a_little_for_each_lablet(cpu: float, memory: float, lablets: int) -> None:
    taken = Allocation(cpu_cores=cpu, memory_gb=memory, lablets=lablets, storage_gb=77, nodes=3)
    expected = (cpu / 64 + memory / 512) / 2 + [0.0, 0.01, 0.02, 0.03, 0.04, 0.05][min(lablets, 5)]
    assert placement_score(a_capacity(cpu=64, memory=512), taken) == pytest.approx(expected, abs=1e-12)


amounts = st.floats(0, 100, allow_nan=False)
requirements = st.builds(
    needs,
    cpu=amounts,
    memory=amounts,
    storage=amounts,
    nodes=st.integers(0, 100),
    ports=st.sampled_from([(), ("A",), ("A", "B"), ("C", "B", "A")]),
)


@given(st.lists(requirements, max_size=12), st.randoms(use_true_random=False))
def test_allocations_never_exceed_the_capacity_and_releases_leave_nothing(wanted: list[Any], chance: Any) -> None:
    ports = PortRange(10, 17)
    worker = a_ready_worker(capacity=a_capacity(cpu=100, memory=100, storage=100, nodes=100))
    there = []
    for each in wanted:
        if rejection_reason(worker, each, now=NOW, ports=ports) is not None:
            continue
        numbers = ports.allocate(each.ports, worker.allocation.ports)
        assert numbers is not None
        assert not set(numbers.values()) & set(worker.allocation.ports)
        there.append((each, tuple(numbers.values())))
        worker = worker.model_copy(update={"allocation": with_lablet(worker.allocation, each, numbers.values())})
    taken = worker.allocation
    assert max(taken.cpu_cores, taken.memory_gb, taken.storage_gb, taken.nodes) <= 100
    assert taken.lablets == len(there)
    assert len(taken.ports) == sum(len(numbers) for _, numbers in there)
    chance.shuffle(there)
    for each, held in there:
        taken = without_lablet(taken, each, held)
        assert min(taken.cpu_cores, taken.memory_gb, taken.storage_gb, taken.nodes, taken.lablets) >= 0
    assert (taken.nodes, taken.lablets, taken.ports) == (0, 0, ())
    assert (taken.cpu_cores, taken.memory_gb, taken.storage_gb) == pytest.approx((0, 0, 0), abs=1e-6)


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("2.6.1+build.11", ">=2.6,<3", True),
        ("2.6", "==2.6.0", True),
        ("2.6.1", "==2.6", False),
        ("2.10.0", ">2.9", True),
        ("2.10.0", ">=2.10.0.1", False),
        ("2.5.9", ">=2.6,<3", False),
        ("3.0.0", ">=2.6,<3", False),
        ("2.7.2-dev", "!=2.7.2", False),
        ("2.7.2", "<=2.7.2, >2.7.1", True),
        ("v2.8", ">=2.8", True),
        ("unknown", ">=0", False),
        ("2.8", "two", False),
    ],
)
def test_version_ranges(version: str, wanted: str, fits: bool) -> None:
    assert version_in_range(version, wanted) is fits


@given(st.sets(st.integers(0, 30)), st.integers(0, 8))
def test_ports_are_the_lowest_that_are_free(taken: set[int], wanted: int) -> None:
    ports = PortRange(5, 14)
    names = [f"P{number}" for number in range(wanted)]
    free = [port for port in range(5, 15) if port not in taken]
    given_out = ports.allocate(names, taken)
    assert ports.count_free(taken) == len(free)
    assert given_out == (dict(zip(names, free, strict=False)) if len(free) >= wanted else None)


@pytest.mark.parametrize("text", ["", "1", "a-b", "0-5", "5-4", "1-65536", "1-2-3", "-5", "1.5-3"])
def test_a_range_of_ports_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="20000-29999"):
        parse_port_range(text)


def test_a_range_of_ports_is_read() -> None:
    assert parse_port_range(" 20000-29999 ") == DEFAULT_PORTS
    assert str(DEFAULT_PORTS) == "20000-29999"


def test_the_cheapest_template_that_holds_it() -> None:
    chosen = cheapest_template(DEFAULT_TEMPLATES, needs(cpu=2, memory=3, storage=10, nodes=3))
    assert chosen is not None
    assert chosen.name == "medium"
    twin = a_template("a-twin", chosen.capacity, chosen.cost_per_hour_usd)
    assert cheapest_template([chosen, twin], needs()) == twin
    assert cheapest_template([twin.model_copy(update={"enabled": False}), chosen], needs()) == chosen


def test_no_template_says_why() -> None:
    huge = needs(cpu=49, memory=1, storage=1)
    assert cheapest_template(DEFAULT_TEMPLATES, huge) is None
    reason = no_template_reason(DEFAULT_TEMPLATES, huge)
    assert "metal: needs 49 CPU cores, but 48 are available" in reason
    assert no_template_reason([], huge) == "no worker template exists"
    ports = needs(ports=("A", "B"))
    assert cheapest_template(DEFAULT_TEMPLATES, ports, ports=PortRange(7, 7)) is None
    assert "needs 2 ports, but 1 is available" in no_template_reason(DEFAULT_TEMPLATES, ports, ports=PortRange(7, 7))


# Announced maintenance


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({}, FOREVER),
        ({"ends_at": NOW + timedelta(hours=2)}, NOW + timedelta(hours=2)),
        ({"time_to_live_minutes": 60.0}, NOW + timedelta(minutes=90)),
        ({"time_to_live_minutes": 60.0, "starts_at": NOW + timedelta(days=1)}, NOW + timedelta(days=1, minutes=90)),
        ({"time_to_live_minutes": 600.0, "ends_at": NOW + timedelta(hours=2)}, NOW + timedelta(hours=2)),
    ],
)
def test_the_end_of_a_lablet_counts_the_time_until_it_runs(changes: dict[str, Any], end: Any) -> None:
    assert lablet_end(a_lablet(1, **changes), NOW) == end


def test_nothing_is_placed_across_announced_maintenance() -> None:
    worker = a_ready_worker(maintenance=RETIREMENT)
    at = f"maintenance of its instance may begin at {RETIREMENT.not_before:%Y-%m-%d %H:%M} UTC"
    assert rejection_reason(worker, needs(), now=NOW, until=NOW + timedelta(days=7)) is None
    assert rejection_reason(worker, needs(), now=NOW, until=NOW + timedelta(days=8)) == f"{at}, before the lablet ends"
    assert rejection_reason(worker, needs(), now=NOW, until=FOREVER) == f"{at}, and the lablet has no end"
