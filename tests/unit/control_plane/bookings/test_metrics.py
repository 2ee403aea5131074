"""Metrics of bookings, as they are when Prometheus scrapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.bookings.metrics import BookingCollector
from lcm.control_plane.records.kinds import BOOKINGS
from lcm.control_plane.store.memory.store import MemoryStore
from tests.unit.control_plane.bookings.test_progress import CONTROLLER, WORKERS_NEEDED, School, school
from tests.unit.control_plane.bookings.test_unreadable import spoil

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["school"]  # the fixture


@pytest.fixture
def collector(school: School, registry: CollectorRegistry) -> BookingCollector:
    collector = BookingCollector(school.plane.services.context.store)
    registry.register(collector)
    return collector


async def test_bookings_at_risk_are_counted_while_something_is_missing(
    school: School, collector: BookingCollector, registry: CollectorRegistry
) -> None:
    async def at_risk() -> float | None:
        await collector.refresh()
        return registry.get_sample_value("lcm_bookings_at_risk")

    assert await at_risk() == 0
    workers = await school.warm_up()
    await school.set_limit(WORKERS_NEEDED)
    assert await at_risk() == 0
    await school.post(f"/api/workers/{workers[0].id}/hold", {"reason": "look first"})
    await school.advance()
    assert await at_risk() == 1
    found = school.booking["occurrences"][0]
    times = {"starts_at": found["warm_up_at"], "ends_at": found["ends_at"]}
    await spoil(school, BOOKINGS, school.booking["id"], status="CONFIRMED", watched=True, **times)
    assert await at_risk() == 2  # what cannot be read is missing too
    await school.post(f"/api/workers/{workers[0].id}/release")
    await school.post("/api/internal/bookings/advance", role=CONTROLLER)
    assert await at_risk() == 1


async def test_without_an_answer_of_the_store_there_is_no_sample(registry: CollectorRegistry) -> None:
    collector = BookingCollector(MemoryStore())  # not open
    registry.register(collector)
    await collector.refresh()
    assert registry.get_sample_value("lcm_bookings_at_risk") is None
