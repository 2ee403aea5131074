"""A class of thirty from the form to thirty running labs, by people in another time zone than the server's."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from tests.integration.browser.test_accessibility import overflows_window, press_until
from tests.support.virtual.full_platform import topology
from tests.support.virtual.served_platform import ServedPlatform
from tests.support.web.actions import wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.support.web.pages import Visits

ZONE = ZoneInfo("America/St_Johns")  # three and a half hours behind the server
SEATS = 30
NEEDS = {"license": False, "storage_gb": 5, "nodes": 1}


@pytest.fixture
def platform() -> Iterator[ServedPlatform]:
    """Four workers may run in a region. A class of two takes half of them from a quarter of an hour from now on."""
    with ServedPlatform() as served:
        served.ask("PATCH", "/api/settings", {"scaling": {"max_workers_per_region": 4}})
        served.ask("POST", "/api/worker-templates/nested-medium/disable")
        # Ten seats of `ospf` fit on a worker of nested-large, one of `fabric`.
        for name, needs in (
            ("ospf", {"cpu_cores": 3, "memory_gb": 12}),
            ("fabric", {"cpu_cores": 20, "memory_gb": 60}),
        ):
            body = {"name": name, "version": "1", "topology": topology(1), "requirements": {**NEEDS, **needs}}
            served.ask("POST", "/api/lablet-definitions", body)
        start = {"start": f"{_local(served, minutes=15):%Y-%m-%dT%H:%M}", "zone": ZONE.key, "duration_minutes": 30}
        served.ask("POST", "/api/bookings", {"name": "taken", "definition": "fabric", "seats": 2, **start})
        yield served


def test_a_class_is_booked_refused_moved_and_runs(platform: ServedPlatform, visits: Visits) -> None:
    page, watch = visits.open(platform, "/bookings", role="operator", size=DESKTOP, zone=ZONE.key)
    watch.allow("status of 409")
    wait_until_live(page)
    expect(page.locator("#week-title")).to_contain_text(f"times in {ZONE.key}")
    page.get_by_role("button", name="Book a class").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("bgp-saturday")
    dialog.locator("#f-definition").select_option("ospf@1")
    dialog.get_by_label("Seats", exact=True).fill(str(SEATS))
    dialog.get_by_label("Duration, minutes").fill("60")
    expect(dialog.get_by_label("Time zone")).to_have_value(ZONE.key)
    dialog.get_by_label("Start", exact=True).fill(f"{_local(platform, minutes=30):%Y-%m-%dT%H:%M}")
    dialog.get_by_role("button", name="Book the class").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The class does not fit at this time.")
    preview = dialog.get_by_role("region", name="Does it fit?")
    expect(preview).to_contain_text("workers: 5 would be needed")
    expect(preview).to_contain_text("MAX_WORKERS_PER_REGION is 4")
    assert accessibility_violations(page) == []
    preview.get_by_role("group").get_by_role("button").first.click()
    expect(preview).to_contain_text("It fits: 30 seats on 3 workers")
    dialog.get_by_role("button", name="Book the class").click()
    expect(dialog).to_be_hidden()
    _run_until_the_class_begins(page, platform)


def test_a_phone_in_dark_colors_and_a_keyboard_are_enough(platform: ServedPlatform, visits: Visits) -> None:
    page, watch = visits.open(platform, "/bookings", role="operator", size=PHONE, zone=ZONE.key, scheme="dark")
    watch.allow("status of 409")
    wait_until_live(page)
    press_until(page, "Tab", ".title button.primary")
    page.keyboard.press("Enter")
    expect(page.locator("#f-name")).to_be_focused()
    page.keyboard.type("bgp-saturday")
    _choose(page, "#f-definition", "ospf@1")
    _type(page, "#f-seats", str(SEATS))
    _type(page, "#f-duration_minutes", "60")
    press_until(page, "Tab", "#f-start", 20)
    wanted = _local(platform, minutes=30)
    page.keyboard.type(f"{wanted:%m%d%Y}")
    page.keyboard.press("ArrowRight")
    page.keyboard.type(f"{wanted:%I%M%p}")
    expect(page.locator("#f-start")).to_have_value(f"{wanted:%Y-%m-%dT%H:%M}")
    press_until(page, "Tab", "#do")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("The class does not fit at this time.")
    expect(dialog.get_by_role("region", name="Does it fit?")).to_contain_text("workers: 5 would be needed")
    assert accessibility_violations(page) == []
    assert not overflows_window(page)
    press_until(page, "Tab", ".free-times button:first-child", 60)
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("region", name="Does it fit?")).to_contain_text("It fits: 30 seats on 3 workers")
    press_until(page, "Tab", "#do")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    _run_until_the_class_begins(page, platform)


def _run_until_the_class_begins(page: Page, platform: ServedPlatform) -> None:
    """From the calendar: the class is at the proposed time, and then all seats run."""
    link = page.locator(".class", has_text="bgp-saturday").get_by_role("link")
    expect(link).to_be_visible()
    booked = next(each for each in platform.ask("GET", "/api/bookings")["items"] if each["name"] == "bgp-saturday")
    (occurrence,) = booked["occurrences"]
    starts_at = datetime.fromisoformat(occurrence["starts_at"])
    assert starts_at.astimezone(ZONE).replace(tzinfo=None).isoformat() == occurrence["start"]["at"]
    url = link.get_attribute("href") or ""
    link.press("Enter")
    expect(page.get_by_text("The warm-up begins")).to_be_visible()
    expect(page.locator(".tile")).to_have_count(SEATS)
    page.goto("about:blank")  # the time of a request would run out too
    platform.run_until(starts_at + timedelta(minutes=2))
    page.goto(url)
    wait_until_live(page)
    expect(page.locator(".name-line .status")).to_have_text("ACTIVE")
    expect(page.get_by_text("30 of 30 seats are running")).to_be_visible()
    expect(page.locator(".tile .status", has_text="RUNNING")).to_have_count(SEATS)
    shown = f"{starts_at.astimezone(ZONE):%H:%M}"
    expect(page.locator("time.clock").first).to_contain_text(shown)
    assert accessibility_violations(page) == []
    assert not overflows_window(page)


def _local(platform: ServedPlatform, *, minutes: int) -> datetime:
    """So many minutes from now, as clocks of the person show it."""
    return (platform.now() + timedelta(minutes=minutes)).astimezone(ZONE)


def _choose(page: Page, field: str, value: str) -> None:
    """Choose with the arrow keys, from the first option on."""
    press_until(page, "Tab", field, 20)
    page.keyboard.press("Home")
    for _ in range(10):
        if page.locator(field).input_value() == value:
            return
        page.keyboard.press("ArrowDown")
    raise AssertionError(f"{value} cannot be chosen in {field}")


def _type(page: Page, field: str, text: str) -> None:
    press_until(page, "Tab", field, 20)  # all of its text is then selected
    page.keyboard.type(text)
