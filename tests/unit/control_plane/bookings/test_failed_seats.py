"""A seat whose lab has failed is made anew while its class is under way (calendar.md#carrying-out)."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from lcm.control_plane.bookings import seats
from lcm.control_plane.lablets import service
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.booking.failed_seats import RETRY_WAITS
from lcm.model.lablet.record import AbandonedLab, Lablet
from tests.support.virtual.control_plane import SYSTEM
from tests.support.web.visitor import WebVisitor, signed_in
from tests.unit.control_plane.bookings.test_progress import CONTROLLER, SEATS, School, school

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction

__all__ = ["school"]

LEFT = (AbandonedLab(worker_id="w-gone", marker="l-x.1", lab_id=None),)


async def first_seat(school: School) -> Lablet:
    return next(each for each in await school.seats() if each.id.endswith("-1-1"))


async def fail(school: School, **facts: Any) -> Lablet:
    """The first seat fails, as the lablet controller would write it."""
    seat = await first_seat(school)
    why = "not up within 900 s: no lab created"
    fields: dict[str, Any] = {"status": "FAILED", "ending": "FAILED", "ending_reason": why, "status_since": clock.now()}
    fields |= {"worker_id": "w-gone", "placement_attempt": 1, "left_behind": LEFT, "version": seat.version + 1}
    failed = Lablet.model_validate({**seat.model_dump(), **fields, **facts})

    async def attempt(tx: Transaction) -> Lablet:
        await tx.lablet(failed.id)
        return tx.save_lablet(failed, "status_reported", why)

    return await school.plane.services.context.unit_of_work.run(SYSTEM, attempt)


async def wait(school: School, seconds: float) -> Lablet:
    await asyncio.sleep(seconds)
    await school.advance()
    return await first_seat(school)


async def reset(school: School, seat: Lablet) -> httpx.Response:
    return await school.post(f"/api/lablets/{seat.id}/reset")


async def test_a_failed_seat_is_made_anew_under_its_id_after_a_while(school: School) -> None:
    await school.warm_up()
    failed = await fail(school)
    waiting = await wait(school, RETRY_WAITS[0].total_seconds() - 5)
    assert (waiting.status, waiting.retries) == ("FAILED", 0)
    seat = await wait(school, 6)
    assert (seat.status, seat.retries, seat.wanted, seat.ending) == ("PENDING_SCHEDULING", 1, True, None)
    assert (seat.worker_id, seat.left_behind, seat.placement_attempt) == (None, LEFT, 1), "the next marker is .2"
    assert (seat.id, seat.name, seat.owner_name, seat.ends_at) == (
        failed.id,
        failed.name,
        failed.owner_name,
        failed.ends_at,
    )
    assert len(await school.seats()) == SEATS
    history = (await school.plane.ask("GET", f"/api/lablets/{seat.id}/history")).json()["items"]
    assert (history[-1]["from_status"], history[-1]["to_status"]) == ("FAILED", "PENDING_SCHEDULING")
    assert history[-1]["reason"] == "try 2 of 5, as it failed: not up within 900 s: no lab created"


async def test_after_the_last_try_it_stays_failed_and_the_class_says_what_to_do(school: School) -> None:
    await school.warm_up()
    for retries, pause in enumerate(RETRY_WAITS, 1):
        await fail(school)
        assert (await school.advance())["at_risk"] is None, "it is made anew, and the class begins much later"
        seat = await wait(school, pause.total_seconds() + 1)
        assert (seat.status, seat.retries) == ("PENDING_SCHEDULING", retries)
    await fail(school)
    assert (await wait(school, 1200)).status == "FAILED"
    assert [each for each in await school.alerts() if each[0] == "lablet_failed"] == [("lablet_failed", "raised")]
    at_risk = (await school.occurrence())["at_risk"]
    assert "seat 1 has failed 5 times: find out why and reset it on the page of the class" in at_risk["missing"]
    assert (await reset(school, await first_seat(school))).status_code == 202
    assert ((seat := await first_seat(school)).status, seat.retries) == ("PENDING_SCHEDULING", 0)
    assert "seat 1 has failed" not in str((await school.advance())["at_risk"])
    await fail(school)
    assert (await wait(school, RETRY_WAITS[0].total_seconds() + 1)).retries == 1, "it begins to count anew"


@pytest.mark.parametrize(
    "facts", [{"wanted": False}, {"status": "TERMINATED", "ending": "TERMINATED"}, {"status": "EXPIRED"}]
)
async def test_one_that_was_ended_is_neither_made_anew_nor_reset(school: School, facts: dict[str, Any]) -> None:
    await school.warm_up()
    ended = await fail(school, **facts)
    assert await wait(school, 3600) == ended
    refused = await reset(school, ended)
    assert (refused.status_code, refused.json()["code"]) == (409, "not_possible_now")


@pytest.mark.parametrize("cancelled", [True, False])
async def test_it_stays_failed_when_its_class_is_over_or_cancelled(school: School, *, cancelled: bool) -> None:
    await school.warm_up()
    if not cancelled:
        await school.wait_until("ends_at", minutes=-1)
    failed = await fail(school, retries=1)
    if cancelled:
        assert (await school.post(f"/api/bookings/{school.booking['id']}/cancel")).status_code == 200
    ended = await wait(school, 600)
    assert (ended.status, ended.wanted, ended.retries) == ("FAILED", False, 1)
    assert (await reset(school, failed)).status_code == 409
    preview = await school.post(f"/api/lablets/{failed.id}/preview", {"action": "reset"})
    assert (preview.json()["changes"], preview.json()["refusal"]) == (
        False,
        (await reset(school, failed)).json()["detail"],
    )
    assert await first_seat(school) == ended


@pytest.mark.parametrize(
    ("module", "name"),
    [(seats, "_retried"), (service, "end_of_class_under_way")],
)
async def test_a_cancellation_in_between_wins(
    school: School, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    """The scheduler, or a reset, has read the class under way; it is cancelled before the seat is committed."""
    await school.warm_up()
    failed = await fail(school)
    await asyncio.sleep(60)
    original, cancelled = getattr(module, name), list[httpx.Response]()

    async def cancel_after(*facts: Any, **options: Any) -> Any:
        monkeypatch.setattr(module, name, original)  # once
        result = await original(*facts, **options)
        cancelled.append(await school.post(f"/api/bookings/{school.booking['id']}/cancel"))
        return result

    monkeypatch.setattr(module, name, cancel_after)
    if module is seats:
        assert (await school.advance())["status"] == "CANCELLED"
    else:
        assert (await reset(school, failed)).status_code == 409
    assert [each.status_code for each in cancelled] == [200]
    assert await first_seat(school) == failed


async def test_a_hold_of_the_fleet_puts_it_off(school: School) -> None:
    await school.warm_up()
    failed = await fail(school)
    assert (await school.post("/api/fleet/hold", {"reason": "audit"})).status_code == 202
    assert (await wait(school, 60)).status == "FAILED"
    visitor = await signed_in(school.plane, Role.OPERATOR)
    for path in (f"/lablets/{failed.id}", f"/bookings/{school.booking['id']}/classes/1"):
        assert "It is made anew when the hold of the fleet ends: try 2 of 5." in await visitor.page(path)
    assert (await school.post("/api/fleet/release")).status_code == 202
    assert (await wait(school, 1)).status == "PENDING_SCHEDULING"


async def test_a_class_that_was_extended_meanwhile_has_it_until_its_new_end(school: School) -> None:
    await school.warm_up()
    failed = await fail(school)
    body = {"minutes": 30}
    assert (await school.post(f"/api/bookings/{school.booking['id']}/extend", body)).status_code == 200
    kept = await first_seat(school)
    assert kept.status == "FAILED"
    seat = await wait(school, 60)
    assert kept.ends_at == seat.ends_at, "its record is kept as long as its class"
    assert failed.ends_at is not None
    assert seat.ends_at is not None
    assert (seat.ends_at - failed.ends_at).total_seconds() == 1800


async def test_a_lablet_that_has_taken_its_name_stops_no_seat(school: School) -> None:
    await school.warm_up()
    failed = await fail(school)
    taken = await school.post("/api/lablets", {"name": failed.name, "definition": "lab"})
    assert taken.status_code == 201, taken.text
    seat = await wait(school, 60)
    assert (seat.id, seat.status, seat.name) == (failed.id, "PENDING_SCHEDULING", f"{failed.name}-2")


async def test_a_controller_does_not_make_it_anew(school: School) -> None:
    await school.warm_up()
    failed = await fail(school)
    body = {"status": "PENDING_SCHEDULING", "version": failed.version, "reason": "again"}
    path = f"/api/internal/lablets/{failed.id}/status"
    refused = await school.post(path, body, role=CONTROLLER)
    assert "only by its class or by a reset" in refused.text


async def test_the_page_of_the_class_says_what_happens_and_resets_it(school: School) -> None:
    await school.warm_up()
    failed = await fail(school)
    visitor = await signed_in(school.plane, Role.OPERATOR)
    path = f"/bookings/{school.booking['id']}/classes/1"
    tile = re.split(r'<li class="tile', await visitor.page(path))[1]
    assert "Not up within 900 s" in tile or "not up within 900 s" in tile
    assert "try 2 of 5" in tile
    assert f"/lablets/{failed.id}/confirm-reset" in tile
    assert "seat-links" not in tile
    await fail(school, retries=4)
    assert "It has failed 5 times and is not made anew by itself: reset it." in await visitor.page(path)
    detail = await visitor.page(f"/lablets/{failed.id}")
    assert "It has failed 5 times" in detail
    assert "act-reset" in detail
    assert "act-end" not in detail
    assert "4 times, as it had failed" in detail
    dialog = await visitor.part(f"/lablets/{failed.id}/confirm-reset")
    assert "A worker of its class will be chosen" in dialog
    done = await visitor.send(f"/lablets/{failed.id}/reset", {"confirm": failed.name})
    assert "reset requested" in done.text
    assert (await first_seat(school)).status == "PENDING_SCHEDULING"
    assert "try 2 of 5" not in await visitor.page(path)


async def test_its_page_says_what_happens_next_and_its_links_go_on(school: School) -> None:
    await school.warm_up()
    seat = await first_seat(school)
    link = (await school.post(f"/api/lablets/{seat.id}/seat-links", {})).json()
    code = link["path"].partition("#")[2]
    sessions, visitors = school.plane.services.seat_sessions, [WebVisitor(school.plane) for _ in range(2)]
    await visitors[0].ask("POST", "/seat/open", data={"code": code})
    await fail(school)
    opened = await visitors[1].ask("POST", "/seat/open", data={"code": code})
    assert opened.headers["location"] == "/my"
    for visitor in visitors:
        page = await visitor.page("/my")
        assert '<span class="status mark-bad">Failed</span>' in page
        assert "It is made anew at" in page
        assert "try 2 of 5" in page
        assert "has ended" not in page
        assert re.findall(rf"/my/{seat.id}/confirm-(\w+)", page) == ["reset"]
    left_out = (await school.post(f"/api/bookings/{school.booking['id']}/occurrences/1/seat-links", {})).json()
    reasons = {each["seat"]: each["reason"] for each in left_out["left_out"]}
    assert reasons[1] == "its lab has failed; create its link when its lab runs again"
    await wait(school, 60)
    assert (await sessions.open(code, "192.0.2.1")).caller.lablet_id == seat.id
    assert "Waiting for a server" in await visitors[0].page("/my")


async def test_a_learner_makes_a_seat_anew_that_lcm_no_longer_does(school: School) -> None:
    await school.warm_up()
    seat = await first_seat(school)
    link = (await school.post(f"/api/lablets/{seat.id}/seat-links", {})).json()
    visitor = WebVisitor(school.plane)
    await visitor.ask("POST", "/seat/open", data={"code": link["path"].partition("#")[2]})
    await fail(school, retries=4)
    assert "It has failed 5 times and is not made anew by itself: reset it." in await visitor.page("/my")
    assert "Reset lab" in await visitor.part(f"/my/{seat.id}/confirm-reset")
    await visitor.send(f"/my/{seat.id}/reset", {"confirm": seat.name})
    assert (await first_seat(school)).status == "PENDING_SCHEDULING"


async def test_a_person_sees_their_failed_seat_while_its_class_is_under_way(school: School) -> None:
    await school.warm_up()
    visitor = await signed_in(school.plane, Role.OPERATOR)
    own = (await school.post("/api/lablets", {"name": "own", "definition": "lab", "owner": "operator"})).json()
    await fail(school, owner=own["owner"], owner_name="operator")
    assert (await school.post(f"/api/lablets/{own['id']}/terminate")).status_code == 202
    assert "It is made anew at" in await visitor.page("/my")
    assert (await school.post(f"/api/bookings/{school.booking['id']}/cancel")).status_code == 200
    assert "No labs now" in await visitor.page("/my")


async def test_names_that_are_all_taken_stop_no_seat(school: School) -> None:
    await school.warm_up()
    failed = await fail(school)
    for name in (failed.name, f"{failed.name}-2"):
        assert (await school.post("/api/lablets", {"name": name, "definition": "lab"})).status_code == 201
    assert (await reset(school, failed)).status_code == 202
    seat = await first_seat(school)
    assert (seat.id, seat.name, seat.status) == (failed.id, f"{failed.name}-3", "PENDING_SCHEDULING")


async def test_a_person_ends_a_failed_seat_for_good(school: School) -> None:
    await school.warm_up()
    failed = await fail(school)
    path = f"/api/lablets/{failed.id}"
    preview = (await school.post(f"{path}/preview", {"action": "end"})).json()
    assert preview["changes"], preview
    assert (await school.post(f"{path}/terminate")).status_code == 202
    ended = await wait(school, 60)
    assert (ended.status, ended.wanted) == ("FAILED", False)
    assert await wait(school, 3600) == ended


async def test_after_its_class_a_link_says_that_the_lab_has_ended(school: School) -> None:
    await school.warm_up()
    seat = await first_seat(school)
    link = (await school.post(f"/api/lablets/{seat.id}/seat-links", {})).json()
    await fail(school, retries=4)
    assert (await school.post(f"/api/bookings/{school.booking['id']}/cancel")).status_code == 200
    await wait(school, 60)
    with pytest.raises(Exception, match=r"This lab has ended"):
        await school.plane.services.seat_sessions.open(link["path"].partition("#")[2], "192.0.2.1")
