"""Creates the pictures of classes, teams and schedules in docs/images: hours before a class pass in a moment."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from lcm.model.access import Role
from tests.support.servers.chromium import launch
from tests.support.virtual.full_platform import topology
from tests.support.virtual.served_platform import ServedPlatform
from tests.support.web.pages import DESKTOP, PHONE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

IMAGES = Path(__file__).with_name("images")
ZONE = "Europe/Brussels"
SEATS = 12
TIMEOUT_SECONDS = 180.0

_LEARNERS = ("ada", "alan", "barbara", "claude", "edsger", "frances", "grace", "hedy", "joan", "katherine", "radia")


def furnish(platform: ServedPlatform) -> dict[str, Any]:
    """A team, schedules and the bookings of a week; returns the class that is shown."""
    platform.ask("POST", "/api/worker-templates/nested-medium/disable")
    body: dict[str, Any]
    needs = {"license": False, "cpu_cores": 3, "memory_gb": 12, "storage_gb": 5, "nodes": 3, "ports": ["SSH_PORT"]}
    learners = [f"{name}@example.org" for name in _LEARNERS]
    members = [{"role": "instructor", "group": "teachers"}, *({"role": "learner", "email": each} for each in learners)]
    for name, description in (("networks-1", "Evening course"), ("security-2", "Second year")):
        limits = {"max_lablets": 30, "max_seats": 60, "max_lifetime_minutes": 480}
        body = {"name": name, "description": description, "members": members, "limits": limits}
        platform.ask("POST", "/api/teams", body)
    for name, windows, tag in (
        ("office-hours", ["mon-fri 08:00-18:00"], "ccna"),
        ("evenings", ["tue,thu 18:00-22:00"], "ccnp"),
    ):
        body = {"name": name, "zone": ZONE, "windows": windows, "selector": {"tags": {"course": tag}}}
        platform.ask("POST", "/api/schedules", {**body, "exceptions": ["2026-12-25 closed"], "outside": "stop"})
    for name in ("bgp", "ospf"):
        body = {"name": name, "version": "1", "topology": topology(3), "requirements": needs}
        platform.ask("POST", "/api/lablet-definitions", body)
    facts: dict[str, Any] = {"seats": SEATS, "zone": ZONE, "team": "networks-1"}
    booked: dict[str, dict[str, Any]] = {}
    for name, definition, start, weeks in (
        ("bgp-saturday", "bgp", "2026-01-17T12:00", 1),
        ("ospf-sunday", "ospf", "2026-01-18T09:00", 4),
        ("bgp-sunday", "bgp", "2026-01-18T14:00", 1),
    ):
        body = {"name": name, "definition": definition, "start": start, "repeat_weeks": weeks, "duration_minutes": 180}
        booked[name] = platform.ask("POST", "/api/bookings", {**facts, **body, "learners": learners})
    return booked["bgp-saturday"]


def open_context(
    browser: Browser, platform: ServedPlatform, size: tuple[int, int], *, signed_in: bool = True
) -> BrowserContext:
    """A browser whose clock shows what that of the platform shows."""
    context = browser.new_context(
        base_url=platform.url,
        viewport={"width": size[0], "height": size[1]},
        timezone_id=ZONE,
        reduced_motion="reduce",
    )
    context.set_default_timeout(TIMEOUT_SECONDS * 1000)
    context.clock.set_fixed_time(platform.now())
    if signed_in:
        token = platform.whole.fleet.plane.tokens[Role.ADMIN]
        response = context.request.post("/api/session", data={"token": token})
        assert response.status == 201, response.text()
    return context


def take_screenshots(browser: Browser, platform: ServedPlatform, booking: dict[str, Any]) -> None:
    """The dashboard on a large screen and on a phone, and what a learner sees on a phone."""
    shown = {
        "teams": "/teams",
        "schedules": "/schedules",
        "bookings": "/bookings",
        "class": f"/bookings/{booking['id']}/classes/1",
    }
    for variant, size in (("light", DESKTOP), ("phone", PHONE)):
        context = open_context(browser, platform, size)
        page = context.new_page()
        for name, url in shown.items():
            page.goto(url)
            page.locator("#connection[data-state=live]").wait_for()
            page.screenshot(path=IMAGES / f"{name}-{variant}.png", full_page=variant == "light")
        context.close()
    _take_learners_page(browser, platform, booking)


def _take_learners_page(browser: Browser, platform: ServedPlatform, booking: dict[str, Any]) -> None:
    lablets = platform.ask("GET", "/api/lablets?limit=100")["items"]
    seat = next(
        each for each in lablets if each["booking_id"] == booking["id"] and each["owner_name"] == "ada@example.org"
    )
    expires_at = (platform.now() + timedelta(hours=4)).isoformat()
    link = platform.ask("POST", f"/api/lablets/{seat['id']}/seat-links", {"expires_at": expires_at})
    context = open_context(browser, platform, PHONE, signed_in=False)
    page = context.new_page()
    page.goto(link["path"])
    page.get_by_role("button", name="Open my lab").click()
    page.locator("#connection[data-state=live]").wait_for()
    page.screenshot(path=IMAGES / "my-phone.png")
    context.close()


def main() -> int:
    """Create the images."""
    IMAGES.mkdir(exist_ok=True)
    with ServedPlatform() as platform, sync_playwright() as playwright:
        booking = furnish(platform)
        begins = datetime.fromisoformat(booking["occurrences"][0]["starts_at"])
        platform.run_until(begins + timedelta(minutes=2))
        browser = launch(playwright)
        take_screenshots(browser, platform, booking)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
