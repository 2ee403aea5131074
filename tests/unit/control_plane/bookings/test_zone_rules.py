"""Classes follow the clocks of their zone, also when the rules of the zone change (calendar.md#time-zones)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from lcm.control_plane.calendar.zone_rules import check_zone_rules
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.booking.record import Booking
from tests.support.virtual.control_plane import SYSTEM
from tests.unit.control_plane.bookings.test_progress import WORKERS_NEEDED, School, school

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction

__all__ = ["school"]  # the fixture
HOUR = timedelta(hours=1)


async def book_at(school: School, name: str, hours: int, *, weeks: int = 1) -> dict[str, Any]:
    start = (clock.now() + hours * HOUR).strftime("%Y-%m-%dT%H:%M")
    body = {"name": name, "definition": "lab", "seats": WORKERS_NEEDED, "start": start, "zone": "UTC"}
    response = await school.post("/api/bookings", {**body, "duration_minutes": 60, "repeat_weeks": weeks})
    assert response.status_code == 201, response.text
    booked: dict[str, Any] = response.json()
    return booked


async def admit_under_other_rules(school: School, booking_id: str, by: timedelta) -> None:
    """The record as it was written when clocks of its zone were `by` later: its instants differ from its wall times."""

    async def attempt(tx: Transaction) -> None:
        booking = await tx.booking(booking_id)
        moved = tuple(
            each.model_copy(update={name: getattr(each, name) + by for name in ("warm_up_at", "starts_at", "ends_at")})
            for each in booking.occurrences
        )
        tx.save_booking(booking.with_occurrences(moved, tx.now), "test")

    await school.plane.services.context.unit_of_work.run(SYSTEM, attempt)


async def read(school: School, booked: dict[str, Any]) -> Booking:
    response = await school.plane.ask("GET", f"/api/bookings/{booked['id']}", role=Role.VIEWER)
    return Booking.model_validate(response.json())


async def check(school: School) -> int:
    return await check_zone_rules(school.plane.services.context, clock.now())


async def test_classes_move_with_the_rules_of_their_zone_and_that_is_audited(school: School) -> None:
    booked = await book_at(school, "class", 48, weeks=2)
    expected = await read(school, booked)
    assert await check(school) == 0
    await admit_under_other_rules(school, booked["id"], HOUR)
    assert await check(school) == 1
    assert await check(school) == 0
    after = await read(school, booked)
    times = [(each.warm_up_at, each.starts_at, each.ends_at, each.at_risk) for each in after.occurrences]
    assert times == [(each.warm_up_at, each.starts_at, each.ends_at, None) for each in expected.occurrences]
    lines = (await school.plane.ask("GET", "/api/audit", params={"subject": booked["id"]})).json()["items"]
    (line,) = [each for each in lines if each["action"] == "zone_rules_changed"]
    assert line["actor"]["name"] == "time-zones"
    assert "class 1 begins at" in line["reason"]
    assert "class 2 begins at" in line["reason"]


async def test_a_moved_class_that_does_not_fit_any_more_is_at_risk_until_it_fits(school: School) -> None:
    await school.set_limit(WORKERS_NEEDED)
    moved = await book_at(school, "moved", 72)
    await admit_under_other_rules(school, moved["id"], 6 * HOUR)
    other = await book_at(school, "other", 72)
    assert await check(school) == 1
    (only,) = (await read(school, moved)).occurrences
    assert only.starts_at == datetime.fromisoformat(other["occurrences"][0]["starts_at"])
    assert only.at_risk is not None
    assert "workers: 6 would be needed, 3 are allowed" in only.at_risk.missing
    assert ("booking_at_risk", "raised") in await school.alerts()
    await school.post(f"/api/bookings/{other['id']}/cancel", {})
    assert await check(school) == 0
    assert (await read(school, moved)).occurrences[0].at_risk is None


async def test_a_class_that_warms_up_stays_where_it_is(school: School) -> None:
    await school.warm_up()
    before = await read(school, school.booking)
    await admit_under_other_rules(school, before.id, timedelta(minutes=15))
    assert await check(school) == 0
