"""Full collections of garbage are rare where they take long."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from lcm.cli.processes.garbage_collection import FullCollectionPacing, pace_full_collections

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks


async def _full_collection(pacing: FullCollectionPacing, seconds: float) -> None:
    pacing("start", {"generation": 2})
    await asyncio.sleep(seconds)
    pacing("stop", {"generation": 2})


async def test_after_a_long_collection_the_next_waits_a_thousand_times_as_long() -> None:
    before, pacing = gc.get_threshold(), FullCollectionPacing()
    await _full_collection(pacing, 0.25)
    assert gc.get_threshold()[:2] == before[:2], "young objects are looked at as often as before"
    await asyncio.sleep(249)
    pacing("stop", {"generation": 1})
    assert gc.get_threshold()[2] > 2**20
    await asyncio.sleep(2)
    pacing("stop", {"generation": 0})
    assert gc.get_threshold() == before


async def test_short_collections_are_hardly_delayed() -> None:
    before, pacing = gc.get_threshold(), FullCollectionPacing()
    await _full_collection(pacing, 0.0001)
    await asyncio.sleep(0.2)
    pacing("stop", {"generation": 0})
    assert gc.get_threshold() == before


def test_it_is_installed_once() -> None:
    count = len(gc.callbacks)
    pace_full_collections()
    pace_full_collections()
    assert len(gc.callbacks) == count + 1
