"""The Schedules page: read by all users, changed by operators; its form shows the week before it is saved."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lcm.control_plane.web.calendar.week import BAR_WIDTH, week_rows
from lcm.model.access import Role
from lcm.model.calendar.schedule_preview import ScheduledOpening
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

FORM = {
    "name": "office",
    "zone": "Europe/Brussels",
    "windows": "mon-fri 08:00-18:00\r\nsat 10:00-12:00",
    "exceptions": "",
    "names": "alpha, beta",
    "templates": "",
    "tags": "",
    "outside": "stop",
    "enabled": "on",
}


async def test_an_operator_creates_changes_and_deletes_a_schedule(plane: TestPlane) -> None:
    worker = await plane.running("alpha")
    operator = await signed_in(plane, Role.OPERATOR)
    assert "No schedules" in await operator.page("/schedules")
    assert "Schedule office created" in (await operator.send("/schedules/save", FORM)).text
    [status] = await plane.services.schedules.statuses()
    schedule = status.schedule
    assert schedule.windows == ("mon-fri 08:00-18:00", "sat 10:00-12:00")
    assert schedule.selector.names == ("alpha", "beta")
    page = await operator.page("/schedules")
    assert "name alpha or beta" in page
    assert "open" in page  # it is Saturday, 11:30 in Brussels
    shown = await operator.page(f"/workers/{worker['id']}")
    assert "by schedule" in shown
    form = await operator.part(f"/schedules/{schedule.id}/edit")
    assert 'value="alpha, beta"' in form
    edited = {
        **FORM,
        "schedule_id": schedule.id,
        "version": "1",
        "tags": "course=ccna",
        "exceptions": "2026-01-17 closed",
    }
    assert "Schedule office saved" in (await operator.send("/schedules/save", edited)).text
    stale = await operator.send("/schedules/save", {**edited, "name": "other"})
    assert stale.status_code == 422
    assert "the schedule is at version 2, not 1" in stale.text
    assert "closed" in await operator.page("/schedules")
    assert "Week of office" in await operator.page("/schedules")
    assert "times in Europe/Brussels" in await operator.part(f"/schedules/{schedule.id}/week")
    assert "Schedule office disabled" in (await operator.send(f"/schedules/{schedule.id}/disable", {})).text
    assert "It selects no worker at present" in await operator.part(f"/schedules/{schedule.id}/confirm-delete")
    await operator.send(f"/schedules/{schedule.id}/remove", {})
    assert await plane.services.schedules.statuses() == ()


async def test_enabling_and_disabling_say_what_will_happen_and_ask(plane: TestPlane) -> None:
    await plane.running("alpha")
    operator = await signed_in(plane, Role.OPERATOR)
    closed = {**FORM, "names": "alpha", "exceptions": "2026-01-01..2026-12-31 closed", "enabled": ""}
    await operator.send("/schedules/save", closed)
    [status] = await plane.services.schedules.statuses()
    page = f"/schedules/{status.schedule.id}"
    assert f'hx-get="{page}/confirm/enable"' in await operator.page("/schedules")
    asked = await operator.part(f"{page}/confirm/enable")
    assert "Enable schedule office?" in asked
    assert "1 worker will be stopped as soon as it is not in use." in asked
    assert "Schedule office enabled" in (await operator.send(f"{page}/enable", {})).text
    assert f'hx-get="{page}/confirm/disable"' in await operator.page("/schedules")
    asked = await operator.part(f"{page}/confirm/disable")
    assert "Disable schedule office?" in asked
    assert "It will do nothing until it is enabled again. It selects 1 worker; it stays as it is." in asked


async def test_an_invalid_form_says_which_line_is_wrong_and_keeps_what_was_typed(plane: TestPlane) -> None:
    operator = await signed_in(plane, Role.OPERATOR)
    wrong = {**FORM, "windows": "mon-fri 08:00-18:00\nweekend 9-12", "zone": "europe/brussels", "names": ""}
    response = await operator.send("/schedules/save", wrong)
    assert response.status_code == 422
    assert 'id="f-windows-problem">line 2: ' in response.text
    assert "did you mean Europe/Brussels?" in response.text
    assert 'id="f-names-problem">must have names, templates, teams or tags' in response.text
    assert "weekend 9-12" in response.text
    assert await plane.services.schedules.statuses() == ()


async def test_the_preview_shows_the_week_and_the_workers_before_anything_is_saved(plane: TestPlane) -> None:
    await plane.running("alpha")
    viewer = await signed_in(plane, Role.VIEWER)
    query = "zone=UTC&windows=sun+08:00-18:00&names=alpha&outside=stop&enabled=on"
    part = await viewer.part(f"/schedules/preview?{query}")
    assert "times in UTC" in part
    assert "Sun 18 Jan" in part
    assert "08:00 to 18:00" in part
    assert "stopped now, or as soon as it is not in use" in part
    assert "windows: must have at least one window" in await viewer.part(
        "/schedules/preview?zone=UTC&names=a&outside=stop"
    )
    assert "New schedule" not in await viewer.page("/schedules")
    assert (await viewer.send("/schedules/save", FORM)).status_code == 403


def test_a_day_on_which_clocks_change_says_so_and_spans_fill_the_bar() -> None:
    opening = ScheduledOpening(
        start=datetime(2026, 3, 28, 23, tzinfo=UTC), end=datetime(2026, 3, 29, 22, tzinfo=UTC), rule="sun 00:00-24:00"
    )
    rows = week_rows([opening], "Europe/Brussels", datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert (rows[0].spans, rows[1].note) == ((), "clocks change: 23 hours")
    (span,) = rows[1].spans
    assert (span.text, span.x, span.width) == ("00:00 to 24:00", 0, BAR_WIDTH)
