"""Until when walk-ins may use workers, compared with admission: a class that fits before fits afterwards."""

from __future__ import annotations

import random
from dataclasses import replace

from lcm.model.calendar.admission import BookedCapacity, LiveWorker, Resource
from lcm.model.calendar.walk_ins import BookedCapacitySnapshot, WalkInRoom, describe_booked
from lcm.model.lablet.placement import FOREVER
from tests.unit.model.calendar.test_admission import TEMPLATES, at, booking, launches
from tests.unit.model.calendar.test_admission_sets import a_booking, a_worker

NOW = at(0)


def workers_needed(snapshot: BookedCapacitySnapshot, workers: dict[str, LiveWorker], region: str, hour: int) -> int:
    """The rule of calendar.md#admission, counted anew for one instant."""
    here = [each for each in workers.values() if each.region == region]
    now = [each for each in snapshot.booked if each.region == region and each.start <= at(hour) < each.end]
    usable = [each for each in here if each.free_from is not None and each.free_from <= at(hour)]
    return len(here) + sum(
        launches([each for each in now if each.template == name], [each for each in usable if each.template == name])
        for name in TEMPLATES
    )


def first_lack(
    snapshot: BookedCapacitySnapshot, before: dict[str, LiveWorker], after: dict[str, LiveWorker], region: str
) -> int | None:
    """The first hour of which a class needs more than there may be, and more than before."""
    last = max((each.end for each in snapshot.booked if each.region == region), default=NOW)
    for hour in range(70):
        if at(hour) < last:
            was, will_be = (workers_needed(snapshot, each, region, hour) for each in (before, after))
            if will_be > max(was, snapshot.max_workers_per_region):
                return hour
    return None


def a_snapshot(chance: random.Random) -> BookedCapacitySnapshot:
    booked: list[BookedCapacity] = [a_booking(chance) for _ in range(chance.randrange(6))]
    workers = {f"w-{number}": a_worker(chance) for number in range(chance.randint(1, 6))}
    return BookedCapacitySnapshot(
        booked=tuple(booked), workers=workers, max_workers_per_region=chance.randint(1, 9), default_region="nowhere"
    )


def test_a_walk_in_may_stay_until_a_class_would_lack_its_worker(booking_sets: int) -> None:
    limited = 0
    for seed in range(booking_sets):
        chance = random.Random(seed)
        snapshot = a_snapshot(chance)
        workers, room = dict(snapshot.workers), WalkInRoom(snapshot, NOW)
        for _ in range(4):
            worker_id = chance.choice(sorted(workers))
            worker, end = workers[worker_id], chance.choice((at(chance.randrange(60)), FOREVER))
            free_from = worker.free_from
            used = worker if free_from is None else replace(worker, free_from=max(free_from, NOW, end))
            after = {**workers, worker_id: used}
            lack = first_lack(snapshot, workers, after, worker.region)
            found = room.shortage_on(worker_id, end)
            assert (None if found is None else found.at) == (None if lack is None else at(lack)), (seed, worker_id)
            limited += lack is not None
            if lack is None:
                room.use(worker_id, end)
                workers = after
    assert limited > booking_sets / 50, "the rule is tried"


def test_a_launch_leaves_room_for_classes(booking_sets: int) -> None:
    for seed in range(booking_sets):
        chance = random.Random(seed)
        snapshot, asked = a_snapshot(chance), a_worker(chance)
        room, end = WalkInRoom(snapshot, NOW), chance.choice((at(chance.randrange(60)), FOREVER))
        present = sum(each.region == asked.region for each in snapshot.workers.values())
        found = room.launch_shortage(asked.region, asked.template, end)
        if present >= snapshot.max_workers_per_region:
            assert found is None, "another reason keeps it from being launched"
            continue
        after = {**snapshot.workers, "new": replace(asked, free_from=max(end, NOW), team="")}
        lack = first_lack(snapshot, dict(snapshot.workers), after, asked.region)
        assert (None if found is None else found.at) == (None if lack is None else at(lack)), seed


def test_the_reason_names_the_limit() -> None:
    snapshot = BookedCapacitySnapshot(
        booked=(booking(2, 4, 1),), workers={"w-1": LiveWorker("eu-west-1", "metal", NOW)}, max_workers_per_region=1
    )
    shortage = WalkInRoom(snapshot, NOW).shortage_on("w-1", FOREVER)
    assert shortage is not None
    assert describe_booked(shortage).endswith("2 would be needed then, and MAX_WORKERS_PER_REGION is 1")


def a_pool(licenses: int, *workers: LiveWorker) -> BookedCapacitySnapshot:
    """A class in the other region needs two licenses; workers that are launched get one each."""
    return BookedCapacitySnapshot(
        booked=(booking(2, 4, 2, region="us-east-1", licensed=True),),
        workers={f"w-{number}": each for number, each in enumerate(workers)},
        max_workers_per_region=9,
        license_pool=licenses,
        launches_licensed=True,
    )


def test_a_launch_leaves_the_licenses_of_classes_in_all_regions() -> None:
    room = WalkInRoom(a_pool(3), NOW)
    assert room.launch_shortage("eu-west-1", "large", at(1)) is None
    room.launch("new", "eu-west-1", "large", at(1))
    shortage = room.launch_shortage("eu-west-1", "large", at(1))
    assert shortage is not None, "it keeps its license when nobody uses it"
    assert (shortage.resource, shortage.at, shortage.needed) == (Resource.LICENSES, at(2), 4)


def test_a_stopped_worker_that_would_take_the_license_of_a_class_is_not_started() -> None:
    paused = LiveWorker("eu-west-1", "large", NOW, registers=True)
    room = WalkInRoom(a_pool(3, paused, paused), NOW)
    assert room.shortage_on("w-0", at(1)) is None
    room.use("w-0", at(1))
    shortage = room.shortage_on("w-1", at(1))
    assert shortage is not None
    assert shortage.resource is Resource.LICENSES
    assert room.shortage_on("w-0", at(1)) is None, "it has its license"
