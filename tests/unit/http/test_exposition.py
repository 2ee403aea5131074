"""Rendered metrics: the same text as in one piece, without blocking the event loop."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lcm.http.server import SAMPLES_PER_CHUNK, render_metrics


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
