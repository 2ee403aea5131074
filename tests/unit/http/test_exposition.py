"""Rendered metrics: the same text as in one piece, without blocking the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

from lcm.http.exposition import SAMPLES_PER_CHUNK, LargeFamily, Row, render_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric


def full_registry(series: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    gauge = Gauge("load", "How much\nof it", ["place"], registry=registry)
    spans = Histogram("spans_seconds", "How long", ["place"], buckets=(0.1, 1.0), registry=registry)
    Counter("calls_total", "How often", registry=registry).inc()
    Gauge("empty", "Has no series", ["place"], registry=registry)
    for number in range(series):
        gauge.labels(f'"{number}"\n').set(number)
        spans.labels(str(number)).observe(number)
    return registry


async def test_the_text_is_the_same_as_in_one_piece() -> None:
    for series in (0, 1, SAMPLES_PER_CHUNK, SAMPLES_PER_CHUNK + 1, 3 * SAMPLES_PER_CHUNK):
        registry = full_registry(series)
        assert _without_created(await render_metrics(registry)) == _without_created(generate_latest(registry))


class _Rooms(Collector):
    """A family with as many series as it is told, some of them with nasty labels."""

    def __init__(self, rooms: int) -> None:
        self._rooms = rooms

    def collect(self) -> Iterator[Metric]:
        yield LargeFamily("room_seconds", "How long\nin it", "histogram", ("room", "le"), self._rows)

    def _rows(self) -> Iterator[Row]:
        for number in range(self._rooms):
            room = f'a "room"\\ \n {number}'
            yield Row("_bucket", (room, "0.1"), number)
            yield Row("_bucket", (room, "+Inf"), number + 1)
            yield Row("_sum", (room,), number / 3)


@pytest.mark.parametrize("rooms", [0, 1, SAMPLES_PER_CHUNK])
async def test_a_large_family_has_the_text_of_its_samples(rooms: int) -> None:
    registry = CollectorRegistry()
    registry.register(_Rooms(rooms))
    rendered = await render_metrics(registry)
    assert rendered == generate_latest(registry)
    assert rendered.count(b"\n") == 2 + 3 * rooms
    if rooms:
        assert registry.get_sample_value("room_seconds_sum", {"room": 'a "room"\\ \n 0'}) == 0


async def test_others_have_their_turn_meanwhile() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    await render_metrics(full_registry(10 * SAMPLES_PER_CHUNK))
    others.cancel()
    assert turns > 10


def _without_created(text: bytes) -> list[bytes]:
    return [line for line in text.splitlines() if b"_created" not in line]
