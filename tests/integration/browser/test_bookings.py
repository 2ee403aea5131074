"""A class is booked by keyboard, in another zone than that of the server and of the viewer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from tests.support.records.lablet_records import TOPOLOGY
from tests.support.web.actions import wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations

if TYPE_CHECKING:
    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Scheme, Visits

CLASS_ZONE, VIEWER_ZONE = "Asia/Kathmandu", "America/New_York"


@pytest.fixture(scope="module")
def day(plane: ScriptedControlPlane) -> str:
    """A Wednesday on which a class takes all workers of the region from 9:00 to 13:00 in Kathmandu."""
    needs = {"license": False, "cpu_cores": 10, "memory_gb": 40, "storage_gb": 10}
    body: dict[str, Any] = {"name": "bgp", "version": "1", "topology": TOPOLOGY, "requirements": needs}
    plane.ask("POST", "/api/lablet-definitions", body)
    plane.ask("PATCH", "/api/settings", {"scaling": {"max_workers_per_region": 10}})
    today = datetime.now(UTC).date()
    chosen = (today + timedelta(days=9 - today.weekday())).isoformat()
    wanted = {"definition": "bgp", "seats": 30, "zone": CLASS_ZONE, "duration_minutes": 240}
    plane.ask("POST", "/api/bookings", {**wanted, "name": "taken", "start": f"{chosen}T09:00"})
    return chosen


@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)], ids=["light", "phone"])
def test_a_class_that_is_refused_is_booked_at_a_proposed_time(
    visits: Visits, plane: ScriptedControlPlane, day: str, scheme: Scheme, size: tuple[int, int]
) -> None:
    page, watch = visits.open(
        plane, f"/bookings?week={day}", role="operator", scheme=scheme, size=size, zone=VIEWER_ZONE
    )
    watch.allow("409")
    wait_until_live(page)
    expect(page.locator("#week-title")).to_contain_text(f"times in {VIEWER_ZONE}")
    expect(page.locator(".class").first).to_contain_text("taken")
    assert accessibility_violations(page) == []
    page.get_by_role("button", name="Book a class").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("ospf")
    expect(dialog.get_by_label("Time zone")).to_have_value(VIEWER_ZONE)
    dialog.get_by_label("Time zone").fill(CLASS_ZONE)
    dialog.get_by_label("Seats", exact=True).fill("30")
    dialog.get_by_label("Start", exact=True).fill(f"{day}T10:00")
    page.keyboard.press("Tab")
    preview = dialog.get_by_role("region", name="Does it fit?")
    expect(preview).to_contain_text("It does not fit.")
    expect(preview).to_contain_text("MAX_WORKERS_PER_REGION is 10")
    expect(preview).to_contain_text("Cost:")
    proposals = preview.get_by_role("group").get_by_role("button")
    expect(proposals).to_have_count(3)
    assert accessibility_violations(page) == []
    dialog.locator("#do").press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was saved.")
    expect(dialog.get_by_label("Name", exact=True)).to_have_value("ospf")
    proposals.last.press("Enter")
    expect(preview).to_contain_text("It fits: 30 seats on 10 workers")
    start = dialog.get_by_label("Start", exact=True).input_value()
    assert start != f"{day}T10:00"
    dialog.locator("#do").press("Enter")
    expect(dialog).to_be_hidden()
    begins = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(CLASS_ZONE)).astimezone(ZoneInfo(VIEWER_ZONE))
    page.goto(f"/bookings?week={begins.date()}")
    wait_until_live(page)
    booked = page.locator(".class", has_text="ospf").first
    expect(booked).to_contain_text(f"{begins:%H:%M} to ")
    expect(booked).to_contain_text("CONFIRMED")
    assert accessibility_violations(page) == []
    booked.get_by_role("link").press("Enter")
    expect(page.locator(".tile")).to_have_count(30)
    expect(page.get_by_text(CLASS_ZONE)).to_be_visible()
    assert accessibility_violations(page) == []
    page.get_by_role("button", name="Cancel the class").press("Enter")
    dialog.get_by_role("button", name="Cancel the class").press("Enter")
    expect(page.get_by_text("The class is cancelled.")).to_be_visible()
    page.goto(f"/bookings?week={day}")
    expect(page.locator("#week-title")).to_contain_text(VIEWER_ZONE)
    page.get_by_role("link", name="Next week").press("Enter")
    expect(page.get_by_text("No classes in this week")).to_be_visible()
