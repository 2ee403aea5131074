"""Times that a user enters: in the zone of the viewer, which is named; the server gets the instant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.support.servers.scripted_lablets import define
from tests.support.web.actions import wait_until_live
from tests.support.web.pages import accessibility_violations

if TYPE_CHECKING:
    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Visits

NEW_YORK = "America/New_York"  # five hours behind UTC in winter, four in summer


def test_a_filter_by_time_is_in_the_zone_of_the_viewer(visits: Visits, plane: ScriptedControlPlane) -> None:
    page, _ = visits.open(plane, "/activity?since=2026-01-31T02:30Z", role="viewer", zone=NEW_YORK)
    wait_until_live(page)
    since, until = page.get_by_label(f"From ({NEW_YORK})"), page.get_by_label(f"Until ({NEW_YORK})")
    expect(since).to_have_value("2026-01-30T21:30")
    expect(since).to_have_attribute("title", "2026-01-31T02:30Z")
    until.fill("2030-07-01T12:00")
    expect(until).to_have_attribute("title", "2030-07-01T16:00Z")
    expect(page).to_have_url(re.compile(r"since=2026-01-31T02%3A30Z.*until=2030-07-01T16%3A00Z"))
    page.reload()
    expect(until).to_have_value("2030-07-01T12:00")
    page.goto("/activity?until=2030-07-01T16:00")  # an old link: without a zone it is UTC
    expect(until).to_have_value("2030-07-01T12:00")


def test_a_lablet_starts_and_ends_at_the_instants_that_were_entered(
    visits: Visits, plane: ScriptedControlPlane
) -> None:
    define(plane, "timed", "1")
    page, watch = visits.open(plane, "/lablets", role="operator", zone=NEW_YORK)
    watch.allow("status of 422")
    wait_until_live(page)
    page.get_by_role("button", name="Create a lablet").first.click()
    form = page.locator("#new-lablet")
    starts, ends = form.get_by_label(f"Starts ({NEW_YORK})"), form.get_by_label(f"Ends ({NEW_YORK})")
    form.get_by_label("Name (optional)").fill("timed-one")
    starts.fill("2998-01-15T09:00")
    ends.fill("2020-01-15T17:00")
    form.locator("#do").click()
    # What was typed comes back in the same zone.
    expect(form.locator("#f-ends_at-problem")).to_be_visible()
    expect(starts).to_have_value("2998-01-15T09:00")
    expect(ends).to_have_value("2020-01-15T17:00")
    expect(ends).to_have_attribute("title", "2020-01-15T22:00Z")
    assert accessibility_violations(page) == []
    ends.fill("2998-01-15T17:00")
    expect(page.locator("#new-preview .plan").first).to_be_visible()
    form.locator("#do").dblclick()
    expect(form).to_be_hidden()
    (lablet,) = plane.ask("GET", "/api/lablets?q=timed-one")["items"]
    assert (lablet["starts_at"], lablet["ends_at"]) == ("2998-01-15T14:00:00Z", "2998-01-15T22:00:00Z")


def test_without_scripts_the_fields_are_in_utc_and_say_so(visits: Visits, plane: ScriptedControlPlane) -> None:
    page, _ = visits.open(plane, "/activity?since=2026-01-31T02:30Z", role="viewer", zone=NEW_YORK, scripts=False)
    expect(page.get_by_label("From (UTC)")).to_have_value("2026-01-31T02:30")
    page.get_by_label("Until (UTC)").fill("2030-07-01T12:00")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile(r"until=2030-07-01T12%3A00"))
    expect(page.get_by_label("Until (UTC)")).to_have_value("2030-07-01T12:00")


def test_a_time_of_day_in_an_explanation_is_in_the_zone_of_the_viewer(
    visits: Visits, plane: ScriptedControlPlane
) -> None:
    worker = plane.create("explained", desired_status="STOPPED")
    hold = {"reason": "<b>exam</b> at 14:00 UTC", "until": "2998-01-15T14:00:00Z"}
    plane.ask("POST", f"/api/workers/{worker['id']}/hold", hold)
    page, _ = visits.open(plane, f"/workers/{worker['id']}", role="viewer", zone=NEW_YORK)
    wait_until_live(page)
    lead = page.locator("p.lead")
    expect(lead).to_contain_text("until 09:00 EST on 15 January 2998")
    expect(lead).to_contain_text("<b>exam</b> at ")
    expect(lead.locator("time").last).to_have_attribute("title", re.compile("2998-01-15T14:00:00Z"))
