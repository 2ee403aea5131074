"""Batches of reservations: each placement once, and no worker in two batches."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from lcm.controllers.scheduler.placement_status import reservation_batches
from lcm.model.lablet.record import MAX_PLACEMENTS
from lcm.model.lablet.scheduling.planner import PlannedPlacement
from tests.support.records.placement import a_lablet

SIZE = 10


def placed(worker_ids: list[int]) -> list[PlannedPlacement]:
    lablet = a_lablet()
    return [PlannedPlacement(lablet, f"w-{number}", 0.0, str(place), (), 0) for place, number in enumerate(worker_ids)]


@given(st.lists(st.integers(0, 8), max_size=60))
def test_each_placement_is_sent_once_and_each_worker_is_in_one_batch(worker_ids: list[int]) -> None:
    placements = placed(worker_ids)
    batches = reservation_batches(placements, SIZE)
    assert sorted(each.reason for each in chain.from_iterable(batches)) == sorted(each.reason for each in placements)
    workers = [{each.worker_id for each in batch} for batch in batches]
    assert sum(len(group) for group in workers) == len(set(worker_ids))
    assert all(len(batch) <= SIZE or len(group) == 1 for batch, group in zip(batches, workers, strict=True))


def test_placements_on_a_worker_keep_their_order() -> None:
    [batch] = reservation_batches(placed([2, 1, 2, 1, 2]), SIZE)
    assert [each.reason for each in batch] == ["0", "2", "4", "1", "3"]


def test_small_workers_share_a_batch() -> None:
    assert [len(batch) for batch in reservation_batches(placed([number // 4 for number in range(40)]), SIZE)] == [8] * 5


def test_no_batch_exceeds_the_limit_of_the_control_plane() -> None:
    assert [len(batch) for batch in reservation_batches(placed([1] * (MAX_PLACEMENTS + 1)), SIZE)] == [
        MAX_PLACEMENTS,
        1,
    ]
