"""One record that cannot be read stops no class and no admission (calendar.md#carrying-out)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.records.kinds import BOOKINGS, TEMPLATES, WORKERS, find_all
from lcm.control_plane.store.port import Put
from tests.unit.control_plane.bookings.test_progress import CONTROLLER, WORKERS_NEEDED, School, school

if TYPE_CHECKING:
    from lcm.control_plane.store.port import FieldValue, Kind

__all__ = ["school"]  # the fixture


async def spoil(school: School, kind: Kind, copy_of: str, **fields: FieldValue) -> None:
    """Add a record as no version could have written it, beside the one that it is a copy of."""
    store = school.plane.services.context.store
    original = await store.get(kind, copy_of)
    assert original is not None
    record = {**json.loads(original.body), "name": ["broken"]}
    known = {**dict.fromkeys(kind.fields), **fields}
    await store.commit([Put(kind, "broken", json.dumps(record).encode(), None, known)])


async def count_booked(school: School) -> int:
    found = [json.loads(each.body) async for each in find_all(school.plane.services.context.store, WORKERS)]
    return sum(each["booking_id"] == school.booking["id"] for each in found)


async def add_unreadable_booking(school: School) -> None:
    found = school.booking["occurrences"][0]
    times: dict[str, FieldValue] = {"starts_at": found["warm_up_at"], "ends_at": found["ends_at"]}
    await spoil(school, BOOKINGS, school.booking["id"], status="CONFIRMED", watched=True, **times)


async def test_a_booking_that_cannot_be_read_is_counted_and_stops_no_other(school: School) -> None:
    await school.book()
    await add_unreadable_booking(school)
    await school.wait_until("warm_up_at")
    response = await school.post("/api/internal/bookings/advance", role=CONTROLLER)
    assert (response.status_code, response.json()["skipped"]) == (200, 1)
    assert await count_booked(school) == WORKERS_NEEDED
    await school.book("another")  # it is admitted too
    need = {"template": "small", "reason": "full", "for": "lablet-1"}
    assert (await school.post("/api/internal/workers/scale-up", need, role=CONTROLLER)).status_code == 202


@pytest.mark.parametrize("limit", [WORKERS_NEEDED, WORKERS_NEEDED + 1])
async def test_a_worker_that_cannot_be_read_counts_and_stops_no_class(school: School, limit: int) -> None:
    await school.set_limit(limit)
    await school.book()
    made = await school.plane.create("alpha")
    await spoil(school, WORKERS, made["id"], aws_region=made["aws_region"], status="RUNNING")
    await school.advance()
    await school.wait_until("warm_up_at")
    await school.advance()
    assert await count_booked(school) == limit - 2  # room that both of them leave
    await school.wait_until("ends_at")
    assert (await school.advance())["status"] == "ENDED"
    await school.advance()
    assert await count_booked(school) == 0


async def test_a_template_that_cannot_be_read_stops_no_admission(school: School) -> None:
    await school.book()
    await spoil(school, TEMPLATES, "micro", enabled=True)
    assert (await school.book("another"))["status"] == "CONFIRMED"
    preview = await school.post("/api/lablets/preview", {"name": "l", "definition": "lab"})
    assert preview.json()["outcome"] == "launch"
