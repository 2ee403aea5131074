"""The Bookings pages: the week in the zone of the viewer, the form with its proposals, and the page of a class."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.records.kinds import BOOKINGS, LABLETS, lablet_fields
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.booking.progress import seat_id
from lcm.model.booking.record import Booking
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import LabletStatus
from tests.support.records.lablet_records import TOPOLOGY
from tests.support.virtual.control_plane import TestPlane, serving_plane
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.web.visitor import WebVisitor

MONDAY = "2026-01-19"
FORM = {
    "name": "bgp-monday",
    "definition": "bgp@1",
    "seats": "30",
    "start": f"{MONDAY}T09:00",
    "zone": "Europe/Brussels",
    "occurrence": "",
    "duration_minutes": "240",
    "repeat_weeks": "1",
    "team": "",
    "aws_region": "",
    "learners": "anna@example.com\r\nben@example.com",
}


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        needs = {"license": False, "cpu_cores": 10, "memory_gb": 40, "storage_gb": 10}
        body = {"name": "bgp", "version": "1", "topology": TOPOLOGY, "requirements": needs}
        assert (await plane.ask("POST", "/api/lablet-definitions", json=body)).status_code == 201
        yield plane


async def bookings(plane: TestPlane) -> list[Booking]:
    page = await plane.services.context.store.find(BOOKINGS)
    return [Booking.model_validate_json(each.body) for each in page.items]


async def book(plane: TestPlane, operator: WebVisitor, **changed: str) -> Booking:
    response = await operator.send("/bookings/new", {**FORM, **changed})
    assert response.status_code == 200, response.text
    assert "is booked" in response.text
    return next(each for each in await bookings(plane) if each.name == changed.get("name", FORM["name"]))


def query(form: dict[str, str]) -> str:
    return "&".join(f"{name}={value}" for name, value in form.items() if name != "learners")


async def test_a_class_is_on_the_calendar_at_the_time_of_the_viewer(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    empty = await operator.page("/bookings")
    assert "No classes in this week" in empty
    assert "lcm bookings create" in empty
    booking = await book(plane, operator)
    page = await operator.page(f"/bookings?zone=America/New_York&week={MONDAY}")
    assert "times in America/New_York" in page
    assert "19 January to 25 January 2026" in page
    assert "03:00 to 07:00" in page  # 09:00 in Brussels
    assert f'href="/bookings/{booking.id}/classes/1">bgp-monday' in page
    assert "10 of 10" in page  # workers, of MAX_WORKERS_PER_REGION
    assert "week=2026-01-12" in page
    assert "week=2026-01-26" in page
    part = await operator.part(f"/bookings?zone=Nowhere/At_All&week={MONDAY}")
    assert "There is no time zone Nowhere/At_All" in part
    assert "08:00 to 12:00" in part
    viewer = await signed_in(plane, Role.VIEWER)
    assert "Book a class" not in await viewer.page("/bookings")
    assert (await viewer.send("/bookings/new", FORM)).status_code == 403


async def test_a_class_that_does_not_fit_is_refused_with_times_that_fill_the_form(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    await book(plane, operator)
    second = {**FORM, "name": "ospf-monday"}
    preview = await operator.part(f"/bookings/preview?{query(second)}")
    assert "It does not fit." in preview
    assert "MAX_WORKERS_PER_REGION is 10" in preview
    proposed = [unescape(each) for each in re.findall(r"data-fill='([^']+)'", preview)]
    assert len(proposed) == 3
    refused = await operator.send("/bookings/new", second)
    assert refused.status_code == 409
    assert "choose one of the proposed times" in refused.text.lower()
    assert [unescape(each) for each in re.findall(r"data-fill='([^']+)'", refused.text)] == proposed
    assert "ben@example.com" in refused.text  # nothing that was typed is lost
    start = re.search(r'"start":"([^"]+)"', proposed[0])
    assert start is not None
    taken = await book(plane, operator, name="ospf-monday", start=start[1])
    assert taken.learners == ("anna@example.com", "ben@example.com")
    fits = await operator.part(f"/bookings/preview?{query({**FORM, 'name': 'third', 'start': '2026-01-22T09:00'})}")
    assert "It fits: 30 seats on 10 workers of nested-large" in fits
    assert "without disks" in fits


async def test_an_invalid_form_says_what_is_wrong_at_its_field(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    opened = await operator.part(f"/bookings/new?zone=Europe/Brussels&week={MONDAY}")
    assert 'value="2026-01-19T09:00"' in opened
    wrong = {**FORM, "seats": "many", "zone": "europe/brussels", "start": "", "learners": "anna\nanna"}
    response = await operator.send("/bookings/new", wrong)
    assert response.status_code == 422
    for name in ("seats", "zone", "start", "learners"):
        assert f'id="f-{name}-problem"' in response.text, name
    assert 'value="many"' in response.text
    assert "did you mean Europe/Brussels?" in response.text
    skipped = await operator.send("/bookings/new", {**FORM, "start": "2026-03-29T02:30"})
    assert 'id="f-start-problem">2026-03-29 02:30 does not exist in Europe/Brussels' in skipped.text
    unknown = await operator.send("/bookings/new", {**FORM, "definition": "ospf@1"})
    assert 'id="f-definition-problem"' in unknown.text
    no_team = await operator.send("/bookings/new", {**FORM, "team": "night"})
    assert 'id="f-team-problem">there is no team night' in no_team.text
    assert await bookings(plane) == []
    await book(plane, operator)
    again = await operator.send("/bookings/new", {**FORM, "start": "2026-01-22T09:00"})
    assert 'id="f-name-problem"' in again.text


async def test_a_form_that_is_sent_twice_books_once(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    form = {**FORM, "seats": "3", "idempotency_key": "form-1"}
    first, second = await operator.send("/bookings/new", form), await operator.send("/bookings/new", form)
    assert (first.status_code, second.status_code, first.text) == (200, 200, second.text)
    assert len(await bookings(plane)) == 1


async def test_a_class_is_extended_moved_and_cancelled_on_its_page(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    booking = await book(plane, operator, repeat_weeks="2")
    await book(plane, operator, name="wednesday", start="2026-01-21T09:00")
    page = await operator.page(f"/bookings/{booking.id}")
    assert "Cancel all classes" in page
    assert "Mon 26 Jan 2026, 09:00" in page
    base = f"/bookings/{booking.id}/classes/2"
    assert 'value="2026-01-26T09:00"' in await operator.part(f"{base}/confirm-move")
    occupied = {"start": "2026-01-21T09:00", "occurrence": "", "version": "1"}
    refused = await operator.send(f"{base}/move", occupied)
    assert refused.status_code == 409
    assert "The class does not fit." in refused.text
    assert "workers: 20 would be needed" in refused.text
    assert refused.text.count("data-fill=") == 3
    assert "has passed" in (await operator.send(f"{base}/move", {**occupied, "start": "2026-01-05T09:00"})).text
    moved = await operator.send(f"{base}/move", {**occupied, "start": "2026-01-27T09:00"})
    assert "the class was moved" in moved.text
    stale = await operator.send(f"{base}/extend", {"minutes": "60", "version": "1"})
    assert (stale.status_code, "The booking was changed since this dialog was opened." in stale.text) == (409, True)
    assert 'id="check-form"' in stale.text
    assert stale.text.count("was changed since") == 1  # it is checked anew, at the version that is shown now
    extended = await operator.send(f"{base}/extend", {"minutes": "60", "version": "2"})
    assert "the class ends later" in extended.text
    found = next(each for each in await bookings(plane) if each.id == booking.id)
    second = found.occurrences[1]
    assert (second.start.at.day, second.ends_at - second.starts_at) == (27, timedelta(hours=5))
    assert "1 class will be cancelled" in await operator.part(f"{base}/confirm-cancel")
    outdated = await operator.send(f"{base}/cancel", {"version": "2"})
    assert (outdated.status_code, "Close it and check the classes" in outdated.text) == (409, True)
    await operator.send(f"{base}/cancel", {"version": "3"})
    assert "Nothing is left to cancel" in await operator.part(f"{base}/confirm-cancel")
    await operator.send(f"/bookings/{booking.id}/cancel", {"reason": "postponed"})
    assert "bgp-monday" not in await operator.page(f"/bookings?week={MONDAY}")
    assert await operator.page("/bookings/bk-none", 404)
    assert await operator.page(f"/bookings/{booking.id}/classes/9", 404)


async def test_several_classes_are_cancelled_only_after_their_name_was_typed(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    booking = await book(plane, operator, repeat_weeks="2")
    assert 'data-expected="bgp-monday"' in await operator.part(f"/bookings/{booking.id}/confirm-cancel")
    assert (await operator.send(f"/bookings/{booking.id}/cancel", {"confirm": "bgp"})).status_code == 422
    assert {each.status for each in await bookings(plane)} == {"CONFIRMED"}
    assert (await operator.send(f"/bookings/{booking.id}/cancel", {"confirm": "bgp-monday"})).status_code == 200
    assert {each.status for each in await bookings(plane)} == {"CANCELLED"}


async def test_seats_with_a_problem_come_first_and_what_the_class_lacks_is_said(plane: TestPlane) -> None:
    await plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json={"term": 5})
    operator = await signed_in(plane, Role.OPERATOR)
    start = (clock.now() + timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M")
    booking = await book(plane, operator, seats="3", start=start, zone="UTC")
    path = f"/bookings/{booking.id}/classes/1"
    assert "no lab yet" in await operator.page(path)
    await asyncio.sleep((booking.occurrences[0].starts_at - clock.now()).total_seconds() + 60)
    advanced = await plane.ask("POST", "/api/internal/bookings/advance", role=Role.CONTROLLER)
    assert advanced.status_code == 200
    store = plane.services.context.store
    stopped = await plane.report(await plane.running("bravo"), "STOPPED")
    changes: dict[int, dict[str, Any]] = {
        1: {"status": LabletStatus.RUNNING},
        2: {"status": LabletStatus.RUNNING, "worker_id": stopped["id"]},
        3: {"status": LabletStatus.FAILED, "message": "no answer"},
    }
    for number, changed in changes.items():
        stored = await store.get(LABLETS, seat_id(booking, 1, number))
        assert stored is not None
        lablet = Lablet.model_validate_json(stored.body).model_copy(update=changed)
        put = Put(LABLETS, lablet.id, lablet.model_dump_json().encode(), stored.revision, lablet_fields(lablet))
        await store.commit([put])
    page = await operator.page(path)
    tiles = [int(each) for each in re.findall(r'id="seat-(\d+)"', page)]
    assert tiles == [3, 2, 1]
    assert "The lab is stopped with its worker bravo, which has been STOPPED since" in page
    assert "Seat 3</h3>" in page
    assert "Seat 1: anna@example.com" in page
    assert "1 of 3 seats are running" in page
    assert "2 have a problem." in page
    assert "1 has ended" not in page  # a failed lab is a problem, and not counted twice
    assert "At risk since" in page
    assert page.count("/confirm-reset") == 3  # the failed one, too
    assert "At risk" in await operator.page(f"/bookings?week={datetime.fromisoformat(start).date()}")
    viewer = await signed_in(plane, Role.VIEWER)
    assert "confirm-reset" not in await viewer.page(path)
