"""The dialogs that move and extend a class: what they say beforehand, and about a class that changed meanwhile."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING

import pytest

from lcm.core import clock
from lcm.model.access import Role
from tests.support.web.visitor import signed_in
from tests.unit.control_plane.web.calendar.test_bookings_page import FORM, MONDAY, book, bookings, query
from tests.unit.control_plane.web.calendar.test_bookings_page import plane as plane

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane


def proposals(text: str) -> list[dict[str, str]]:
    """What the buttons of a preview fill into the form."""
    return [json.loads(unescape(each)) for each in re.findall(r"data-fill='([^']+)'", text)]


async def test_a_preview_of_a_move_says_what_the_move_does(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    await book(plane, operator, name="wednesday", start="2026-01-21T09:00")
    booking = await book(plane, operator)
    base = f"/bookings/{booking.id}/classes/1"
    assert "It fits. Nothing would change." in await operator.part(
        f"{base}/move-preview?start={MONDAY}T09:00&version=1"
    )
    refused = await operator.part(f"{base}/move-preview?start=2026-01-21T10:00&version=1")
    assert "workers: 20 would be needed" in refused
    free = proposals(refused)
    assert len(free) == 3
    fits = await operator.part(f"{base}/move-preview?start={free[0]['start']}&version=1")
    assert "It fits." in fits
    assert "10 workers of nested-large for" in fits
    assert "as much as now" in fits
    assert (await bookings(plane))[0].version == 1
    late = await operator.part(f"{base}/move-preview?start=2026-01-20T00:00&version=7")
    assert "The booking was changed since this dialog was opened." in late
    response = await operator.send(f"{base}/move", {**free[0], "version": "1"})
    assert "the class was moved" in response.text
    found = next(each for each in await bookings(plane) if each.id == booking.id)
    assert found.occurrences[0].start.at.isoformat(timespec="minutes") == free[0]["start"]


async def test_a_move_to_a_time_before_its_warm_up_could_end_warns_and_costs_less(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    booking = await book(plane, operator, zone="UTC")
    start = (clock.now() + timedelta(minutes=20)).strftime("%Y-%m-%dT%H:%M")
    text = await operator.part(f"/bookings/{booking.id}/classes/1/move-preview?start={start}&version=1")
    assert "It fits." in text
    assert "seats may not be ready at the start" in text
    assert "less than now" in text


async def test_an_extension_that_does_not_fit_proposes_shorter_ones_that_do(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    booking = await book(plane, operator)
    (occurrence,) = booking.occurrences
    later = occurrence.start.at + (occurrence.ends_at - occurrence.warm_up_at)  # the next warm-up begins at the end
    other = await book(plane, operator, name="later", start=f"{later:%Y-%m-%dT%H:%M}")
    base = f"/bookings/{booking.id}/classes/1"
    refused = await operator.part(f"{base}/extend-preview?minutes=60&version=1")
    assert "The shorter extensions offered here do not fit either." in refused
    shortest = await operator.part(f"{base}/extend-preview?minutes=15&version=1")
    assert "It does not fit." in shortest
    assert "shorter" not in shortest, "none was checked"
    later += timedelta(minutes=40)
    await operator.send(f"/bookings/{other.id}/classes/1/move", {"start": f"{later:%Y-%m-%dT%H:%M}"})
    refused = await operator.part(f"{base}/extend-preview?minutes=60&version=1")
    assert proposals(refused) == [{"minutes": "15"}, {"minutes": "30"}]
    again = await operator.send(f"{base}/extend", {"minutes": "60", "version": "1"})
    assert (again.status_code, proposals(again.text)) == (409, [{"minutes": "15"}, {"minutes": "30"}])
    assert "more than now" in await operator.part(f"{base}/extend-preview?minutes=30&version=1")
    assert (await operator.send(f"{base}/extend", {"minutes": "30", "version": "1"})).status_code == 200


async def test_a_night_in_which_clocks_change_offers_the_times_that_can_be_meant(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    booking = await book(plane, operator)
    preview = f"/bookings/{booking.id}/classes/1/move-preview"
    skipped = await operator.part(f"{preview}?start=2026-03-29T02:30")
    assert "does not exist in Europe/Brussels" in skipped
    assert [each["start"] for each in proposals(skipped)] == ["2026-03-29T01:59", "2026-03-29T03:00"]
    text = await operator.part(f"{preview}?start=2026-10-25T02:30")
    assert re.findall(r'<li>Start: .*datetime="(.*?)".*datetime="(.*?)"', text) == [
        ("2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00")
    ]
    assert "--which" not in text
    doubled = [{"start": "2026-10-25T02:30", "occurrence": each} for each in ("first", "second")]
    assert proposals(text) == doubled
    assert "It fits." in await operator.part(f"{preview}?start=2026-10-25T02:30&occurrence=second")
    new = await operator.part(f"/bookings/preview?{query({**FORM, 'start': '2026-10-25T02:30'})}")
    assert proposals(new) == doubled
    sent = await operator.send(f"/bookings/{booking.id}/classes/1/move", {"start": "2026-10-25T02:30"})
    assert (sent.status_code, proposals(sent.text)) == (422, doubled)


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        ("", "choose both"),
        ("tomorrow", "must be a date and time"),
        ("2026-01-05T09:00", "has passed"),
        ("9999-12-31T23:59", "from the year 1970 to 2998"),
        ("0001-01-01T00:00", "from the year 1970 to 2998"),
    ],
)
async def test_a_time_that_cannot_be_is_said_and_offers_nothing(plane: TestPlane, start: str, problem: str) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    booking = await book(plane, operator)
    text = await operator.part(f"/bookings/{booking.id}/classes/1/move-preview?start={start}&version=1")
    assert "It is checked when this is corrected:" in text
    assert re.search(f"Start: .*{problem}", text)
    assert proposals(text) == []
    new = await operator.send("/bookings/new", {**FORM, "name": "other", "start": start})
    assert re.search(f'id="f-start-problem">.*{problem}', new.text)


async def test_a_class_that_is_cancelled_while_the_dialog_is_open_cannot_be_changed(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    booking = await book(plane, operator)
    base = f"/bookings/{booking.id}/classes/1"
    await operator.send(f"{base}/cancel", {"version": "1"})
    for kind, value in (("move", "start=2026-01-22T09:00"), ("extend", "minutes=15")):
        text = await operator.part(f"{base}/{kind}-preview?{value}&version=1")
        assert "It fits" not in text
        assert "CANCELLED" in text or "cancelled" in text
        opened = await operator.part(f"{base}/confirm-{kind}")
        assert 'id="do"' not in opened
    assert (await operator.send(f"{base}/extend", {"minutes": "15", "version": "1"})).status_code == 409


async def test_who_may_not_change_a_class_gets_no_preview_of_it(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    booking = await book(plane, operator)
    viewer = await signed_in(plane, Role.VIEWER)
    for path in ("confirm-move", "confirm-extend", "move-preview?start=2026-01-22T09:00", "extend-preview?minutes=15"):
        await viewer.part(f"/bookings/{booking.id}/classes/1/{path}", 403)
