"""Series: samples in order of time, downsampled as they age."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.support.records.store_documents import START, sample

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store


async def seconds(store: Store, subject: str = "w", since: float = -1e6, series: str = "metrics") -> list[float]:
    rows = await store.read_samples(series, subject, since=START + timedelta(seconds=since))
    return [(row.at - START).total_seconds() for row in rows]


async def test_samples_are_returned_oldest_first(store: Store) -> None:
    await store.append_samples("metrics", [sample("w", 30, "c"), sample("w", 10, "a"), sample("v", 15)])
    await store.append_samples("metrics", [sample("w", 20.000001, "b")])
    await store.append_samples("other", [sample("w", 12)])
    rows = await store.read_samples("metrics", "w", since=START)
    assert list(rows) == [sample("w", 10, "a"), sample("w", 20.000001, "b"), sample("w", 30, "c")]
    assert await seconds(store, since=20.000001) == [20.000001, 30]
    assert await seconds(store, "nobody") == []
    assert len(await store.read_samples("metrics", "w", since=START, limit=2)) == 2


async def test_samples_of_the_same_time_are_all_kept_in_order(store: Store) -> None:
    await store.append_samples("metrics", [sample("w", 1, number) for number in range(5)])
    rows = await store.read_samples("metrics", "w", since=START)
    assert [row.body for row in rows] == [b"0", b"1", b"2", b"3", b"4"]


async def test_nothing_to_append(store: Store) -> None:
    await store.append_samples("metrics", [])
    assert await seconds(store) == []


async def test_downsampling_keeps_the_first_of_each_interval_and_subject(store: Store) -> None:
    rows = [sample(subject, second) for subject in ("w", "v") for second in range(0, 180, 15)]
    await store.append_samples("metrics", rows)
    await store.append_samples("other", rows)
    dropped = await store.downsample("metrics", before=START + timedelta(seconds=120), keep_every_seconds=60)
    assert dropped == 12
    for subject in ("w", "v"):
        assert await seconds(store, subject) == [0, 60, 120, 135, 150, 165]
    assert len(await seconds(store, series="other")) == 12
    assert await store.downsample("metrics", before=START + timedelta(seconds=120), keep_every_seconds=60) == 0


async def test_downsampling_with_interval_zero_drops_all(store: Store) -> None:
    await store.append_samples("metrics", [sample("w", second) for second in range(10)])
    assert await store.downsample("metrics", before=START + timedelta(seconds=7), keep_every_seconds=0) == 7
    assert await seconds(store) == [7, 8, 9]
    with pytest.raises(ValueError, match="interval"):
        await store.downsample("metrics", before=START, keep_every_seconds=-1)


async def test_downsampling_goes_through_many_batches(store: Store) -> None:
    rows = [sample(f"w{number % 7}", number) for number in range(3_500)]
    await store.append_samples("metrics", rows)
    dropped = await store.downsample("metrics", before=START + timedelta(seconds=3_500), keep_every_seconds=700)
    left = [await seconds(store, f"w{subject}") for subject in range(7)]
    assert sum(map(len, left)) == len(rows) - dropped
    for moments in left:
        spans = [(START + timedelta(seconds=moment)).timestamp() // 700 for moment in moments]
        assert len(set(spans)) == len(spans)
        assert len(spans) in (5, 6)
