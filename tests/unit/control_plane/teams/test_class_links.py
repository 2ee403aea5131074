"""Seat links for a whole class: for those who do not sign in, shown once, revoked together."""

from __future__ import annotations

import asyncio
import csv
import re
from datetime import datetime
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from lcm.control_plane.auth.roles import UnauthenticatedError
from lcm.control_plane.auth.seats import links as seat_links
from lcm.control_plane.auth.seats.links import MAX_LINKS_PER_LABLET, SeatLinkService
from lcm.control_plane.records.kinds import SEAT_LINKS
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.booking.seat_links import ClassSeatLink, class_links_csv
from lcm.model.lablet.record import Lablet
from tests.unit.control_plane.teams.school import School, booking_request, open_school

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE = "198.51.100.7"


@pytest.fixture
async def school() -> AsyncIterator[School]:
    async with open_school() as school:
        yield school


async def begin(school: School, **more: Any) -> tuple[str, str]:
    """A class of three with its labs: its booking, and the path of its links."""
    await school.admin("PATCH", "/api/settings", scaling={"max_workers_per_region": 60})
    learners = ["Zoë", await school.identity("learner")]
    body = booking_request("monday", "ospf", None, **{"seats": 3, "learners": learners, **more})
    made = await school.ask("instructor", "POST", "/api/bookings", json=body)
    assert made.status_code == 201, made.text
    booking = made.json()
    begins = datetime.fromisoformat(booking["occurrences"][0]["starts_at"])
    await asyncio.sleep((begins - clock.now()).total_seconds() + 60)
    await school.plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json={"term": 5})
    assert (await school.plane.ask("POST", "/api/internal/bookings/advance", role=Role.CONTROLLER)).status_code == 200
    return booking["id"], f"/api/bookings/{booking['id']}/occurrences/1/seat-links"


def codes(made: dict[str, Any]) -> list[str]:
    return [each["path"].partition("#")[2] for each in made["items"]]


async def test_each_seat_without_an_account_gets_a_link_and_all_are_revoked_together(school: School) -> None:
    _, path = await begin(school)
    response = await school.ask("instructor", "POST", path)
    assert response.status_code == 201, response.text
    made = response.json()
    assert [(each["seat"], each["learner"]) for each in made["items"]] == [(1, "Zoë"), (3, "")]
    (left_out,) = made["left_out"]
    assert (left_out["seat"], "signs in and finds the lab at /my" in left_out["reason"]) == (2, True)
    sessions = school.plane.services.seat_sessions
    opened = [await sessions.open(code, HERE) for code in codes(made)]
    assert [each.caller.lablet_id for each in opened] == [each["lablet_id"] for each in made["items"]]
    for stored in (await school.plane.services.context.store.find(SEAT_LINKS)).items:
        assert not any(code.partition(".")[2] in stored.body.decode() for code in codes(made))
    one_more = await school.ask("instructor", "POST", f"/api/lablets/{made['items'][0]['lablet_id']}/seat-links")
    assert one_more.status_code == 201
    done = await school.ask("instructor", "DELETE", path)
    assert (done.status_code, done.json()) == (200, {"revoked": 3})
    assert [await sessions.still_valid(each.id.reveal()) for each in opened] == [False, False]
    for code in codes(made):
        with pytest.raises(UnauthenticatedError, match="This link was revoked"):
            await sessions.open(code, HERE)
    assert (await school.ask("instructor", "DELETE", path)).json() == {"revoked": 0}


async def test_links_last_as_long_as_the_class_and_never_in_the_past(school: School) -> None:
    booking, path = await begin(school)
    made = (await school.ask("instructor", "POST", path)).json()
    lablet = made["items"][0]["lablet_id"]
    (listed,) = (await school.ask("instructor", "GET", f"/api/lablets/{lablet}/seat-links")).json()["items"]
    ends = (await school.ask("instructor", "GET", f"/api/bookings/{booking}")).json()["occurrences"][0]["ends_at"]
    assert listed["expires_at"] == ends
    past = await school.ask("instructor", "POST", path, json={"expires_at": "2020-01-01T00:00:00Z"})
    assert (past.status_code, "expires_at: " in past.text) == (422, True)
    for _ in range(MAX_LINKS_PER_LABLET - 1):
        await school.ask("instructor", "POST", f"/api/lablets/{lablet}/seat-links")
    again = (await school.ask("instructor", "POST", path)).json()
    assert [each["seat"] for each in again["items"]] == [3]
    assert "as many links as it may have" in again["left_out"][0]["reason"]


async def test_before_the_warm_up_there_is_nothing_to_link_to(school: School) -> None:
    path = f"/api/bookings/{school.bookings['alpha-class']}/occurrences/1/seat-links"
    early = await school.ask("instructor", "POST", path)
    assert (early.status_code, "has no labs yet; they are made from" in early.text) == (409, True)
    assert (await school.ask("instructor", "DELETE", path)).json() == {"revoked": 0}
    assert (await school.ask("instructor", "POST", path.replace("/1/", "/9/"))).status_code == 404
    assert (await school.ask("learner", "POST", path)).status_code == 403


async def test_a_lab_that_went_to_another_team_gets_no_link_and_keeps_its_own(school: School) -> None:
    _, path = await begin(school)
    made = (await school.ask("instructor", "POST", path)).json()
    gone = made["items"][0]["lablet_id"]
    await school.admin("POST", f"/api/lablets/{gone}/assign", team="secret-team")
    theirs = await school.ask("secret-person", "POST", f"/api/lablets/{gone}/seat-links")
    assert theirs.status_code == 201
    again = (await school.ask("instructor", "POST", path)).json()
    assert gone not in [each["lablet_id"] for each in again["items"]]
    await school.ask("instructor", "DELETE", path)
    await school.plane.services.seat_sessions.open(theirs.json()["path"].partition("#")[2], HERE)


async def test_a_link_that_was_made_while_its_lab_was_assigned_opens_nothing(school: School) -> None:
    """The assignment revokes the links that it finds; one more was made at the same time."""
    _, path = await begin(school)
    before = (await school.ask("instructor", "POST", path)).json()["items"][0]["lablet_id"]
    services, caller = school.plane.services, await school.caller("instructor")
    lablet = Lablet.model_validate_json((await services.lablets.get(caller, before)).body)
    _, late = await services.seat_links.create(caller, lablet, None)
    stored = [each for each in (await services.context.store.find(SEAT_LINKS)).items if before.encode() in each.body]
    await school.admin("POST", f"/api/lablets/{before}/assign", team="secret-team")
    for each in stored:  # as if the assignment had not found them
        now = await services.context.store.get(SEAT_LINKS, each.id)
        assert now is not None
        link = seat_links.StoredSeatLink.model_validate_json(each.body)
        await services.context.store.commit([seat_links.put_link(link, now.revision)])
    with pytest.raises(UnauthenticatedError, match="This link was revoked"):
        await services.seat_sessions.open(late.reveal().partition("#")[2], HERE)


async def test_the_class_page_shows_the_list_once(school: School) -> None:
    booking, _ = await begin(school)
    page = f"/bookings/{booking}/classes/1"
    assert f"{page}/seat-links" in (await school.ask("instructor", "GET", page, html=True)).text
    dialog = await school.ask("instructor", "GET", f"{page}/seat-links", html=True)
    assert "Create the links" in dialog.text
    created = await school.ask("instructor", "POST", f"{page}/seat-links", html=True, data={})
    found = re.search(r'data-copy="([^"]+)"', created.text)
    assert found is not None
    rows = list(csv.reader(unescape(found[1]).splitlines()))
    assert rows[0] == ["seat", "learner", "lablet", "link"]
    assert [row[:2] for row in rows[1:]] == [["1", "Zoë"], ["3", ""]]
    assert all(row[3].startswith("http://lcm.test/seat#seat-") for row in rows[1:])
    await school.plane.services.seat_sessions.open(rows[1][3].partition("#")[2], HERE)
    folded = re.search(r"<details[^>]*>(.*?)</details>", created.text, re.DOTALL)
    assert folded is not None
    assert "No link of this class will open anything any more" in folded[1]
    assert "/revoke" not in created.text.replace(folded[0], ""), "it takes two steps, and the list stays meanwhile"
    revoked = await school.ask("instructor", "POST", f"{page}/seat-links/revoke", html=True, data={})
    assert "2 links were revoked" in revoked.text
    later = await school.ask("instructor", "POST", "/api/bookings", json=booking_request("later", "ospf", None))
    early = f"/bookings/{later.json()['id']}/classes/1/seat-links"
    refused = await school.ask("instructor", "POST", early, html=True, data={})
    assert (refused.status_code, "has no labs yet" in refused.text) == (409, True)


async def test_links_whose_answer_was_lost_are_replaced_by_the_next(school: School) -> None:
    booking, _ = await begin(school)
    page, form = f"/bookings/{booking}/classes/1/seat-links", {"idempotency_key": "form-1"}
    answers = [await school.ask("instructor", "POST", page, html=True, data=form) for _ in range(2)]
    lost, shown = (set(re.findall(r"/seat#(seat-[a-z0-9]+\.[0-9a-f]+)", each.text)) for each in answers)
    assert (len(lost), len(shown), lost & shown) == (2, 2, set())
    for code in shown:
        await school.plane.services.seat_sessions.open(code, HERE)
    for code in lost:
        with pytest.raises(UnauthenticatedError, match="This link was revoked"):
            await school.plane.services.seat_sessions.open(code, HERE)


def test_a_name_is_no_formula_in_a_spreadsheet() -> None:
    def link(learner: str) -> ClassSeatLink:
        path = SecretStr("/seat#seat-1.ab")
        return ClassSeatLink(seat=1, learner=learner, lablet_id="l-1", lablet_name="x-1", link_id="seat-1", path=path)

    text = class_links_csv([link('=HYPERLINK("http://x")'), link("O'Neil, Ann")], "https://lcm.example/")
    rows = list(csv.reader(text.splitlines()))
    assert rows[1] == ["1", '\'=HYPERLINK("http://x")', "x-1", "https://lcm.example/seat#seat-1.ab"]
    assert rows[2][1] == "O'Neil, Ann"


async def test_nobody_gets_a_link_to_a_lablet_that_went_to_another_team_meanwhile(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the caller may make links is read before the commit; between the two, an admin assigns the lablet."""
    lablet, create = school.ids["alpha-mine"], SeatLinkService.create

    async def later(self: SeatLinkService, *about: Any) -> Any:
        await school.admin("POST", f"/api/lablets/{lablet}/assign", team="secret-team")
        return await create(self, *about)

    monkeypatch.setattr(SeatLinkService, "create", later)
    made = await school.ask("instructor", "POST", f"/api/lablets/{lablet}/seat-links")
    assert (made.status_code, made.json()["code"]) == (409, "version_conflict")
    assert not (await school.plane.services.context.store.find(SEAT_LINKS)).items
    assert (await school.ask("instructor", "POST", f"/api/lablets/{lablet}/seat-links")).status_code == 404


async def test_a_lab_of_a_class_that_goes_to_another_team_meanwhile_gets_no_link(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = await begin(school)
    create_many = SeatLinkService.create_many
    lablet = (await school.ask("instructor", "GET", "/api/lablets?q=monday&owner=Zo%C3%AB")).json()["items"][0]["id"]

    async def later(self: SeatLinkService, *about: Any) -> Any:
        await school.admin("POST", f"/api/lablets/{lablet}/assign", team="secret-team")
        return await create_many(self, *about)

    monkeypatch.setattr(SeatLinkService, "create_many", later)
    made = (await school.ask("instructor", "POST", path)).json()
    assert [each["seat"] for each in made["items"]] == [3]
    assert [each["seat"] for each in made["left_out"]] == [1, 2]
