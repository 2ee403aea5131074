"""What `lcm bookings` prints of refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from lcm.cli.commands.calendar.bookings import _admitted, _preview_lines, _request, extend_booking, move_booking
from lcm.cli.errors import CommandError
from lcm.cli.runtime.client_factory import DryRunStopError
from lcm.client.errors import ApiError, BookingRefusedError, NotFoundError
from lcm.control_plane.bookings.proposals import describe_refusal
from lcm.control_plane.http.openapi import load_examples
from lcm.model.booking.record import Booking
from lcm.model.booking.requests import BookingChangePreview, BookingPreview, BookingShortage, FreeTime
from lcm.model.booking.times import to_wall_time
from lcm.model.calendar.admission import Admission, Resource, Shortage
from tests.support.records.workers import NOW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.cli.runtime.session import Session

ZONE = "Asia/Kolkata"


async def test_a_class_that_cannot_be_moved_says_what_is_short_and_when_it_would_fit() -> None:
    answer = Admission((Shortage(Resource.WORKERS, NOW, 4, 3),), (NOW + timedelta(hours=1),))
    problem = describe_refusal(answer, ZONE, timedelta(hours=1))

    async def move() -> Booking:
        raise BookingRefusedError(409, "booking_refused", problem.detail, current=problem.current)

    start = to_wall_time(NOW + timedelta(hours=2), ZONE)
    with pytest.raises(CommandError) as refused:
        await _admitted(move())
    assert "workers: 4 would be needed" in str(refused.value)
    assert str(refused.value).endswith(f"it would fit at {start.at:%Y-%m-%d %H:%M} in {ZONE}")


def test_free_times_that_clocks_show_twice_say_which_one_is_meant() -> None:
    second = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    answer = Admission((Shortage(Resource.WORKERS, NOW, 4, 3),), (second,))
    problem = describe_refusal(answer, "Europe/Brussels", timedelta())
    assert problem.detail.endswith("it would fit at 2026-10-25 02:30 (the second of two) in Europe/Brussels")
    free = (FreeTime(start=to_wall_time(second, "Europe/Brussels"), starts_at=second),)
    refused = BookingPreview(
        confirmed=False, reason="workers", free_times=free, definition="bgp@1", aws_region="eu-west-1", seats=3
    )
    assert _preview_lines(refused)[1] == "It would fit at: 2026-10-25T02:30 --which second in Europe/Brussels"


def test_free_times_name_their_zone() -> None:
    start = to_wall_time(NOW, ZONE)
    refused = BookingPreview(
        confirmed=False,
        reason="workers",
        free_times=(FreeTime(start=start, starts_at=NOW),),
        definition="bgp@1",
        aws_region="eu-west-1",
        seats=3,
    )
    assert _preview_lines(refused)[1] == f"It would fit at: {start.at:%Y-%m-%dT%H:%M} in {ZONE}"


def test_a_refusal_has_each_shortage_and_the_free_times_once() -> None:
    start = to_wall_time(NOW, ZONE)
    message = "workers: 4 would be needed"
    refused = BookingPreview(
        confirmed=False,
        reason=f"{message}; it would fit at {start.at:%Y-%m-%d %H:%M} in {ZONE}",
        shortages=(BookingShortage(resource=Resource.WORKERS, at=NOW, needed=4, allowed=3, message=message),),
        free_times=(FreeTime(start=start, starts_at=NOW),),
        definition="bgp@1",
        aws_region="eu-west-1",
        seats=3,
        template="micro",
    )
    assert _preview_lines(refused) == [message, f"It would fit at: {start.at:%Y-%m-%dT%H:%M} in {ZONE}"]


def test_no_other_time_helps_if_no_template_is_large_enough() -> None:
    reason = "templates: no enabled template is large enough for a seat; add or enable one"
    refused = BookingPreview(confirmed=False, reason=reason, definition="bgp@1", aws_region="eu-west-1", seats=3)
    assert _preview_lines(refused) == [reason]


class EarlierBookings:
    """The bookings of a control plane without previews of changes."""

    def __init__(self, answer: ApiError) -> None:
        self._answer = answer
        self._booking = Booking.model_validate(load_examples()["Booking"])

    async def list(self, **_: object) -> AsyncIterator[Booking]:
        yield self._booking

    async def preview_extension(self, *_: object) -> BookingChangePreview:
        raise self._answer

    preview_move = preview_extension

    async def extend(self, *_: object) -> Booking:
        raise DryRunStopError("POST", "/api/bookings/b-1/extend", {})

    move = extend


@pytest.mark.parametrize("moves", [False, True])
async def test_a_dry_run_at_a_control_plane_without_previews_shows_what_would_be_sent(moves: bool) -> None:
    async def run(answer: ApiError) -> list[tuple[str, str]]:
        bookings = EarlierBookings(answer)
        fake = SimpleNamespace(client=SimpleNamespace(bookings=bookings), dry_run=True, forecast=[])
        session, name = cast("Session", fake), load_examples()["Booking"]["name"]
        start = "2026-11-16T09:00"
        change = move_booking(session, name, 1, start) if moves else extend_booking(session, name, "30m", 1)
        with pytest.raises(DryRunStopError):
            await change
        return session.forecast

    text = "this control plane cannot preview it: whether it fits is known when it is sent"
    absent = NotFoundError(404, "not_found", "/api/bookings/b-1/extend/preview does not exist")
    for answer in (absent, ApiError(405, "method_not_allowed", "POST is not supported here")):
        assert await run(answer) == [("then", text)]
    with pytest.raises(NotFoundError, match="has no class 1"):
        await run(NotFoundError(404, "not_found", "ccna has no class 1"))


async def test_a_dry_run_of_a_change_says_what_it_costs_and_what_may_be_late() -> None:
    bookings = EarlierBookings(ApiError(405, "method_not_allowed", ""))
    answer = BookingChangePreview(confirmed=True, reason="it fits", cost="$3 more than now.", warnings=("It is late.",))

    async def preview(*_: object) -> BookingChangePreview:
        return answer

    bookings.preview_extension = preview  # type: ignore[method-assign]
    fake = SimpleNamespace(client=SimpleNamespace(bookings=bookings), dry_run=True, forecast=[])
    with pytest.raises(DryRunStopError):
        await extend_booking(cast("Session", fake), load_examples()["Booking"]["name"], "30m", 1)
    assert fake.forecast == [("then", each) for each in ("it fits", "$3 more than now.", "It is late.")]


def test_a_learner_option_may_have_a_pasted_list() -> None:
    request = _request(
        "bgp", "bgp@1", 3, "2026-11-16T09:00", ZONE, "4h", None, 1, None, None, ["a@x.org; B <b@x.org>", "Lee, Ann"]
    )
    assert request.learners == ("a@x.org", "b@x.org", "Lee, Ann")
