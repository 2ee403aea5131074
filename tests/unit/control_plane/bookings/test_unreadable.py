"""One record that cannot be read stops no class and no admission (calendar.md#carrying-out)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.records.kinds import BOOKINGS, DEFINITIONS, LABLETS, TEMPLATES, WORKERS, find_all, lablet_fields
from lcm.control_plane.store.port import Delete, Put
from lcm.model.access import Role
from lcm.model.booking.record import Booking
from lcm.model.booking.unreadable import read_known
from tests.support.web.visitor import signed_in
from tests.unit.control_plane.bookings.test_progress import CONTROLLER, SEATS, WORKERS_NEEDED, School, school

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


async def test_a_booking_that_cannot_be_read_is_shown_and_counts_in_admission(school: School) -> None:
    booked = await school.book()
    await add_unreadable_booking(school)
    found = await school.plane.ask("GET", "/api/bookings/broken", role=Role.VIEWER)
    shown = Booking.model_validate(found.json())
    assert (shown.workers, shown.occurrences[0].starts_at.isoformat()) == (
        WORKERS_NEEDED,
        booked["occurrences"][0]["starts_at"].replace("Z", "+00:00"),
    )
    assert shown.occurrences[0].at_risk is not None
    assert "its record cannot be read (name: Input should be a valid string)" in shown.occurrences[0].at_risk.missing
    listed = (await school.plane.ask("GET", "/api/bookings", role=Role.VIEWER)).json()["items"]
    assert {each["id"] for each in listed} == {booked["id"], "broken"}
    refused = await school.post("/api/bookings/broken/cancel", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "not_possible_now")
    assert "restore it from a backup" in refused.json()["detail"]
    await school.set_limit(2 * WORKERS_NEEDED)
    start = booked["occurrences"][0]["start"]["at"][:16]
    asked = {"name": "third", "definition": "lab", "seats": 1, "start": start, "zone": "UTC", "duration_minutes": 60}
    answer = await school.post("/api/bookings", asked)
    assert (answer.status_code, answer.json()["code"]) == (409, "booking_refused"), "its workers are counted"


async def test_a_seat_that_cannot_be_read_stops_neither_its_class_nor_the_page(school: School) -> None:
    lost, *_ = await school.warm_up()
    store = school.plane.services.context.store
    broken = next(each for each in await school.seats() if each.id.endswith("-1-2"))
    stored = await store.get(LABLETS, broken.id)
    assert stored is not None
    body = json.dumps({**json.loads(stored.body), "name": ["broken"]}).encode()
    await store.commit([Put(LABLETS, broken.id, body, stored.revision, lablet_fields(broken))])
    await school.post(f"/api/workers/{lost.id}/terminate", {"reason": "mine"})
    occurrence = await school.advance()
    text = "the records of these seats cannot be read: 2; restore them from a backup"
    assert text in occurrence["at_risk"]["missing"]
    serving = [each for each in await school.booked() if each.desired_status == "RUNNING"]
    assert len(serving) == WORKERS_NEEDED, "a worker that is lost is replaced"
    visitor = await signed_in(school.plane, Role.OPERATOR)
    page = await visitor.page(f"/bookings/{school.booking['id']}/classes/1")
    assert page.count('class="lablet"') == SEATS - 1
    assert "Its record cannot be read: restore it from a backup." in page
    links = (await school.post(f"/api/bookings/{school.booking['id']}/occurrences/1/seat-links", {})).json()
    assert {each["seat"]: each["reason"][:26] for each in links["left_out"]}[2] == "its record cannot be read;"
    extended = await school.post(f"/api/bookings/{school.booking['id']}/extend", {"minutes": 30})
    assert extended.status_code == 200, extended.text
    await school.wait_until("ends_at")
    occurrence = await school.advance()
    assert (occurrence["status"], occurrence["holds_capacity"]) == ("ENDED", False)
    assert await school.booked() == []


async def test_whatever_is_left_of_a_record_is_known(school: School) -> None:
    booked = Booking.model_validate(await school.book())
    whole = json.loads(booked.model_dump_json())
    for spoiled in ({"seats": "many"}, {"occurrences": [*whole["occurrences"], {"number": "x"}]}, {"requirements": 5}):
        known = read_known(json.dumps({**whole, **spoiled}).encode(), "bk-1")
        assert [each.starts_at for each in known.occurrences] == [each.starts_at for each in booked.occurrences]
        assert known.occurrences[0].at_risk is not None
    for body in (b"", b"[]", b"{}", b"no json"):
        assert read_known(body, "bk-1").occurrences == ()


@pytest.mark.parametrize("kind", ["definition", "template"])
async def test_a_class_whose_records_are_gone_is_at_risk_and_stops_no_other(school: School, kind: str) -> None:
    gone = await school.book("gone")
    kept = await school.book("kept")
    store = school.plane.services.context.store
    found, name = (DEFINITIONS, "lab@1") if kind == "definition" else (TEMPLATES, "micro")
    stored = await store.get(found, name)
    assert stored is not None
    await store.commit([Delete(found, name, stored.revision)])
    await school.post("/api/internal/bookings/advance", role=CONTROLLER)
    for booking in (gone, kept):
        (only,) = (await read(school, booking["id"])).occurrences
        assert only.at_risk is not None
        assert f"{kind} {name} does not exist" in only.at_risk.missing
    await school.wait_until("warm_up_at")
    response = await school.post("/api/internal/bookings/advance", role=CONTROLLER)
    assert (response.status_code, response.json()["skipped"]) == (200, 2)
    (only,) = (await read(school, gone["id"])).occurrences
    assert only.at_risk is not None
    assert "it cannot be carried out" in only.at_risk.missing
    assert ("booking_at_risk", "raised") in await school.alerts()


async def read(school: School, booking_id: str) -> Booking:
    response = await school.plane.ask("GET", f"/api/bookings/{booking_id}", role=Role.VIEWER)
    return Booking.model_validate(response.json())
