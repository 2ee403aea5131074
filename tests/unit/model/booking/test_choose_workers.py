"""Which workers a class gets: those on which its seats can be placed (calendar.md#carrying-out)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.model.booking.capacity import live_worker
from lcm.model.booking.licenses import LicenseRoom, license_room
from lcm.model.booking.progress import ChoiceLimits, WorkerChoice, choose_workers, gets_token
from lcm.model.booking.record import Booking, BookingOccurrence
from lcm.model.calendar.zones import WallTime
from lcm.model.lablet.record import LabletRequirements
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.maintenance import AnnouncedMaintenance
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerOrigin, WorkerStatus
from lcm.model.worker.template import Allocation, Capacity, WorkerTemplate
from tests.support.records.lablet_records import a_ready_worker
from tests.support.records.workers import NOW

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

ENDS = NOW + timedelta(hours=2)
MANY = ChoiceLimits(max_workers=10, at_once=10)
SMALL = Capacity(cpu_cores=2, memory_gb=4, storage_gb=100, max_nodes=15)
UNLICENSED = LicenseStatus.UNREGISTERED


def a_booking(workers: int = 1, *, licensed: bool = False, team: str = "") -> Booking:
    needs = LabletRequirements(cpu_cores=1, memory_gb=1, storage_gb=5, license=licensed)
    return Booking(
        id="bk-1",
        name="class",
        team=team,
        aws_region="eu-west-1",
        definition="lab@1",
        requirements=needs,
        seats=workers,
        template="small",
        seats_per_worker=2,
        workers=workers,
        zone="UTC",
        duration_minutes=60,
        occurrences=(),
        created_by="anna",
        created_at=NOW,
        updated_at=NOW,
    )


def ready(name: str, **facts: Any) -> Worker:
    return a_ready_worker(id=f"w-{name}", name=name, instance_id=f"i-{name}", template_name="small", **facts)


def stuck() -> tuple[Condition, ...]:
    message = "CML has not been ready for 30 minutes"
    return (
        Condition(type=ConditionType.CML_READY, status=ConditionStatus.FALSE, reason="Booting", since=NOW),
        Condition(
            type=ConditionType.STUCK, status=ConditionStatus.TRUE, reason="CmlNotReady", message=message, since=NOW
        ),
    )


def impaired() -> tuple[Condition, ...]:
    return (Condition(type=ConditionType.IMPAIRED, status=ConditionStatus.TRUE, reason="Ec2", since=NOW),)


def choose(booking: Booking, *workers: Worker, limits: ChoiceLimits = MANY) -> WorkerChoice:
    return choose_workers(booking, workers, {}, limits=limits, until=ENDS, now=NOW)


def names(choice: WorkerChoice) -> list[str]:
    return [worker.name for worker in choice.booked]


RETIREMENT = AnnouncedMaintenance(code="instance-retirement", not_before=ENDS - timedelta(minutes=30))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"team": "team-other"}, None),
        ({"status": "TERMINATING"}, None),  # terminated outside LCM: desired is RUNNING
        ({"conditions": stuck()}, "CML has not been ready for 30 minutes"),
        ({"cml_version": "2.4.0"}, "2.4.0"),
        ({"capacity": Capacity(cpu_cores=1, memory_gb=4, storage_gb=100, max_nodes=15)}, "holds 1 of 2 seats"),
        ({"maintenance": RETIREMENT}, "maintenance of its instance may begin"),
    ],
)
def test_a_worker_on_which_no_seat_would_be_placed_is_not_taken(facts: dict[str, Any], words: str | None) -> None:
    booking = a_booking()
    needs = booking.requirements.model_copy(update={"cml_version": ">=2.8"})
    booking = booking.model_copy(update={"requirements": needs})
    useless, good = ready("alpha", **facts), ready("beta", created_at=NOW + timedelta(minutes=1))
    assert names(choose(booking, useless, good)) == ["beta"]
    alone = choose(booking, useless)
    assert (names(alone), alone.launch) == ([], 1)
    full = choose(booking, useless, limits=ChoiceLimits(max_workers=1, at_once=10))
    assert (names(full), full.launch) == ([], 0)
    if words is not None:
        assert words in "; ".join(full.problems)


def test_a_worker_that_is_terminated_outside_serves_no_class() -> None:
    template = WorkerTemplate(name="small", instance_type="t3.small", capacity=SMALL, cost_per_hour_usd=0.1)
    lost = ready("alpha", capacity=SMALL, status="TERMINATING", booking_id="bk-1", booked_until=ENDS)
    assert live_worker(lost, (), {"small": template}, NOW).free_from is None
    choice = choose(a_booking(), lost)
    assert (choice.launch, choice.problems) == (1, ("alpha is being terminated",))


def test_workers_of_the_team_are_taken_first() -> None:
    """Others may serve any class, and admission counts on it."""
    shared, own = ready("alpha"), ready("beta", team="team-1", desired_status=DesiredStatus.STOPPED)
    assert names(choose(a_booking(team="team-1"), shared, own)) == ["beta"]
    assert names(choose(a_booking(), shared, own)) == ["alpha"]


def test_a_class_that_needs_licenses_takes_workers_that_have_one() -> None:
    without, licensed = ready("alpha", license_status=UNLICENSED), ready("beta", has_license_token=True)
    launches_licensed = ChoiceLimits(max_workers=10, at_once=10, launches_licensed=True)
    booking = a_booking(2, licensed=True)
    choice = choose(booking, without, licensed, limits=launches_licensed)
    assert (names(choice), choice.launch) == (["beta"], 1)
    choice = choose(booking, without, licensed)
    assert (names(choice), choice.launch) == (["beta", "alpha"], 0), "a new one would have none either"


def test_a_class_without_licenses_leaves_them_to_others_if_they_are_limited() -> None:
    without = ready("beta", license_status=UNLICENSED, created_at=NOW + timedelta(minutes=1))
    licensed = ready("alpha", license_status=LicenseStatus.REGISTERED)
    assert names(choose(a_booking(), licensed, without)) == ["alpha"]
    limited = ChoiceLimits(max_workers=10, at_once=10, licenses=LicenseRoom(0))
    assert names(choose(a_booking(), licensed, without, limits=limited)) == ["beta"]


def test_a_stopped_worker_that_would_take_a_license_is_the_last_choice_of_a_class_without() -> None:
    gave_back = LicenseStatus.DEREGISTERED
    stopped = {"status": WorkerStatus.STOPPED, "desired_status": DesiredStatus.STOPPED}
    registers = ready("alpha", has_license_token=True, license_status=gave_back, **stopped)
    plain = ready("beta", license_status=UNLICENSED, created_at=NOW + timedelta(minutes=1), **stopped)
    none_left = replace(MANY, licenses=LicenseRoom(0))
    assert names(choose(a_booking(), registers, plain, limits=none_left)) == ["beta"]
    alone = choose(a_booking(), registers, limits=none_left)
    assert (names(alone), alone.launch) == ([], 1), "one that is launched takes none"
    assert names(choose(a_booking(), registers, limits=replace(MANY, licenses=LicenseRoom(1)))) == ["alpha"]
    full = choose(a_booking(), registers, limits=replace(none_left, max_workers=1))
    assert full.problems[0] == "alpha: the license that it has or would take is needed elsewhere"


def test_a_worker_that_only_the_limit_of_a_step_leaves_out_is_no_problem() -> None:
    """The next step takes it; before, it was said to lack a license even without a pool, and the region to be full."""
    workers = [ready(name, license_status=UNLICENSED) for name in ("alpha", "beta", "gamma")]
    for licenses in (None, LicenseRoom(0)):
        step = choose(a_booking(3), *workers, limits=ChoiceLimits(max_workers=3, at_once=2, licenses=licenses))
        assert (names(step), step.launch, step.problems) == (["alpha", "beta"], 0, ())
    held = ready("alpha", license_status=LicenseStatus.REGISTERED)
    pool = ChoiceLimits(max_workers=3, at_once=3, licenses=LicenseRoom(0, reserved=1))
    last = choose(a_booking(3), held, *workers[1:], limits=pool)
    assert names(last) == ["beta", "gamma"]
    assert [each for each in last.problems if "license" in each] == [
        "alpha: the license that it has or would take is needed elsewhere"
    ]


def test_registered_workers_are_left_to_classes_that_need_them() -> None:
    licensed = ready("alpha", license_status=LicenseStatus.REGISTERED)
    reserved = choose(a_booking(), licensed, limits=replace(MANY, licenses=LicenseRoom(0, reserved=1)))
    assert (names(reserved), reserved.launch) == ([], 1)


def test_a_class_launches_no_more_licensed_workers_than_the_pool_allows() -> None:
    """The pool was made smaller, or others registered meanwhile."""
    limits = replace(MANY, licenses=LicenseRoom(1), launches_licensed=True)
    choice = choose(a_booking(3, licensed=True), limits=limits)
    assert choice.launch == 1
    assert choice.problems == ("3 workers would need a license, and LICENSE_POOL_SIZE leaves 1",)


def test_a_worker_that_was_launched_without_a_license_serves_a_class_that_needs_one() -> None:
    left = ready("alpha", license_status=UNLICENSED, origin=WorkerOrigin.SCALE_UP)
    launches_licensed = replace(MANY, launches_licensed=True, licenses=LicenseRoom(1))
    booking = a_booking(licensed=True)
    assert names(choose(booking, left, limits=launches_licensed)) == ["alpha"]
    assert gets_token(left, booking)
    assert not gets_token(left, a_booking())


def test_licenses_are_left_to_classes_that_begin_before_the_end() -> None:
    begins = NOW + timedelta(hours=1)
    start = WallTime(at=begins.replace(tzinfo=None), zone="UTC")
    part = BookingOccurrence(number=1, start=start, warm_up_at=begins, starts_at=begins, ends_at=ENDS)
    exam = a_booking(2, licensed=True).model_copy(update={"id": "bk-2", "occurrences": (part,)})
    licensed = ready("alpha", license_status=LicenseStatus.REGISTERED)
    assert license_room(3, a_booking(), [licensed], [exam], ENDS, NOW) == LicenseRoom(1, 2)
    assert license_room(3, a_booking(), [licensed], [exam], begins, NOW) == LicenseRoom(2, 0), "it begins later"
    served = licensed.model_copy(update={"booking_id": "bk-2", "booked_until": ENDS})
    assert license_room(3, a_booking(), [served], [exam], ENDS, NOW) == LicenseRoom(1, 1)
    assert license_room(3, exam, [licensed], [], ENDS, NOW) == LicenseRoom(2)


def test_a_booked_worker_whose_cml_never_becomes_ready_is_replaced_unless_seats_are_on_it() -> None:
    mine = {"booking_id": "bk-1", "booked_until": ENDS, "conditions": stuck()}
    choice = choose(a_booking(), ready("alpha", **mine))
    assert (choice.serving, choice.launch) == ((), 1)
    assert choice.problems == ("alpha is stuck: CML has not been ready for 30 minutes",)
    used = ready("alpha", **mine, allocation=Allocation(lablets=1))
    assert choose(a_booking(), used).serving == (used,)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"conditions": impaired()}, "alpha cannot be used: EC2 reports its instance as impaired"),
        ({"maintenance": RETIREMENT}, "alpha cannot be used: maintenance of its instance may begin at"),
    ],
)
def test_a_booked_worker_on_which_no_seat_would_be_placed_is_replaced_unless_seats_are_on_it(
    facts: dict[str, Any], words: str
) -> None:
    """A booking blocks the restart that would move it to another host."""
    mine = {"booking_id": "bk-1", "booked_until": ENDS, **facts}
    choice = choose(a_booking(), ready("alpha", **mine))
    assert (choice.serving, choice.launch) == ((), 1)
    assert choice.problems[0].startswith(words)
    used = ready("alpha", **mine, allocation=Allocation(lablets=1))
    assert choose(a_booking(), used).serving == (used,)


def test_only_the_newest_launch_that_failed_delays_another_one() -> None:
    """As for lablets: a person's worker, or a launch before one that succeeded, says nothing about the next one."""
    begun = {"status": WorkerStatus.FAILED, "status_since": NOW}
    by_hand = ready("alpha", **begun)
    assert choose(a_booking(), by_hand).launch == 1
    launched = ready("beta", **begun, origin=WorkerOrigin.SCALE_UP, created_at=NOW - timedelta(minutes=20))
    delayed = choose(a_booking(), by_hand, launched)
    assert delayed.launch == 0
    assert delayed.problems == ("worker beta of template small was launched and failed; see its history",)
    newer = ready("gamma", origin=WorkerOrigin.SCALE_UP, created_at=NOW - timedelta(minutes=19), booking_id="bk-2")
    newer = newer.model_copy(update={"booked_until": ENDS})
    assert choose(a_booking(), launched, newer).launch == 1


def test_a_stopped_worker_that_was_stuck_may_be_started_again() -> None:
    stopped = ready("alpha", status=WorkerStatus.STOPPED, desired_status=DesiredStatus.STOPPED, conditions=stuck())
    assert names(choose(a_booking(), stopped)) == ["alpha"]
