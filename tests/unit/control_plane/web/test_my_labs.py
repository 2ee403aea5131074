"""The learners' page, and what a seat link opens: one lab, and nothing else. security.md#seat-links."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request
from starlette.routing import Route

from lcm.control_plane.auth.seats.sessions import SeatCaller, SeatSession
from lcm.control_plane.auth.teams import put_team
from lcm.control_plane.journal.sse_client import EventFilter
from lcm.control_plane.records.kinds import AUDIT, LABLET_CHANGED, LABLETS, WORKERS
from lcm.control_plane.secrets.encryption import Secret
from lcm.control_plane.web.auth import WebUser
from lcm.control_plane.web.my.access import LabUser, stream_access
from lcm.control_plane.web.my.page import _announcements, _concerns
from lcm.control_plane.workers.lifecycle import updated_record
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.team import Team
from tests.support.records.unreadable import make_unreadable
from tests.support.virtual.control_plane import SYSTEM
from tests.support.web.lablets import LabletWorld
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lcm.control_plane.records.unit_of_work import Transaction
    from tests.support.virtual.control_plane import TestPlane

SEAT_PATHS = {"/my", "/my/now", "/my/session", "/my/events", "/seat", "/seat/open", "/seat/leave"}
"""All that a browser with a seat gets something from, besides what anybody gets and its own lablet below /my/."""
PUBLIC_PATHS = re.compile(r"/static/|/favicon\.ico|/sign-in|/sign-out|/docs|/openapi\.json|/api/session|/api/spec")


@pytest.fixture
async def world(plane: TestPlane) -> LabletWorld:
    made = await LabletWorld(plane).open()
    await made.define()
    return made


async def runs(world: LabletWorld, name: str, owner: str = "anna") -> dict[str, Any]:
    lablet = await world.make(name, owner=owner, time_to_live_minutes=60.0)
    worker = await world.worker(name.replace("-", "").ljust(8, "0")[:8])
    lablet = await world.report(await world.place(lablet, worker), "INSTANTIATING", lab_id=f"lab-{name}")
    return await world.report(lablet, "RUNNING")


async def a_link(world: LabletWorld, lablet: dict[str, Any], **body: Any) -> tuple[str, str]:
    """The id and the code of a new link."""
    response = await world.plane.ask("POST", f"/api/lablets/{lablet['id']}/seat-links", json=body)
    assert response.status_code == 201, response.text
    created = response.json()
    return created["link"]["id"], created["path"].partition("#")[2]


async def seated(world: LabletWorld, lablet: dict[str, Any]) -> WebVisitor:
    """A browser that has opened a link."""
    _, code = await a_link(world, lablet)
    visitor = WebVisitor(world.plane)
    opened = await visitor.ask("POST", "/seat/open", data={"code": code})
    assert (opened.status_code, opened.headers["location"]) == (303, "/my")
    await visitor.page("/my")
    return visitor


async def test_opening_the_page_of_a_link_changes_nothing(world: LabletWorld) -> None:
    lablet = await runs(world, "mine")
    link_id, code = await a_link(world, lablet)
    visitor = WebVisitor(world.plane)
    for path in ("/seat", f"/seat?code={code}"):
        response = await visitor.ask("GET", path)
        assert response.status_code == 200
        assert "set-cookie" not in response.headers
    assert (await visitor.ask("GET", "/seat/open")).status_code == 405
    listed = (await world.plane.ask("GET", f"/api/lablets/{lablet['id']}/seat-links")).json()["items"]
    assert [(each["id"], each["opened"]) for each in listed] == [(link_id, 0)]
    assert code.partition(".")[2] not in str(listed)


async def test_a_lab_is_not_running_while_its_worker_is_stopped(world: LabletWorld) -> None:
    lablet = await runs(world, "mine")
    visitor = await seated(world, lablet)
    worker = await world.plane.ask("GET", f"/api/workers/{lablet['worker_id']}")
    await world.plane.report(worker.json(), "STOPPED")
    page = await visitor.page("/my")
    assert '<span class="status mark-calm">Not reachable</span>' in page
    assert "The lab is stopped with its worker mine0000, which has been STOPPED since <time" in page


async def test_a_seat_reaches_extends_resets_and_ends_its_lab(world: LabletWorld) -> None:
    lablet = await runs(world, "mine")
    visitor = await seated(world, lablet)
    page = await visitor.page("/my")
    for text in ("mine", "Running", "192.0.2.7", "https://192.0.2.7/lab/lab-mine", "data-ends=", "Open in CML"):
        assert text in page, text
    own = f"/my/{lablet['id']}"
    assert "It will end in 1 hour 30 minutes" in await visitor.part(f"{own}/confirm-extend")
    assert (await visitor.send(f"{own}/extend", {"minutes": "60"})).status_code == 200
    assert (await world.now(lablet))["time_to_live_minutes"] == pytest.approx(120, abs=0.1)
    assert "will be stopped, wiped and deleted; then a new one" in await visitor.part(f"{own}/confirm-reset")
    version = str((await world.now(lablet))["version"])
    assert (await visitor.send(f"{own}/reset", {"version": version})).status_code == 200
    assert (await world.now(lablet))["placement_attempt"] == 2
    assert (await visitor.send(f"{own}/end", {"version": version})).status_code == 412, "it has changed since"
    assert "What is lost" in await visitor.part(f"{own}/confirm-end")
    assert (await visitor.send(f"{own}/end")).status_code == 200
    assert "Ending" in await visitor.part("/my/now")
    store = world.plane.services.context.store
    lines = [entry.body for entry in await store.read_journal(topics=[AUDIT], subjects=[lablet["id"]])]
    by_seat = [line for line in lines if b"seat link seat-" in line]
    assert len(by_seat) == 4, "opened, extended, reset and ended"
    stopping = await world.report(await world.now(lablet), "STOPPING")
    await world.report(stopping, "TERMINATED")
    assert "This lab has ended." in await visitor.page("/my", 401)
    assert (await visitor.ask("GET", "/my/session", headers={"HX-Request": "true"})).status_code == 401


async def test_a_seat_learns_of_a_hold_and_not_whose_it_is(world: LabletWorld) -> None:
    """Whoever has a link may have no account: the names of people of the platform are not for them."""
    lablet = await runs(world, "mine")
    await world.plane.ask("POST", "/api/fleet/hold", role=Role.ADMIN, json={"reason": "exam"})
    visitor = await seated(world, lablet)
    for action in ("reset", "end"):
        dialog = await visitor.part(f"/my/{lablet['id']}/confirm-{action}")
        assert "An operator put mine0000 or the fleet on hold" in dialog
        assert "admin" not in dialog
    office = await signed_in(world.plane, Role.OPERATOR)
    assert "admin put" in await office.part(f"/lablets/{lablet['id']}/confirm-end")


async def test_a_change_needs_the_token_of_the_page(world: LabletWorld) -> None:
    lablet = await runs(world, "mine")
    visitor = await seated(world, lablet)
    for token in ("", "0" * 64):
        answer = await visitor.send(f"/my/{lablet['id']}/reset", csrf=token)
        assert answer.status_code == 403
    assert (await world.now(lablet))["status"] == "RUNNING"
    foreign = await WebVisitor(world.plane).ask(
        "POST", "/seat/open", data={"code": "x"}, headers={"Origin": "https://evil.example"}
    )
    assert foreign.status_code == 403


async def refused_everywhere(
    world: LabletWorld, visitor: WebVisitor, other: dict[str, Any], *, pages_only: bool = False
) -> int:
    """The number of routes that tell nothing about a lablet of others; any other answer fails."""
    ids = {"lablet_id": other["id"], "worker_id": other["worker_id"], "name": other["name"], "path": "x"}
    refused = 0
    for route in world.plane.app.routes:
        if not isinstance(route, Route) or (pages_only and route.path.startswith("/api/")):
            continue
        path = re.sub(r"{(\w+)(:path)?}", lambda match: str(ids.get(match[1], "x")), route.path)
        if route.path in SEAT_PATHS or PUBLIC_PATHS.match(path):
            continue
        for method in (route.methods or set()) - {"HEAD"}:
            headers = {"HX-Request": "true", "X-LCM-CSRF": visitor.csrf}
            response = await visitor.ask(method, path, headers=headers)
            assert response.status_code in (401, 403, 404), (method, route.path, response.status_code)
            for secret in (other["name"], other["worker_id"], "bob"):
                assert secret not in response.text.replace(path, ""), (method, route.path, secret)
            refused += 1
    return refused


async def test_a_seat_sees_nothing_else(world: LabletWorld) -> None:
    """Every route of the app, with the ids of records of others; a new route takes part by itself."""
    lablet, other = await runs(world, "mine"), await runs(world, "secret-lab", owner="bob")
    visitor = await seated(world, lablet)
    await visitor.page("/my")
    assert await refused_everywhere(world, visitor, other) > 150
    for path in ("/my", "/my/now"):
        page = await visitor.page(path)
        assert lablet["name"] in page
        assert "secret-lab" not in page
        assert other["worker_id"] not in page
    assert (await world.now(other))["status"] == "RUNNING"


async def listen(events: AsyncGenerator[bytes, None], user: LabUser, heard: list[bytes]) -> None:
    """What the page of this user passes on, while it is open."""
    async with aclosing(_announcements(events, lambda data: _concerns(user, data))) as announced:
        async for event in announced:
            heard.append(event)  # noqa: PERF401 - while it listens, the test looks at what was heard


async def test_its_stream_tells_only_that_its_own_lab_has_changed(world: LabletWorld) -> None:
    lablet, other = await runs(world, "mine"), await runs(world, "secret-lab", owner="bob")
    link_id, code = await a_link(world, lablet)
    services = world.plane.services
    session = await services.seat_sessions.open(code, "198.51.100.7")
    user = LabUser(None, session, session.csrf.reveal())
    access = await stream_access(_a_request(world), user)
    # Without a filter of the stream: what the page passes on is right by itself.
    events = services.stream.subscribe(EventFilter(), None, access)
    heard: list[bytes] = []

    listening = asyncio.create_task(listen(events, user, heard))
    await asyncio.sleep(1)
    await world.plane.ask("POST", f"/api/lablets/{other['id']}/reset")
    await asyncio.sleep(1)
    assert not any(b"event: lablet\n" in event for event in heard)
    await world.plane.ask("POST", f"/api/lablets/{lablet['id']}/reset")
    await asyncio.sleep(1)
    assert [event for event in heard if b"event: lablet\n" in event] == [b"event: lablet\ndata: {}\n\n"]
    await services.seat_links.revoke(SeatCaller("admin", ""), lablet["id"], link_id)
    await asyncio.wait_for(listening, 10)
    assert heard[-1] == b"event: signed_out\ndata: {}\n\n"
    assert not any(b"id:" in event or b"secret" in event for event in heard)


async def test_a_member_of_a_team_hears_of_their_seat_in_another_team_and_of_nothing_else_there(
    world: LabletWorld,
) -> None:
    services = world.plane.services
    await a_team(world, "t-1")
    await a_team(world, "t-2")
    info, secret = await services.authenticator.tokens.create("ann", Role.LEARNER, team="t-1", created_by="test")
    own, seat, other = [await runs(world, name, owner="bob") for name in ("mine", "seat", "secret-lab")]
    await given_to(world, own, "t-1", f"token:{info.id}")
    for each in (seat, other):
        await given_to(world, each, "t-2", "token:bob")
    link_id, code = await a_link(world, seat)
    session = await services.seat_sessions.open(code, "198.51.100.7")
    person = await services.authenticator.in_teams(await services.authenticator.tokens.verify(secret.reveal()))
    user = LabUser(WebUser(person, ""), session, "")
    access = await stream_access(_a_request(world), user)
    events = services.stream.subscribe(EventFilter(), None, access)
    heard: list[bytes] = []

    async def hears_of(lablet: dict[str, Any]) -> bool:
        known = len(heard)
        await world.plane.ask("POST", f"/api/lablets/{lablet['id']}/reset")
        await asyncio.sleep(1)
        return any(event == b"event: lablet\ndata: {}\n\n" for event in heard[known:])

    listening = asyncio.create_task(listen(events, user, heard))
    await asyncio.sleep(1)
    assert [await hears_of(each) for each in (own, seat, other)] == [True, True, False]
    await services.seat_links.revoke(SeatCaller("admin", ""), seat["id"], link_id)
    await asyncio.wait_for(listening, 10)
    assert heard[-1] == b"event: signed_out\ndata: {}\n\n", "the page is read again, without the seat"


async def test_a_revoked_link_ends_what_it_opened(world: LabletWorld) -> None:
    lablet = await runs(world, "mine")
    link_id, code = await a_link(world, lablet)
    visitor = WebVisitor(world.plane)
    await visitor.ask("POST", "/seat/open", data={"code": code})
    await visitor.page("/my")
    revoked = await world.plane.ask("DELETE", f"/api/lablets/{lablet['id']}/seat-links/{link_id}")
    assert revoked.json()["revoked_by"] == "operator"
    assert "This link was revoked." in await visitor.page("/my", 401)
    assert (await visitor.send(f"/my/{lablet['id']}/end")).status_code == 401
    again = await visitor.ask("POST", "/seat/open", data={"code": code})
    assert (again.status_code, "This link was revoked." in again.text) == (401, True)
    assert (await world.now(lablet))["wanted"] is True


async def test_five_wrong_codes_are_enough(world: LabletWorld) -> None:
    lablet = await runs(world, "mine")
    link_id, code = await a_link(world, lablet)
    visitor = WebVisitor(world.plane)
    for _ in range(5):
        answer = await visitor.ask("POST", "/seat/open", data={"code": f"{link_id}.{'0' * 64}"})
        assert answer.status_code == 401
    refused = await visitor.ask("POST", "/seat/open", data={"code": code})
    assert refused.status_code == 429
    assert "Try again in " in refused.text
    await asyncio.sleep(901)
    assert (await visitor.ask("POST", "/seat/open", data={"code": code})).status_code == 303


async def test_leaving_and_coming_back(world: LabletWorld) -> None:
    lablet = await runs(world, "mine")
    visitor = await seated(world, lablet)
    left = await visitor.ask("POST", "/seat/leave")
    assert (left.status_code, left.headers["location"]) == (303, "/seat")
    assert "Your session has ended" in await visitor.page("/my", 401)


async def test_a_person_sees_the_labs_that_they_own(world: LabletWorld) -> None:
    own, other = await runs(world, "mine", owner="operator"), await runs(world, "theirs", owner="anna")
    visitor = await signed_in(world.plane, Role.OPERATOR)
    page = await visitor.page("/my")
    assert own["name"] in page
    assert "theirs" not in page
    extended = await visitor.send(f"/my/{own['id']}/extend", {"minutes": "30"})
    assert extended.status_code == 200, extended.text
    assert (await visitor.send(f"/my/{other['id']}/end")).status_code == 404
    assert (await visitor.send("/my/l-none/end")).status_code == 404
    named = await runs(world, "read", owner="viewer")
    viewer = await signed_in(world.plane, Role.VIEWER)
    assert "No labs now" in await viewer.page("/my"), "the name of an owner proves nothing"
    assert (await viewer.send(f"/my/{named['id']}/end")).status_code == 404
    anonymous = await WebVisitor(world.plane).ask("GET", "/my")
    assert (anonymous.status_code, anonymous.headers["location"]) == (303, "/sign-in?next=%2Fmy")


async def test_a_lab_that_cannot_be_read_hides_no_other(world: LabletWorld) -> None:
    own = await runs(world, "mine", owner="operator")
    store, found_by = world.plane.services.context.store, {"owner": "operator", "status": "RUNNING"}
    await make_unreadable(store, LABLETS, "l-broken", created_at=clock.now().timestamp(), **found_by)
    visitor = await signed_in(world.plane, Role.OPERATOR)
    assert own["name"] in await visitor.page("/my")
    await make_unreadable(store, WORKERS, own["worker_id"])
    page = await visitor.page("/my")
    assert own["name"] in page
    assert "192.0.2.7" not in page, "nobody knows where its worker is"


async def a_team(world: LabletWorld, name: str) -> None:
    team = Team(id=name, name=name, created_at=clock.now(), updated_at=clock.now())
    await world.plane.services.context.store.commit([put_team(team, None)])
    world.plane.services.directory.forget()


async def given_to(world: LabletWorld, lablet: dict[str, Any], team: str, owner: str) -> None:
    """As an admin who assigns it to a team and an owner."""

    async def attempt(tx: Transaction) -> None:
        found = await tx.lablet(lablet["id"])
        tx.save_lablet(updated_record(found, tx.now, team=team, owner=owner), "assigned")

    await world.plane.services.context.unit_of_work.run(SYSTEM, attempt)


@pytest.mark.parametrize("role", [Role.LEARNER, Role.INSTRUCTOR])
async def test_a_person_of_a_team_sees_their_labs_and_no_page_of_the_fleet(world: LabletWorld, role: Role) -> None:
    """A role in a team is none for the fleet: its pages lead to the page of their labs."""
    for each in ("t-1", "t-2"):
        await a_team(world, each)
    info, secret = await world.plane.services.authenticator.tokens.create("ann", role, team="t-1", created_by="test")
    own, other, elsewhere = await runs(world, "mine"), await runs(world, "theirs"), await runs(world, "another")
    await given_to(world, own, "t-1", f"token:{info.id}")
    await given_to(world, other, "t-1", "token:bob")
    await given_to(world, elsewhere, "t-2", f"token:{info.id}")
    visitor = WebVisitor(world.plane)
    assert (await visitor.ask("POST", "/sign-in", data={"token": secret.reveal()})).status_code == 303
    page = await visitor.page("/my")
    assert "mine" in page
    assert "theirs" not in page
    assert "another" not in page
    assert 'href="/"' not in page
    extended = await visitor.send(f"/my/{own['id']}/extend", {"minutes": "30"})
    assert extended.status_code == 200, extended.text
    assert (await visitor.send(f"/my/{own['id']}/reset")).status_code == 200
    assert (await world.now(own))["placement_attempt"] == 2
    for lablet in (other, elsewhere):
        assert (await visitor.send(f"/my/{lablet['id']}/end")).status_code == 404
    for path in ("/fleet", "/activity", "/system", "/settings"):
        moved = await visitor.ask("GET", path)
        assert (moved.status_code, moved.headers.get("location")) == (303, "/my"), path
        assert (await visitor.ask("GET", path, headers={"HX-Request": "true"})).status_code == 403, path
    assert (await world.now(other))["wanted"] is True


async def test_a_person_with_a_seat_has_both(world: LabletWorld) -> None:
    """An instructor who tries the link stays signed in, and sees what it opens."""
    lablet = await runs(world, "for-anna")
    visitor = await signed_in(world.plane, Role.VIEWER)
    mine = visitor.cookie
    _, code = await a_link(world, lablet)
    await visitor.ask("POST", "/seat/open", data={"code": code})
    visitor.cookie = f"{mine}; {visitor.cookie}"
    assert "for-anna" in await visitor.page("/my")
    assert (await visitor.send(f"/my/{lablet['id']}/extend", {"minutes": "30"})).status_code == 200
    assert "act-end" not in await visitor.page(f"/lablets/{lablet['id']}"), "their role is what it was"


async def test_links_are_made_copied_and_revoked_in_a_dialog(world: LabletWorld) -> None:
    lablet = await runs(world, "mine")
    visitor = await signed_in(world.plane, Role.OPERATOR)
    address = f"/lablets/{lablet['id']}"
    assert "act-seat" in await visitor.page(address)
    assert "sees nothing else" in await visitor.part(f"{address}/seat-links")
    made = (await visitor.send(f"{address}/seat-links", {"hours": "4"})).text
    code = re.search(r'data-copy="http://lcm.test/seat#([^"]+)"', made)
    assert code is not None
    assert (await WebVisitor(world.plane).ask("POST", "/seat/open", data={"code": code[1]})).status_code == 303
    dialog = await visitor.part(f"{address}/seat-links")
    assert "opened 1 time<" in dialog
    assert code[1].partition(".")[2] not in dialog, "it is shown once"
    link_id = code[1].partition(".")[0]
    assert link_id not in (await visitor.send(f"{address}/seat-links/{link_id}/revoke")).text
    assert "hours: must be one of" in (await visitor.send(f"{address}/seat-links", {"hours": "5"})).text
    viewer = await signed_in(world.plane, Role.VIEWER)
    assert (await viewer.send(f"{address}/seat-links", {"hours": "4"})).status_code == 403


def _a_request(world: LabletWorld) -> Request:
    scope = {"type": "http", "scheme": "http", "path": "/my/events", "headers": [], "app": world.plane.app}
    return Request(scope)


def test_a_seat_is_not_the_owner_of_labs_without_an_id() -> None:
    """What cannot be read is nobody's."""
    seat = SeatSession(Secret("x"), Secret("y"), SeatCaller("seat-1", "l-1"), clock.now() + timedelta(hours=1))
    assert not _concerns(LabUser(None, seat, ""), b"{}")
    assert LABLET_CHANGED == "lablet"
