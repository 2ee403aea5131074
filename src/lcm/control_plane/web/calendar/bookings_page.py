"""The Bookings page: the classes of a week in the zone of the viewer, and what they take of the limits."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.bookings.access import shown_booking
from lcm.control_plane.records.kinds import BOOKINGS, find_all
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.store.port import Where
from lcm.control_plane.web.auth import InstructorUser, WebUser, is_fragment
from lcm.control_plane.web.calendar.booking_week import ShownWeek, choose_week, week_days, worker_usage
from lcm.control_plane.web.lablets.list_page import chosen_team, team_condition, visible_teams
from lcm.control_plane.web.rendering import render_fragment, render_page
from lcm.core import clock
from lcm.model.booking.record import Booking
from lcm.model.booking.unreadable import read_known

router = APIRouter(include_in_schema=False)


@router.get("/bookings")
async def bookings_page(request: Request, user: InstructorUser) -> HTMLResponse:
    """The whole page, or only the calendar for a refresh by a script. A script adds the zone of the viewer."""
    zone, day = request.query_params.get("zone", ""), request.query_params.get("week", "")
    week = choose_week(zone, day, clock.now())
    values = await _week_values(get_services(request), user, week, chosen_team(request))
    values["zone_is_chosen"] = bool(zone)
    if is_fragment(request):
        return render_fragment("bookings/_calendar.html", user=user, **values)
    return await render_page(request, user, "bookings/page.html", here="bookings", title="Bookings", **values)


async def _week_values(services: Services, user: WebUser, week: ShownWeek, team: str) -> dict[str, Any]:
    """The classes that the user may see, of the chosen team if there is one, and how many workers all classes take.

    Numbers alone name nobody.
    """
    store, now, scope = services.context.store, clock.now(), user.caller.scope
    first, last = week.span
    where = Where(at_least={"ends_at": first.isoformat()}, below={"starts_at": last.isoformat()})
    bookings = [read_known(stored.body, stored.id) async for stored in find_all(store, BOOKINGS, where)]
    chosen = team_condition(team).get("team")
    visible = [
        each for each in bookings if scope.sees(each.team, each.owner) and (chosen is None or each.team in chosen)
    ]
    if not scope.everything:
        visible = [
            Booking.model_validate_json(shown_booking(scope, each.model_dump_json().encode())) for each in visible
        ]
    booked = [booking.capacity(each) for booking in bookings for each in booking.open_occurrences]
    scaling = (await services.context.settings()).scaling
    pool = scaling.license_pool_size or None
    return {
        "week": week,
        "days": week_days(visible, week, now),
        "usage": worker_usage(booked, services.context.regions, scaling.max_workers_per_region, pool, week),
        "teams": await visible_teams(services, user),
        "team": team,
        "address": f"/bookings?{urlencode({'zone': week.zone.key, **({'team': team} if team else {})})}",
    }
