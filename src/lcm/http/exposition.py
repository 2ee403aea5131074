"""Metrics as text for Prometheus, made piece by piece: a fleet's worth of them at once would hold up the event loop."""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, Final

from prometheus_client import generate_latest
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

SAMPLES_PER_CHUNK: Final = 500
_HEADER_LINES: Final = 2  # what a family is, and of which type


class _SingleFamilyCollector(Collector):
    """One family, to be put into words like a whole registry."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


async def render_metrics(registry: CollectorRegistry) -> bytes:
    """All that a registry has, read family by family."""
    text = bytearray()
    for family in registry.collect():
        for begin in range(0, max(1, len(family.samples)), SAMPLES_PER_CHUNK):
            some = copy(family)
            some.samples = family.samples[begin : begin + SAMPLES_PER_CHUNK]
            piece = generate_latest(_SingleFamilyCollector(some))
            text += piece.split(b"\n", _HEADER_LINES)[-1] if begin else piece
            await asyncio.sleep(0)
    return bytes(text)
