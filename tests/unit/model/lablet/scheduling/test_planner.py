"""Plans for pending lablets: the best worker by score, arriving capacity, and no more machines than needed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.model.calendar.schedule import Schedule, WorkerSelector
from lcm.model.calendar.walk_ins import BookedCapacitySnapshot
from lcm.model.lablet import placement
from lcm.model.lablet.ports import PortRange
from lcm.model.lablet.record import Lablet, Placement
from lcm.model.lablet.scheduling.planner import PlanningConfig, SchedulingPlan, capacity_need_key, make_plan
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.maintenance import AnnouncedMaintenance
from lcm.model.worker.record import Hold
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerOrigin, WorkerStatus
from lcm.model.worker.template import DEFAULT_TEMPLATES, Allocation
from tests.support.records.placement import CML_READY, STUCK, a_capacity, a_lablet, a_ready_worker, a_template, needs
from tests.support.records.workers import NOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.model.lablet.record import LabletRequirements
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import WorkerTemplate

RULES = PlanningConfig(ports=PortRange(20000, 20009))
BOX = a_template("box", a_capacity(), 0.5)


def planned(
    pending: Sequence[Lablet],
    workers: Sequence[Worker] = (),
    templates: Sequence[WorkerTemplate] = (BOX,),
    config: PlanningConfig = RULES,
) -> SchedulingPlan:
    return make_plan(pending, workers, templates, now=NOW, config=config)


def where(made: SchedulingPlan) -> dict[str, str]:
    return {each.lablet.id: each.worker_id for each in made.placed}


def waits(made: SchedulingPlan) -> dict[str, tuple[str | None, str]]:
    lablets = [*made.waiting, *(each for need in made.needs for each in need.lablets)]
    return {each.lablet.id: (each.worker_id, each.reason) for each in lablets}


def own(worker_id: str) -> Placement:
    return Placement(at=NOW, reason="requested", scale_up_worker_id=worker_id)


# Selection of a worker


def test_the_fullest_worker_that_fits_is_chosen() -> None:
    workers = [
        a_ready_worker(1),
        a_ready_worker(2, allocation=Allocation(cpu_cores=4, memory_gb=16, lablets=2)),
        a_ready_worker(3, allocation=Allocation(cpu_cores=8, memory_gb=16, lablets=4)),
    ]
    made = planned([a_lablet(1, needs(cpu=2, memory=2))], workers)
    assert where(made) == {"l-0001": "w-0002"}
    [placed] = made.placed
    assert placed.score == pytest.approx(0.5 + 0.02)
    assert [(each.worker_id, each.reason) for each in placed.rejections] == [
        ("w-0003", "needs 2 CPU cores, but 0 are available")
    ]
    assert placed.rejected == 1


def test_ties_are_broken_by_id() -> None:
    assert where(planned([a_lablet()], [a_ready_worker(3), a_ready_worker(2), a_ready_worker(4)])) == {
        "l-0001": "w-0002"
    }


class Model:
    """A reference implementation of filter, score and select: one lablet at a time, without optimizations."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.taken: dict[str, dict[str, float]] = {}
        self.workers = {worker.id: worker for worker in workers}
        for worker in workers:
            used = worker.allocation
            self.taken[worker.id] = {
                "cpu": used.cpu_cores,
                "memory": used.memory_gb,
                "storage": used.storage_gb,
                "nodes": used.nodes,
                "lablets": used.lablets,
                "ports": len(used.ports),
            }

    def fits(self, worker: Worker, lablet: Lablet) -> bool:
        size, requirements, used = worker.capacity, lablet.requirements, self.taken[worker.id]
        return (
            worker.ready
            and worker.hold is None
            and (not requirements.license or worker.license_status is LicenseStatus.REGISTERED)
            and size is not None
            and used["cpu"] + requirements.cpu_cores <= size.cpu_cores
            and used["memory"] + requirements.memory_gb <= size.memory_gb
            and used["storage"] + requirements.storage_gb <= size.storage_gb
            and used["nodes"] + requirements.nodes <= size.max_nodes
            and used["ports"] + len(requirements.ports) <= 10
            and (lablet.aws_region is None or lablet.aws_region == worker.aws_region)
        )

    def score(self, worker: Worker) -> float:
        assert worker.capacity is not None
        used = self.taken[worker.id]
        share = (used["cpu"] / worker.capacity.cpu_cores + used["memory"] / worker.capacity.memory_gb) / 2
        return share + min(0.05, 0.01 * used["lablets"])

    def choose(self, lablet: Lablet) -> str | None:
        fitting = [worker for worker in self.workers.values() if self.fits(worker, lablet)]
        if not fitting:
            return None
        best = max(self.score(worker) for worker in fitting)
        chosen = min(worker.id for worker in fitting if abs(self.score(worker) - best) < 1e-12)
        requirements, used = lablet.requirements, self.taken[chosen]
        used["cpu"] += requirements.cpu_cores
        used["memory"] += requirements.memory_gb
        used["storage"] += requirements.storage_gb
        used["nodes"] += requirements.nodes
        used["ports"] += len(requirements.ports)
        used["lablets"] += 1
        return chosen


eighths = st.integers(1, 64).map(lambda number: number / 8)
wishes = st.builds(
    needs,
    cpu=st.integers(1, 32).map(lambda number: number / 8),
    memory=eighths,
    storage=eighths,
    nodes=st.integers(0, 20),
    ports=st.sampled_from([(), (), ("A",), ("A", "B", "C")]),
    license=st.booleans(),
)
regions = st.sampled_from([None, None, "eu-west-1", "us-east-1"])


@st.composite
def fleets(draw: Any) -> list[Worker]:
    workers = []
    for number in range(1, draw(st.integers(0, 6)) + 1):
        status = draw(st.sampled_from([WorkerStatus.RUNNING] * 4 + [WorkerStatus.STARTING, WorkerStatus.STOPPED]))
        used = Allocation(
            cpu_cores=draw(st.integers(0, 8)),
            memory_gb=draw(st.integers(0, 32)),
            storage_gb=draw(st.integers(0, 20)),
            nodes=draw(st.integers(0, 50)),
            lablets=draw(st.integers(0, 7)),
            ports=tuple(range(20000, 20000 + draw(st.integers(0, 10)))),
        )
        workers.append(
            a_ready_worker(
                number,
                status=status,
                aws_region=draw(st.sampled_from(["eu-west-1", "us-east-1"])),
                license_status=draw(st.sampled_from([LicenseStatus.REGISTERED, LicenseStatus.FAILED])),
                hold=draw(st.sampled_from([None, None, None, Hold(reason="x", by="ada", since=NOW)])),
                allocation=used,
            )
        )
    return workers


@st.composite
def crowds(draw: Any, most: int = 25) -> list[Lablet]:
    shapes = draw(st.lists(st.tuples(wishes, regions), min_size=1, max_size=4))
    picked = draw(st.lists(st.sampled_from(shapes), max_size=most))
    return [a_lablet(number, wish, aws_region=region) for number, (wish, region) in enumerate(picked, 1)]


@settings(max_examples=200, deadline=None)
@given(fleets(), crowds())
def test_placements_match_the_brute_force_search(workers: list[Worker], crowd: list[Lablet]) -> None:
    """In the order of the plan, each lablet gets the worker that the reference implementation selects."""
    made = planned(crowd, workers)
    model = Model(workers)
    for each in made.placed:
        assert model.choose(each.lablet) == each.worker_id
    for lablet_id in waits(made):
        lablet = next(each for each in crowd if each.id == lablet_id)
        assert not any(model.fits(worker, lablet) for worker in workers)
    assert len(made.placed) + len(waits(made)) + len(made.unplaceable) == len(crowd)


@settings(max_examples=200, deadline=None)
@given(fleets(), crowds())
def test_a_plan_never_places_more_than_fits(workers: list[Worker], crowd: list[Lablet]) -> None:
    made = planned(crowd, workers)
    placed: dict[str, list[LabletRequirements]] = defaultdict(list)
    for each in made.placed:
        placed[each.worker_id].append(each.lablet.requirements)
    for worker in workers:
        size, used, added = worker.capacity, worker.allocation, placed[worker.id]
        assert size is not None
        if added:
            assert used.cpu_cores + sum(each.cpu_cores for each in added) <= size.cpu_cores
            assert used.memory_gb + sum(each.memory_gb for each in added) <= size.memory_gb
            assert used.storage_gb + sum(each.storage_gb for each in added) <= size.storage_gb
            assert used.nodes + sum(each.nodes for each in added) <= size.max_nodes
            assert len(used.ports) + sum(len(each.ports) for each in added) <= 10


# New workers


def first_fit_decreasing(requirements: Sequence[LabletRequirements], size: tuple[float, float, float, float]) -> int:
    """The number of bins of one size that first-fit-decreasing needs."""
    vectors = [(each.cpu_cores, each.memory_gb, each.storage_gb, float(each.nodes)) for each in requirements]
    vectors.sort(key=lambda vector: max(need / have for need, have in zip(vector, size, strict=True)), reverse=True)
    bins: list[list[float]] = []
    for vector in vectors:
        for left in bins:
            if all(need <= have for need, have in zip(vector, left, strict=True)):
                break
        else:
            left = list(size)
            bins.append(left)
        for place, need in enumerate(vector):
            left[place] -= need
    return len(bins)


@settings(max_examples=150, deadline=None)
@given(st.lists(wishes, min_size=1, max_size=50))
def test_no_more_workers_are_requested_than_packing_needs(requirements: list[LabletRequirements]) -> None:
    plain = [each.model_copy(update={"ports": ()}) for each in requirements]
    made = planned([a_lablet(number, each) for number, each in enumerate(plain, 1)])
    assert not made.placed
    assert sum(len(need.lablets) for need in made.needs) == len(plain)
    assert len(made.needs) <= first_fit_decreasing(plain, (8, 32, 200, 50))
    assert len({need.key for need in made.needs}) == len(made.needs)


def test_fifty_small_lablets_on_an_empty_fleet_need_few_workers() -> None:
    crowd = [a_lablet(number, needs(cpu=0.25, memory=1)) for number in range(50)]
    made = planned(crowd, templates=DEFAULT_TEMPLATES)
    assert [need.template for need in made.needs] == ["micro"] * 50  # a micro holds one: the cheapest that fits
    roomy = planned(crowd)
    assert len(roomy.needs) == 2


def test_the_largest_lablet_selects_the_template_and_small_ones_share_the_worker() -> None:
    crowd = [a_lablet(1, needs(memory=1)), a_lablet(2, needs(cpu=1, memory=6, nodes=5)), a_lablet(3, needs(memory=1))]
    made = planned(crowd, templates=DEFAULT_TEMPLATES)
    assert [(need.template, need.key) for need in made.needs] == [
        ("large", "lablet:l-0002:0"),
        ("micro", "lablet:l-0003:0"),
    ]
    assert [[each.lablet.id for each in need.lablets] for need in made.needs] == [["l-0002", "l-0001"], ["l-0003"]]


def test_a_lablet_that_fits_on_no_machine_is_unplaceable() -> None:
    made = planned([a_lablet(1, needs(cpu=9)), a_lablet(2, needs(cpu=1))])
    [ended] = made.unplaceable
    assert ended.lablet.id == "l-0001"
    assert ended.reason == "no worker template is large enough (box: needs 9 CPU cores, but 8 are available)"
    assert len(made.needs) == 1


def test_a_lablet_waits_for_a_disabled_template_or_a_full_worker() -> None:
    big = needs(cpu=9)
    disabled = a_template("big", a_capacity(cpu=16), 2, enabled=False)
    made = planned([a_lablet(1, big)], templates=[BOX, disabled])
    assert not made.unplaceable
    assert "big: it is disabled" in waits(made)["l-0001"][1]
    full = a_ready_worker(1, capacity=a_capacity(cpu=16), allocation=Allocation(cpu_cores=10))
    assert not planned([a_lablet(1, big)], [full]).unplaceable


def test_lablets_of_different_regions_do_not_share_a_worker() -> None:
    crowd = [
        a_lablet(1, aws_region="us-east-1"),
        a_lablet(2, aws_region="eu-west-1"),
        a_lablet(3),
        a_lablet(4, aws_region="us-east-1"),
    ]
    made = planned(crowd)
    assert [(need.aws_region, [each.lablet.id for each in need.lablets]) for need in made.needs] == [
        ("us-east-1", ["l-0001", "l-0003", "l-0004"]),
        ("eu-west-1", ["l-0002"]),
    ]


# Arriving capacity


@pytest.mark.parametrize(
    "changes",
    [
        {"status": WorkerStatus.PENDING},
        {"status": WorkerStatus.PROVISIONING},
        {"status": WorkerStatus.STARTING},
        {"status": WorkerStatus.STOPPED},
        {"conditions": ()},
        {"conditions": (), "cml_version": None, "node_definitions": None},
        {
            "status": WorkerStatus.STARTING,
            "license_status": LicenseStatus.UNREGISTERED,
            "has_license_token": False,
            "cml_version": None,
        },
        {"license_status": LicenseStatus.REGISTERING},
        {"license_status": LicenseStatus.UNREGISTERED},
        {"node_definitions": None},
    ],
)
def test_a_lablet_waits_for_arriving_capacity(changes: dict[str, Any]) -> None:
    wish = needs(cml_version=">=2.7", node_definitions=("iosv",))
    made = planned([a_lablet(1, wish)], [a_ready_worker(1, **changes)])
    assert not made.needs
    assert waits(made) == {"l-0001": ("w-0001", "waiting for worker worker-1 to become ready")}


@pytest.mark.parametrize(
    "changes",
    [
        {"status": WorkerStatus.STARTING, "desired_status": DesiredStatus.STOPPED},
        {"status": WorkerStatus.DRAINING, "desired_status": DesiredStatus.STOPPED},
        {"status": WorkerStatus.FAILED},
        {"status": WorkerStatus.UNKNOWN},
        {"conditions": (STUCK,)},
        {"status": WorkerStatus.STARTING, "hold": Hold(reason="x", by="ada", since=NOW)},
        {"status": WorkerStatus.STARTING, "allocation": Allocation(cpu_cores=8)},
        {"status": WorkerStatus.STARTING, "cml_version": "2.5"},
        {"status": WorkerStatus.STARTING, "license_status": LicenseStatus.FAILED},
        {"status": WorkerStatus.STARTING, "license_status": LicenseStatus.UNREGISTERED, "has_license_token": False},
        {"license_status": LicenseStatus.UNREGISTERED, "has_license_token": False},
        {"status": WorkerStatus.STARTING, "capacity": None},
    ],
)
def test_unsuitable_arriving_workers_are_not_waited_for(changes: dict[str, Any]) -> None:
    worker = a_ready_worker(1, template_name="other", **changes)
    made = planned([a_lablet(1, needs(cml_version=">=2.7"))], [worker])
    assert len(made.needs) == 1
    [waiting] = made.needs[0].lablets
    assert waiting.rejected == 1


def test_arriving_capacity_is_used_up() -> None:
    coming = a_ready_worker(1, status=WorkerStatus.STARTING)
    made = planned([a_lablet(number, needs(cpu=4)) for number in range(1, 4)], [coming])
    assert [each.worker_id for each in made.waiting] == ["w-0001", "w-0001"]
    assert len(made.needs) == 1


def test_lablets_wait_for_their_own_scale_up_worker() -> None:
    """Otherwise each cycle would pack differently, and a lablet that fitted before might not fit again."""
    coming = [a_ready_worker(number, status=WorkerStatus.PENDING, capacity=a_capacity(cpu=4)) for number in (1, 2)]
    crowd = [a_lablet(1, needs(cpu=2), placement=own("w-0001")), a_lablet(2, needs(cpu=3), placement=own("w-0002"))]
    made = planned(crowd, coming)
    assert {key: worker for key, (worker, _) in waits(made).items()} == {"l-0001": "w-0001", "l-0002": "w-0002"}


def test_lablets_with_a_ready_scale_up_worker_go_first() -> None:
    workers = [
        a_ready_worker(1, capacity=a_capacity(cpu=4)),
        a_ready_worker(2, capacity=a_capacity(cpu=5), status=WorkerStatus.STARTING),
    ]
    crowd = [a_lablet(1, needs(cpu=4), placement=own("w-0001")), a_lablet(2, needs(cpu=4.5), placement=own("w-0002"))]
    older = a_lablet(0, needs(cpu=4))
    made = planned([older, *crowd], workers)
    assert where(made) == {"l-0001": "w-0001"}


def test_an_executed_plan_requests_nothing_more() -> None:
    """Once the requested workers are ready, the next plan places all waiting lablets, in any order of the workers."""
    crowd = [a_lablet(number, needs(cpu=1 + number % 4, memory=1 + number % 7)) for number in range(1, 40)]
    first = planned(crowd)
    coming, again = [], []
    for number, need in enumerate(first.needs):
        worker = a_ready_worker(100 - number, status=WorkerStatus.PENDING, template_name="box")
        coming.append(worker)
        again += [each.lablet.model_copy(update={"placement": own(worker.id)}) for each in need.lablets]
    second = planned(again, coming)
    assert not second.needs
    ready = [worker.model_copy(update={"status": WorkerStatus.RUNNING}) for worker in coming]
    assert len(planned(again, ready).placed) == 39


# Paused workers


def paused(number: int, **changes: Any) -> Worker:
    facts = {
        "status": WorkerStatus.STOPPED,
        "desired_status": DesiredStatus.STOPPED,
        "paused_by_policy": True,
        "conditions": (),
        "template_name": "box",
        "cost_per_hour_usd": 0.5,
    }
    return a_ready_worker(number, **{**facts, **changes})


def test_a_paused_worker_is_resumed_before_one_is_launched() -> None:
    big = a_template("big", a_capacity(cpu=16), 2)
    worker = paused(1, template_name="big", capacity=a_capacity(cpu=16), aws_region="us-east-1")
    made = planned([a_lablet(number, needs(cpu=5)) for number in (1, 2, 3, 4)], [worker], [BOX, big])
    assert [(need.template, need.aws_region, len(need.lablets)) for need in made.needs] == [
        ("big", "us-east-1", 3),
        ("box", None, 1),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"paused_by_policy": False},
        {"hold": Hold(reason="x", by="ada", since=NOW)},
        {"cml_version": "2.5"},
        {"template_name": "gone"},
        {"aws_region": "us-east-1"},
        {"capacity": a_capacity(cpu=1)},
    ],
)
def test_an_unsuitable_paused_worker_is_not_resumed(changes: dict[str, Any]) -> None:
    lablet = a_lablet(1, needs(cpu=2, cml_version=">=2.7"), aws_region="eu-west-1")
    other = a_template("other", a_capacity(), 0.4)
    made = planned([lablet], [paused(1, **changes)], [BOX, other])
    assert [need.template for need in made.needs] == ["other"]


# Reasons against another launch


def launched(number: int, **changes: Any) -> Worker:
    return a_ready_worker(number, **{"template_name": "box", "origin": WorkerOrigin.SCALE_UP, **changes})


@pytest.mark.parametrize(
    ("worker", "wish", "word"),
    [
        (launched(1, cml_version="2.5.1"), needs(cml_version=">=2.7"), "but it runs 2.5.1"),
        (launched(1, node_definitions=()), needs(node_definitions=("iosv",)), "lacks node definition iosv"),
        (
            launched(1, license_status=LicenseStatus.UNREGISTERED, has_license_token=False),
            needs(),
            "give it a license token",
        ),
        (launched(1, status=WorkerStatus.FAILED), needs(), "was launched and failed"),
    ],
)
def test_an_unsuitable_template_is_not_launched(worker: Worker, wish: LabletRequirements, word: str) -> None:
    made = planned([a_lablet(1, wish)], [worker])
    assert not made.needs
    assert not made.unplaceable
    assert word in waits(made)["l-0001"][1]


@pytest.mark.parametrize(
    ("told", "license_needed", "requested"),
    [
        ({"launches_licensed": False}, True, 0),
        ({"launches_licensed": False}, False, 1),
        ({"launches_licensed": True}, True, 1),
        ({}, True, 1),  # the control plane of the previous version does not say it
    ],
)
def test_nothing_is_launched_that_would_lack_the_license(
    told: dict[str, bool], license_needed: bool, requested: int
) -> None:
    booked = BookedCapacitySnapshot.model_validate(told)
    lablet = a_lablet(1, needs(license=license_needed))
    made = make_plan([lablet], [], [BOX], now=NOW, config=RULES, booked=booked)
    assert len(made.needs) == requested
    if not requested:
        assert "set SCALE_UP_LICENSE_TOKEN, or give a worker a license token" in waits(made)["l-0001"][1]


@pytest.mark.parametrize(
    "changes",
    [
        {"allocation": Allocation(cpu_cores=8)},
        {"status": WorkerStatus.STARTING},
        {"status": WorkerStatus.STOPPED, "desired_status": DesiredStatus.STOPPED, "paused_by_policy": True},
    ],
)
def test_a_worker_from_before_there_was_a_token_keeps_no_licensed_one_from_being_launched(
    changes: dict[str, Any],
) -> None:
    """Nor is it waited for, nor resumed."""
    old = launched(1, license_status=LicenseStatus.UNREGISTERED, has_license_token=False, **changes)
    booked = BookedCapacitySnapshot(launches_licensed=True)
    made = make_plan([a_lablet(1)], [old], [BOX], now=NOW, config=RULES, booked=booked)
    assert [need.resumes for need in made.needs] == [None]


def test_a_registration_that_failed_keeps_another_from_being_launched() -> None:
    booked = BookedCapacitySnapshot(launches_licensed=True)
    failed = launched(1, license_status=LicenseStatus.FAILED)
    made = make_plan([a_lablet(1)], [failed], [BOX], now=NOW, config=RULES, booked=booked)
    assert not made.needs
    reason = waits(made)["l-0001"][1]
    assert "the license registration of worker-1, which was launched, failed; give it a valid license token" in reason
    assert "SCALE_UP_LICENSE_TOKEN" not in reason, "it is set"


def test_a_lablet_does_not_wait_for_a_worker_that_will_have_no_license() -> None:
    """Otherwise it would take the place of one that needs none, for which another worker would be launched."""
    booked = BookedCapacitySnapshot(launches_licensed=False)
    starting = launched(
        1, status=WorkerStatus.STARTING, license_status=LicenseStatus.UNREGISTERED, has_license_token=False
    )
    licensed, free = a_lablet(1, needs(cpu=6)), a_lablet(2, needs(cpu=4, license=False))
    for workers in ([starting], []):
        made = make_plan([licensed, free], workers, [BOX], now=NOW, config=RULES, booked=booked)
        assert "it would have no license" in waits(made)["l-0001"][1]
        assert [each.lablet.id for need in made.needs for each in need.lablets] == ([] if workers else ["l-0002"])
    waiting = make_plan([licensed, free], [starting], [BOX], now=NOW, config=RULES, booked=booked)
    assert waits(waiting)["l-0002"] == ("w-0001", "waiting for worker worker-1 to become ready")


def test_another_template_is_used_if_the_cheapest_is_unsuitable() -> None:
    other = a_template("other", a_capacity(), 0.6)
    made = planned([a_lablet(1, needs(cml_version=">=2.7"))], [launched(1, cml_version="2.5.1")], [BOX, other])
    assert [need.template for need in made.needs] == ["other"]


def test_a_failed_launch_blocks_a_template_only_for_a_while() -> None:
    failed = launched(1, status=WorkerStatus.FAILED, status_since=NOW - timedelta(minutes=11))
    assert len(planned([a_lablet(1)], [failed]).needs) == 1


def test_another_template_is_used_where_no_zone_offers_the_type() -> None:
    other = a_template("other", a_capacity(), 0.6)
    not_offered = Condition(
        type=ConditionType.INSTANCE_READY, status=ConditionStatus.FALSE, reason="TypeNotOffered", since=NOW
    )
    facts: dict[str, Any] = {"conditions": (not_offered,), "instance_type": BOX.instance_type}
    failed = launched(1, status=WorkerStatus.FAILED, status_since=NOW - timedelta(minutes=1), **facts)
    made = planned([a_lablet(1)], [failed], [BOX, other])
    assert [need.template for need in made.needs] == ["other"]
    (waiting,) = planned([a_lablet(1)], [failed]).waiting
    assert f"no configured zone in eu-west-1 offers {BOX.instance_type}, as worker-1 shows" in waiting.reason
    elsewhere = planned([a_lablet(1, aws_region="us-east-1")], [failed], [BOX, other])
    assert [need.template for need in elsewhere.needs] == ["box"]
    terminated = failed.model_copy(update={"status": WorkerStatus.TERMINATED})
    assert [need.template for need in planned([a_lablet(1)], [terminated], [BOX, other]).needs] == ["box"]


# Announced maintenance


def test_a_lablet_goes_where_it_ends_before_maintenance_begins() -> None:
    def retired(number: int, hours: float) -> Worker:
        event = AnnouncedMaintenance(code="instance-stop", not_before=NOW + timedelta(hours=hours))
        return a_ready_worker(number, maintenance=event, allocation=Allocation(cpu_cores=4 - number, lablets=1))

    workers = [retired(1, 2), retired(2, 10), a_ready_worker(3)]
    lablets = [
        a_lablet(1, ends_at=NOW + timedelta(hours=1)),
        a_lablet(2, ends_at=NOW + timedelta(hours=5)),
        a_lablet(3, ends_at=NOW + timedelta(hours=11)),
        a_lablet(4),
    ]
    made = planned(lablets, workers)
    assert where(made) == {"l-0001": "w-0001", "l-0002": "w-0002", "l-0003": "w-0003", "l-0004": "w-0003"}
    endless = next(each for each in made.placed if each.lablet.id == "l-0004")
    assert {each.worker_id for each in endless.rejections} == {"w-0001", "w-0002"}
    assert all(each.reason.endswith("and the lablet has no end") for each in endless.rejections)


def test_nothing_waits_for_a_running_worker_that_ends_too_early() -> None:
    event = AnnouncedMaintenance(code="instance-stop", not_before=NOW + timedelta(hours=2))
    booting = a_ready_worker(1, conditions=(), maintenance=event)
    assert [need.template for need in planned([a_lablet(1)], [booting]).needs] == ["box"]
    moving = a_ready_worker(1, conditions=(), maintenance=event, status=WorkerStatus.STARTING)
    assert waits(planned([a_lablet(1)], [moving]))["l-0001"][0] == "w-0001", "its start moves it to another host"


# Workers that have waited for too long


def overdue(number: int, reason: str = "CapacityLacking", **changes: Any) -> Worker:
    """A worker that has waited longer than CAPACITY_WAIT_LIMIT."""
    true: dict[str, Any] = {"status": ConditionStatus.TRUE, "since": NOW - timedelta(hours=1)}
    conditions = (
        Condition(type=ConditionType.WAITING, reason=reason, message="EC2 has none", **true),
        Condition(type=ConditionType.STUCK, reason="StillWaiting", **true),
    )
    return launched(number, **{"status": WorkerStatus.PENDING, "conditions": conditions, **changes})


def test_another_template_is_used_if_one_has_no_capacity() -> None:
    other = a_template("other", a_capacity(), 0.6)
    made = planned([a_lablet(1)], [overdue(1)], [BOX, other])
    assert [need.template for need in made.needs] == ["other"]


def test_capacity_that_lacks_in_another_region_does_not_matter() -> None:
    made = planned([a_lablet(1, aws_region="eu-west-1")], [overdue(1, aws_region="us-east-1")])
    assert [need.template for need in made.needs] == ["box"]


@pytest.mark.parametrize("reason", ["CapacityLacking", "NotAuthenticated", "NotObserved"])
def test_without_another_template_lablets_say_why_they_wait(reason: str) -> None:
    made = planned([a_lablet(1)], [overdue(1, reason)])
    assert not made.needs
    worker_id, text = waits(made)["l-0001"]
    assert worker_id is None
    assert "another worker would wait as well: template box: worker-1 has waited in eu-west-1 since" in text
    assert "EC2 has none" in text


@pytest.mark.parametrize(("reason", "templates"), [("CapacityLacking", ["other"]), ("NotAuthenticated", [])])
def test_only_missing_capacity_concerns_one_template_alone(reason: str, templates: list[str]) -> None:
    other = a_template("other", a_capacity(), 0.6)
    made = planned([a_lablet(1)], [overdue(1, reason)], [BOX, other])
    assert [need.template for need in made.needs] == templates


def test_no_more_paused_workers_are_resumed_without_capacity() -> None:
    other = a_template("other", a_capacity(), 0.6)
    stuck = overdue(1, status=WorkerStatus.STOPPED)
    made = planned([a_lablet(1)], [stuck, paused(2, template_name="box")], [BOX, other])
    assert [need.template for need in made.needs] == ["other"]


def test_a_license_that_does_not_come_is_not_waited_for_and_not_tried_with_more_workers() -> None:
    registering = {"status": WorkerStatus.RUNNING, "license_status": LicenseStatus.REGISTERING}
    worker = overdue(1, "LicensePending", **registering)
    worker = worker.model_copy(update={"conditions": (CML_READY, *worker.conditions)})
    made = planned([a_lablet(1), a_lablet(2, needs(license=False))], [worker])
    assert not made.needs
    assert where(made) == {"l-0002": "w-0001"}
    assert "worker-1 has waited for its license since" in waits(made)["l-0001"][1]


# Keys of needs, times


def test_a_need_keeps_its_key_until_a_worker_was_launched() -> None:
    lablet = a_lablet(7)
    assert capacity_need_key(lablet) == "lablet:l-0007:0"
    assert capacity_need_key(lablet.model_copy(update={"version": 9})) == "lablet:l-0007:0"
    assert capacity_need_key(lablet.model_copy(update={"placement_attempt": 2})) == "lablet:l-0007:2"
    assert capacity_need_key(lablet.model_copy(update={"placement": own("w-1")})) == "lablet:l-0007:0:w-1"


def test_future_lablets_wait_and_expired_ones_end() -> None:
    later = a_lablet(1, starts_at=NOW + timedelta(seconds=901), ends_at=NOW + timedelta(hours=9))
    soon = a_lablet(2, starts_at=NOW + timedelta(seconds=900))
    over = a_lablet(3, ends_at=NOW)
    made = planned([later, soon, over], [a_ready_worker()])
    assert where(made) == {"l-0002": "w-0001"}
    assert [each.lablet.id for each in made.expired] == ["l-0003"]
    assert "begins at 2026-01-17 10:30 UTC" in waits(made)["l-0001"][1]
    assert made.next_check_in == 1.0
    rushed = planned([later], [a_ready_worker()], config=replace(RULES, lead_time=3600))
    assert where(rushed) == {"l-0001": "w-0001"}


def test_each_worker_is_checked_once_per_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = 0
    real = placement.rejection_reason

    def counting(*args: Any, **options: Any) -> str | None:
        nonlocal checks
        checks += 1
        return real(*args, **options)

    monkeypatch.setattr("lcm.model.lablet.scheduling.capacity.rejection_reason", counting)
    workers = [a_ready_worker(number) for number in range(2000)]
    crowd = [a_lablet(number, needs(cpu=1 + number % 3)) for number in range(500)]
    made = planned(crowd, workers)
    assert len(made.placed) == 500
    assert checks == 3 * 2000


# Records that cannot be planned


def test_a_lablet_that_cannot_be_planned_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = placement.check_ports

    def failing(taken: Allocation, requirements: LabletRequirements, ports: PortRange) -> str | None:
        if requirements.nodes == 13:
            raise ZeroDivisionError("division by zero")
        return real(taken, requirements, ports)

    monkeypatch.setattr("lcm.model.lablet.scheduling.capacity.check_ports", failing)
    made = planned([a_lablet(1), a_lablet(2, needs(nodes=13)), a_lablet(3)], [a_ready_worker()])
    assert set(where(made)) == {"l-0001", "l-0003"}
    [skipped] = made.skipped
    assert (skipped.kind, skipped.id) == ("lablet", "l-0002")
    assert "ZeroDivisionError: division by zero" in skipped.reason
    assert waits(made)["l-0002"] == (None, skipped.reason)


def test_a_need_names_the_paused_worker_or_avoids_those_that_do_not_fit() -> None:
    paused = {"status": WorkerStatus.STOPPED, "desired_status": DesiredStatus.STOPPED, "paused_by_policy": True}
    facts = {**paused, "template_name": "box", "conditions": ()}
    fits, old = a_ready_worker(2, **facts), a_ready_worker(1, **facts, cml_version="2.4.0")
    [need] = planned([a_lablet(1, needs(cml_version=">=2.6"))], [old, fits]).needs
    assert (need.resumes, need.avoids_paused) == ("w-0002", False)
    # The newest known version of a template is that of the next worker, so another one shows that a new worker fits.
    newer = a_ready_worker(3, template_name="box", cml_version="2.7.0", allocation=Allocation(cpu_cores=8))
    [need] = planned([a_lablet(1, needs(cml_version=">=2.6"))], [old, newer]).needs
    assert (need.resumes, need.avoids_paused) == (None, True)


# KVM

NO_KVM = Condition(type=ConditionType.NO_KVM, status=ConditionStatus.TRUE, since=NOW)
NESTED = a_template("nested", a_capacity(), 0.4, instance_type="m8i.2xlarge", nested_virtualization=True)
METAL = a_template("metal", a_capacity(), 3.9, instance_type="m5zn.metal")


def without_kvm(**changes: Any) -> Worker:
    facts: dict[str, Any] = {
        "template_name": "nested",
        "instance_type": "m8i.2xlarge",
        "nested_virtualization": True,
        "requires_kvm": True,
        "conditions": (CML_READY, NO_KVM),
        "origin": WorkerOrigin.SCALE_UP,
    }
    return a_ready_worker(**{**facts, **changes})


def test_a_worker_without_the_kvm_that_it_requires_takes_no_lablets() -> None:
    made = planned([a_lablet()], [without_kvm()], templates=[NESTED])
    assert not made.placed
    ((waiting,), needs_more) = (made.waiting, made.needs)
    assert [each.reason for each in waiting.rejections] == ["it is running, but its CML has no KVM"]
    assert "template nested: worker-1 was launched from it, and its CML has no KVM" in waiting.reason
    assert "terminate worker-1" in waiting.reason
    assert not needs_more


def test_scale_up_skips_a_template_whose_worker_has_no_kvm() -> None:
    assert [need.template for need in planned([a_lablet()], templates=[NESTED, METAL]).needs] == ["nested"]
    made = planned([a_lablet()], [without_kvm()], templates=[NESTED, METAL])
    assert [need.template for need in made.needs] == ["metal"]


@pytest.mark.parametrize(
    "change",
    [
        {"instance_type": "m8i.4xlarge"},
        {"nested_virtualization": False},
        {"ami_name_pattern": "cml-2.10-*"},
        {"requires_kvm": False},
    ],
)
def test_a_changed_template_is_tried_again(change: dict[str, Any]) -> None:
    changed = NESTED.model_copy(update=change)
    made = planned([a_lablet()], [without_kvm()], templates=[changed, METAL])
    assert [need.template for need in made.needs] == ["nested"]


def test_a_paused_worker_without_kvm_is_neither_resumed_nor_forgotten() -> None:
    paused = without_kvm(status=WorkerStatus.STOPPED, desired_status=DesiredStatus.STOPPED, paused_by_policy=True)
    made = planned([a_lablet()], [paused], templates=[NESTED, METAL])
    assert [(need.template, need.resumes) for need in made.needs] == [("metal", None)]


def test_without_kvm_where_it_is_not_required_lablets_are_placed() -> None:
    worker = without_kvm(requires_kvm=False)
    assert where(planned([a_lablet()], [worker], templates=[NESTED])) == {"l-0001": worker.id}


# Schedules


def office(window: str, **selector: Any) -> Schedule:
    return Schedule(
        id="s-1",
        name="office",
        zone="UTC",
        windows=(window,),
        selector=WorkerSelector(**selector),
        created_at=NOW,
        updated_at=NOW,
    )


CLOSED_NOW = f"{(NOW + timedelta(days=2)):%a} 08:00-18:00".lower()


@pytest.mark.parametrize("status", ["RUNNING", "STARTING", "STOPPED"])
def test_a_worker_outside_its_windows_is_neither_used_nor_waited_for_nor_resumed(status: str) -> None:
    """calendar.md#schedules: others are, and a template that is closed launches none."""
    stopped: dict[str, Any] = {"desired_status": "STOPPED", "paused_by_policy": True} if status == "STOPPED" else {}
    worker = a_ready_worker(1, status=status, **stopped)
    lablet = a_lablet(1)
    closed = (office(CLOSED_NOW, names=(worker.name,)),)
    assert where(planned([lablet], [worker])) or waits(planned([lablet], [worker])), "it would be"
    (need,) = make_plan([lablet], [worker], (BOX,), now=NOW, config=RULES, schedules=closed).needs
    assert (need.resumes, need.template) == (None, "box")
    every = (office(CLOSED_NOW, templates=("box", worker.template_name or "")),)
    made = make_plan([lablet], [worker], (BOX,), now=NOW, config=RULES, schedules=every)
    assert (made.needs, made.unplaceable) == ([], [])
    (waiting,) = made.waiting
    assert "template box: schedule office is closed" in waiting.reason
    assert "schedule office is closed" in waiting.rejections[0].reason or status != "RUNNING"
    opens = make_plan([lablet], [worker], (BOX,), now=NOW, config=RULES, schedules=every).next_check_in
    assert opens is not None
    assert opens <= timedelta(days=2).total_seconds(), "the next cycle is at the boundary at the latest"
