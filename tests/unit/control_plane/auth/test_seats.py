"""Seat links and the sessions that they open: security.md#seat-links."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.auth.roles import TooManyAttemptsError, UnauthenticatedError
from lcm.control_plane.auth.seats.links import MAX_LINKS_PER_LABLET, SeatLinkService
from lcm.control_plane.auth.seats.sessions import (
    MAX_FAILURES_PER_ADDRESS,
    MAX_SESSIONS_PER_LINK,
    SeatEndedError,
    SeatSessionService,
)
from lcm.control_plane.auth.seats.tries import MAX_ADDRESSES_PER_LINK, MAX_TRIES, TRIES_WINDOW_SECONDS
from lcm.control_plane.auth.security_log import SecurityLog
from lcm.control_plane.auth.session_record import storage_key
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.idempotency import IdempotencyKey
from lcm.control_plane.records.kinds import AUDIT, LABLETS, SEAT_LINKS, SEAT_SESSIONS, SEAT_TRIES
from lcm.core import clock
from tests.support.records.lablet_records import ANNA, LabletDesk
from tests.support.records.unreadable import make_unreadable

if TYPE_CHECKING:
    from lcm.control_plane.auth.seats.sessions import SeatSession
    from lcm.control_plane.secrets.encryption import Secret
    from lcm.control_plane.store.port import Kind
    from lcm.model.lablet.record import Lablet
    from lcm.model.lablet.seat_link import SeatLink

HERE = "198.51.100.7"
HOUR = timedelta(hours=1)


class Seats(LabletDesk):
    """A control plane with lablets; `sessions` and `others` are those of two processes on one store."""

    async def begin(self) -> tuple[Seats, Lablet]:
        await self.open()
        await self.define()
        self.links = SeatLinkService(self.store, self.unit_of_work)
        self.sessions, self.others = (
            SeatSessionService(self.store, self.unit_of_work, SecurityLog(self.store)) for _ in range(2)
        )
        return self, await self.make(name="mine")

    async def link(self, lablet: Lablet, lasts: timedelta | None = None) -> tuple[SeatLink, str]:
        until = None if lasts is None else clock.now() + lasts
        link, path = await self.links.create(ANNA, lablet, until)
        page, _, code = path.reveal().partition("#")
        assert page == "/seat"
        return link, code

    async def open_seat(self, lablet: Lablet) -> SeatSession:
        return await self.sessions.open((await self.link(lablet))[1], HERE)

    async def goes_on(self, session: SeatSession) -> list[bool]:
        return [await each.still_valid(session.id.reveal()) for each in (self.sessions, self.others)]


async def test_a_link_opens_its_lablet_on_any_control_plane_and_more_than_once() -> None:
    seats, lablet = await Seats().begin()
    link, code = await seats.link(lablet)
    phone, laptop = await seats.sessions.open(code, HERE), await seats.others.open(code, "203.0.113.9")
    assert phone.id != laptop.id
    assert phone.caller.lablet_id == laptop.caller.lablet_id == lablet.id
    assert await seats.goes_on(phone) == await seats.goes_on(laptop) == [True, True]
    (listed,) = (await seats.links.page(lablet.id)).items
    assert (listed.id, listed.opened, listed.created_by) == (link.id, 2, "anna")
    assert "digest" not in listed.model_dump()
    lines = [(line["action"], line["actor"]["name"]) for line in await seats.entries(AUDIT, lablet.id)]
    assert lines[1:] == [("seat_link_created", "anna"), *[("seat_opened", f"seat link {link.id}")] * 2]


@pytest.mark.parametrize("kind", [SEAT_SESSIONS, SEAT_LINKS, LABLETS], ids=lambda kind: kind.name)
async def test_a_seat_whose_record_cannot_be_read_has_ended_and_no_other(kind: Kind) -> None:
    seats, lablet = await Seats().begin()
    other = await seats.open_seat(await seats.make(name="other"))
    session = await seats.open_seat(lablet)
    key = {SEAT_SESSIONS: storage_key(session.id.reveal()), SEAT_LINKS: session.caller.link_id, LABLETS: lablet.id}[
        kind
    ]
    await make_unreadable(seats.store, kind, key)
    assert await seats.goes_on(session) == [False, False]
    with pytest.raises(SeatEndedError, match="Open your link again" if kind is SEAT_SESSIONS else "LCM cannot read"):
        await seats.sessions.resume(session.id.reveal())
    assert await seats.goes_on(other) == [True, True]


async def test_a_link_that_cannot_be_read_opens_nothing() -> None:
    seats, lablet = await Seats().begin()
    link, code = await seats.link(lablet)
    await make_unreadable(seats.store, SEAT_LINKS, link.id)
    with pytest.raises(UnauthenticatedError, match="not valid"):
        await seats.sessions.open(code, HERE)


async def test_no_code_is_stored() -> None:
    seats, lablet = await Seats().begin()
    _, code = await seats.link(lablet)
    session = await seats.sessions.open(code, HERE)
    for kind in (SEAT_LINKS, SEAT_SESSIONS):
        for stored in (await seats.store.find(kind)).items:
            text = f"{stored.id} {stored.body.decode()}"
            assert code.partition(".")[2] not in text
            assert session.id.reveal() not in text


async def test_a_revocation_ends_what_the_link_opened_everywhere_and_at_once() -> None:
    seats, lablet = await Seats().begin()
    link, code = await seats.link(lablet)
    other_link, other_code = await seats.link(lablet)
    session, kept = await seats.sessions.open(code, HERE), await seats.sessions.open(other_code, HERE)
    revoked = await seats.links.revoke(ANNA, lablet.id, link.id)
    assert revoked.revoked_by == "anna"
    assert await seats.goes_on(session) == [False, False]
    assert await seats.goes_on(kept) == [True, True], "another link is another matter"
    with pytest.raises(SeatEndedError, match="This link was revoked"):
        await seats.others.resume(session.id.reveal())
    with pytest.raises(UnauthenticatedError, match="This link was revoked"):
        await seats.others.open(code, HERE)
    commits = seats.commits
    assert await seats.links.revoke(ANNA, lablet.id, link.id) == revoked
    assert seats.commits == commits, "a repetition changes nothing"
    another = await seats.make(name="another")
    with pytest.raises(ProblemError, match="has no seat link"):
        await seats.links.revoke(ANNA, another.id, other_link.id)


async def test_a_link_expires_and_what_it_opened_goes_on_until_the_lab_ends() -> None:
    seats, lablet = await Seats().begin()
    _, code = await seats.link(lablet, HOUR)
    session = await seats.sessions.open(code, HERE)
    await asyncio.sleep(3601)
    with pytest.raises(UnauthenticatedError, match=r"This link has expired\. Ask the person who gave it to you"):
        await seats.sessions.open(code, HERE)
    assert await seats.goes_on(session) == [True, True]
    await seats.end(lablet)
    assert await seats.goes_on(session) == [False, False]
    with pytest.raises(SeatEndedError, match="This lab has ended"):
        await seats.sessions.resume(session.id.reveal())
    with pytest.raises(ProblemError, match="mine is ending or has ended"):
        await seats.link(lablet)


@pytest.mark.parametrize(
    ("lasts", "why"), [(-HOUR, "expires_at: .* is not in the future"), (31 * 24 * HOUR, "after 30 days at most")]
)
async def test_an_impossible_expiry_is_rejected(lasts: timedelta, why: str) -> None:
    seats, lablet = await Seats().begin()
    with pytest.raises(ProblemError, match=why):
        await seats.link(lablet, lasts)


async def test_after_five_wrong_codes_a_link_is_refused_there_for_a_time() -> None:
    """Also with the right code. Elsewhere it opens, and so does another link of a class behind the same address."""
    seats, lablet = await Seats().begin()
    link, code = await seats.link(lablet)
    _, other = await seats.link(lablet)
    wrong = f"{link.id}.{'0' * 64}"
    for _ in range(MAX_TRIES):
        with pytest.raises(UnauthenticatedError, match="This link is not valid"):
            await seats.sessions.open(wrong, HERE)
    for guess in (wrong, code):
        with pytest.raises(TooManyAttemptsError):
            await seats.sessions.open(guess, HERE)
    await seats.sessions.open(code, "203.0.113.9")
    await seats.sessions.open(other, HERE)
    await asyncio.sleep(TRIES_WINDOW_SECONDS)
    await seats.sessions.open(code, HERE)


async def test_control_planes_count_the_wrong_codes_together() -> None:
    """Also those that are sent at once; what comes later is refused by all of them, and by one that starts anew."""
    seats, lablet = await Seats().begin()
    link, code = await seats.link(lablet)
    planes = [SeatSessionService(seats.store, seats.unit_of_work, SecurityLog(seats.store)) for _ in range(10)]
    wrong = [each.open(f"{link.id}.{number:064x}", HERE) for number, each in enumerate(planes)]
    answers = await asyncio.gather(*wrong, return_exceptions=True)
    assert [type(each) for each in answers].count(TooManyAttemptsError) == len(planes) - MAX_TRIES
    fresh = SeatSessionService(seats.store, seats.unit_of_work, SecurityLog(seats.store))
    for each in (seats.sessions, seats.others, fresh):
        with pytest.raises(
            TooManyAttemptsError, match=r"This link was opened with a wrong code too often\. Try again in"
        ):
            await each.open(code, HERE)
    await asyncio.sleep(TRIES_WINDOW_SECONDS)
    await fresh.open(code, HERE)


async def test_guesses_do_not_fill_the_store() -> None:
    """A link that does not exist has no record; one that does has one, with as many addresses as are of use."""
    seats, lablet = await Seats().begin()
    link, _ = await seats.link(lablet)
    for number in range(MAX_ADDRESSES_PER_LINK + 50):
        for guessed in (link.id, f"seat-{number}"):
            with pytest.raises(UnauthenticatedError):
                await seats.sessions.open(f"{guessed}.{'0' * 64}", f"198.51.{number // 250}.{number % 250}")
    (stored,) = (await seats.store.find(SEAT_TRIES)).items
    assert stored.body.count(b"198.51.") == MAX_ADDRESSES_PER_LINK
    await asyncio.sleep(TRIES_WINDOW_SECONDS + 1)
    assert await seats.sessions.sweep() == 1
    assert not (await seats.store.find(SEAT_TRIES)).items


async def test_a_closed_link_says_why_however_often_it_is_opened() -> None:
    """Its code was right: that is no guess, and waiting would not help."""
    seats, lablet = await Seats().begin()
    _, expired = await seats.link(lablet, HOUR)
    link, revoked = await seats.link(lablet, 2 * HOUR)
    await seats.links.revoke(ANNA, lablet.id, link.id)
    await asyncio.sleep(3601)
    for code, why in ((expired, "This link has expired"), (revoked, "This link was revoked")):
        for _ in range(2 * MAX_TRIES):
            with pytest.raises(UnauthenticatedError, match=rf"{why}\. Ask the person who gave it to you for a new one"):
                await seats.sessions.open(code, HERE)


async def test_a_link_to_a_lab_that_cannot_be_read_asks_for_its_repair() -> None:
    """A new link would not help."""
    seats, lablet = await Seats().begin()
    _, code = await seats.link(lablet)
    await make_unreadable(seats.store, LABLETS, lablet.id)
    with pytest.raises(UnauthenticatedError, match=r"this lab\. Ask the person who gave you the link to have it"):
        await seats.sessions.open(code, HERE)


async def test_guesses_at_many_links_are_refused_too() -> None:
    seats, lablet = await Seats().begin()
    _, code = await seats.link(lablet)
    for number in range(MAX_FAILURES_PER_ADDRESS):
        with pytest.raises(UnauthenticatedError):
            await seats.sessions.open(f"seat-{number}.{'0' * 64}", HERE)
    with pytest.raises(TooManyAttemptsError):
        await seats.sessions.open(code, HERE)
    await seats.sessions.open(code, "203.0.113.9")


@pytest.mark.parametrize("text", ["", "x", "seat-1.00", f"seat-none.{'0' * 64}", f"SEAT.{'g' * 64}", "é.\ud800"])
async def test_anything_else_opens_nothing(text: str) -> None:
    seats, _ = await Seats().begin()
    with pytest.raises(UnauthenticatedError, match="This link is not valid"):
        await seats.sessions.open(text, HERE)
    with pytest.raises(SeatEndedError):
        await seats.sessions.resume(text)


async def test_what_is_no_longer_needed_is_removed() -> None:
    seats, lablet = await Seats().begin()
    _, code = await seats.link(lablet, HOUR)
    for _ in range(MAX_SESSIONS_PER_LINK + 2):
        await seats.sessions.open(code, HERE)
        await asyncio.sleep(1)
    assert len((await seats.store.find(SEAT_SESSIONS)).items) == MAX_SESSIONS_PER_LINK
    await asyncio.sleep(24 * 3600)
    assert await seats.sessions.sweep() == 0, "a session may still need its expired link"
    await asyncio.sleep(7 * 24 * 3600)
    assert await seats.sessions.sweep() == MAX_SESSIONS_PER_LINK + 1


async def test_a_lablet_has_a_limited_number_of_links() -> None:
    seats, lablet = await Seats().begin()
    for _ in range(MAX_LINKS_PER_LABLET):
        await seats.link(lablet)
    with pytest.raises(ProblemError, match="which is the limit"):
        await seats.link(lablet)


@pytest.mark.parametrize("of_a_class", [False, True])
async def test_a_form_that_is_sent_again_at_the_limit_replaces_its_link(of_a_class: bool) -> None:
    """The code of the first answer is lost: without another link nobody could use the seat."""
    seats, lablet = await Seats().begin()
    for _ in range(MAX_LINKS_PER_LABLET - 1):
        await seats.link(lablet)
    form = IdempotencyKey("anna", "form", b"POST /seat-links")

    async def send() -> tuple[SeatLink, Secret]:
        if of_a_class:
            return (await seats.links.create_many(ANNA, [lablet], clock.now() + HOUR, form))[lablet.id]
        return await seats.links.create(ANNA, lablet, None, form)

    sent = [await send() for _ in range(3)]
    listed = {each.id: each for each in (await seats.links.page(lablet.id)).items}
    assert [listed[link.id].revoked_at is None for link, _ in sent] == [False, False, True]
    assert (await seats.sessions.open(sent[-1][1].reveal().partition("#")[2], HERE)).caller.lablet_id == lablet.id
    with pytest.raises(ProblemError, match="which is the limit"):
        await seats.link(lablet)
    for _ in range(MAX_LINKS_PER_LABLET):
        with suppress(ProblemError, KeyError):
            await send()
    assert len((await seats.links.page(lablet.id, limit=1000)).items) == 2 * MAX_LINKS_PER_LABLET


async def test_leaving_forgets_the_seat_in_this_browser() -> None:
    seats, lablet = await Seats().begin()
    _, code = await seats.link(lablet)
    session = await seats.sessions.open(code, HERE)
    await seats.sessions.end(session.id.reveal())
    assert await seats.goes_on(session) == [False, False]
