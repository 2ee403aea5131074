"""Counts and sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.store.port import Where
from tests.support.records.store_documents import NOTES, WORKERS, note, worker

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store


async def test_counts_and_sums_per_combination_in_order(store: Store) -> None:
    await store.commit(
        [
            worker("a", status="up", region="eu", cost=1.5),
            worker("b", status="up", region="eu", cost=2),
            worker("c", status="up", region="us", cost=4),
            worker("d", status="down", region=None, cost=None),
            worker("e", status="down", region="eu", cost="8"),
            worker("f", status=True, region=1, cost=True),
        ]
    )
    assert list(await store.count_by(WORKERS, ["status", "region"], sums=["cost"])) == [
        (("down", None), 1, (0.0,)),
        (("down", "eu"), 1, (0.0,)),
        (("up", "eu"), 2, (3.5,)),
        (("up", "us"), 1, (4.0,)),
        ((True, 1), 1, (0.0,)),
    ]
    assert list(await store.count_by(WORKERS, ["region", "status"], Where(any_of={"status": ["up"]}))) == [
        (("eu", "up"), 2, ()),
        (("us", "up"), 1, ()),
    ]


async def test_values_keep_their_types(store: Store) -> None:
    await store.commit([worker(str(n), held=value) for n, value in enumerate([None, 0, False, "", "0", True, 1, 2.5])])
    found = [values[0] for values, _, _ in await store.count_by(WORKERS, ["held"])]
    assert [(type(value), value) for value in found] == [
        (type(value), value) for value in (None, 0, 1, 2.5, "", "0", False, True)
    ]


async def test_several_sums_and_no_fields(store: Store) -> None:
    await store.commit([worker("a", cost=1, held=10), worker("b", cost=2, held=20)])
    assert list(await store.count_by(WORKERS, [], sums=["cost", "held"])) == [((), 2, (3.0, 30.0))]
    assert list(await store.count_by(WORKERS, ["cost"], sums=["cost"])) == [((1,), 1, (1.0,)), ((2,), 1, (2.0,))]


async def test_nothing_to_count(store: Store) -> None:
    await store.commit([note("a")])
    assert list(await store.count_by(WORKERS, ["status"])) == []
    assert list(await store.count_by(WORKERS, [], sums=["cost"])) == []
    assert list(await store.count_by(NOTES, [])) == [((), 1, ())]
