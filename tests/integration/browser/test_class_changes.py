"""A class is moved and extended: the dialogs say beforehand whether it fits, and what they say is what then happens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.integration.browser.test_accessibility import overflows_window
from tests.support.records.lablet_records import TOPOLOGY
from tests.support.web.actions import wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Scheme, Visits

ZONE = "Asia/Kathmandu"
VIEWS = pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)], ids=["light", "phone"])


@pytest.fixture
def book(plane: ScriptedControlPlane, request: pytest.FixtureRequest) -> Any:
    """Books classes of four hours that take all ten workers of the region. They are cancelled after the test."""
    needs = {"license": False, "cpu_cores": 10, "memory_gb": 40, "storage_gb": 10}
    body = {"name": "bgp", "version": "1", "topology": TOPOLOGY, "requirements": needs}
    if not plane.ask("GET", "/api/lablet-definitions")["items"]:
        plane.ask("POST", "/api/lablet-definitions", body)
        plane.ask("PATCH", "/api/settings", {"scaling": {"max_workers_per_region": 10}})

    def create(name: str, start: str) -> dict[str, Any]:
        wanted = {"definition": "bgp", "seats": 30, "zone": ZONE, "duration_minutes": 240}
        made: dict[str, Any] = plane.ask("POST", "/api/bookings", {**wanted, "name": name, "start": start})
        request.addfinalizer(lambda: plane.ask("POST", f"/api/bookings/{made['id']}/cancel", {}))
        return made

    return create


@pytest.fixture
def day() -> str:
    """A day of next week."""
    return (datetime.now(UTC).date() + timedelta(days=7)).isoformat()


@VIEWS
def test_the_dialog_that_moves_a_class_says_whether_it_fits(
    visits: Visits, plane: ScriptedControlPlane, book: Any, day: str, scheme: Scheme, size: tuple[int, int]
) -> None:
    book("taken", f"{day}T16:00")
    moved = book("mine", f"{day}T09:00")
    page, watch = visits.open(
        plane, f"/bookings/{moved['id']}/classes/1", role="operator", scheme=scheme, size=size, zone=ZONE
    )
    watch.allow("409")
    wait_until_live(page)
    page.get_by_role("button", name="Move the class").press("Enter")
    dialog = page.get_by_role("dialog")
    preview = dialog.get_by_role("region", name="Does it fit?")
    expect(preview).to_contain_text("It fits")
    _no_faults(page)
    start = dialog.get_by_label("New start")
    start.fill(f"{day}T17:00")
    expect(preview).to_contain_text("It does not fit.")
    expect(preview).to_contain_text("workers: 20 would be needed")
    expect(preview).to_contain_text("MAX_WORKERS_PER_REGION is 10")
    expect(preview.get_by_role("group").get_by_role("button")).to_have_count(3)
    _no_faults(page)
    dialog.locator("#do").press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was saved.")
    expect(start).to_have_value(f"{day}T17:00")
    preview.get_by_role("group").get_by_role("button").first.press("Enter")
    expect(preview).to_contain_text("It fits")
    expect(preview).to_contain_text("as much as now")
    shown = _times(preview)
    assert start.input_value() != f"{day}T17:00"
    dialog.locator("#do").press("Enter")
    expect(dialog).to_be_hidden()
    (occurrence,) = plane.ask("GET", f"/api/bookings/{moved['id']}")["occurrences"]
    assert shown == [datetime.fromisoformat(occurrence[name]) for name in ("starts_at", "ends_at")]


@VIEWS
def test_the_dialog_that_extends_a_class_says_whether_it_fits(
    visits: Visits, plane: ScriptedControlPlane, book: Any, day: str, scheme: Scheme, size: tuple[int, int]
) -> None:
    mine = book("mine", f"{day}T09:00")
    free = timedelta(hours=4, minutes=30)  # for half an hour after the class its workers are free
    book("taken", (datetime.fromisoformat(f"{day}T09:00") + free + _warm_up(mine)).isoformat(timespec="minutes"))
    page, watch = visits.open(
        plane, f"/bookings/{mine['id']}/classes/1", role="operator", scheme=scheme, size=size, zone=ZONE
    )
    watch.allow("409")
    wait_until_live(page)
    page.get_by_role("button", name="Extend the class").press("Enter")
    dialog = page.get_by_role("dialog")
    preview = dialog.get_by_role("region", name="Does it fit?")
    expect(preview).to_contain_text("It fits")
    expect(preview).to_contain_text("more than now")
    _no_faults(page)
    dialog.get_by_label("2 hours").check()
    expect(preview).to_contain_text("It does not fit.")
    expect(preview).to_contain_text("workers: 20 would be needed")
    _no_faults(page)
    dialog.locator("#do").press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was saved.")
    expect(dialog.get_by_label("2 hours")).to_be_checked()
    preview.get_by_role("group").get_by_role("button", name="30 minutes").press("Enter")
    expect(dialog.get_by_label("30 minutes,")).to_be_checked()
    expect(preview).to_contain_text("It fits")
    shown = _times(preview)
    dialog.locator("#do").press("Enter")
    expect(dialog).to_be_hidden()
    (occurrence,) = plane.ask("GET", f"/api/bookings/{mine['id']}")["occurrences"]
    assert shown == [datetime.fromisoformat(occurrence[name]) for name in ("starts_at", "ends_at")]


def test_a_check_that_is_under_way_or_fails_is_said(
    visits: Visits, plane: ScriptedControlPlane, book: Any, day: str
) -> None:
    mine = book("mine", f"{day}T09:00")
    page, watch = visits.open(plane, f"/bookings/{mine['id']}/classes/1", role="operator", zone=ZONE)
    watch.allow("Failed to load resource|Failed to fetch|ERR_")
    wait_until_live(page)
    page.get_by_role("button", name="Move the class").press("Enter")
    dialog = page.get_by_role("dialog")
    preview = dialog.get_by_role("region", name="Does it fit?")
    expect(preview).to_contain_text("It fits")
    _until_checked(page)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/move-preview?*", hold)
    dialog.get_by_label("New start").fill(f"{day}T10:00")
    expect(preview).to_contain_text("Checking…")
    expect(preview).to_have_attribute("aria-busy", "true")
    _nth(page, held, 0).abort()
    expect(preview).to_contain_text("no connection to the server")
    expect(preview).not_to_contain_text("Checking…")
    expect(preview).not_to_contain_text("It fits")
    page.unroute("**/move-preview?*")
    page.evaluate("document.dispatchEvent(new CustomEvent('lcm:reconnected'))")
    expect(preview).to_contain_text("It fits")
    _until_checked(page)
    page.route("**/move-preview?*", lambda route: route.fulfill(status=500, body=""))
    dialog.get_by_label("New start").fill(f"{day}T11:00")
    expect(preview).to_contain_text("could not check")
    expect(preview).not_to_contain_text("It fits")


def test_a_check_that_waits_for_another_is_under_way_until_it_is_answered(
    visits: Visits, plane: ScriptedControlPlane, book: Any, day: str
) -> None:
    mine = book("mine", f"{day}T09:00")
    page, watch = visits.open(plane, f"/bookings/{mine['id']}/classes/1", role="operator", zone=ZONE)
    watch.allow("Failed to fetch|ERR_")
    wait_until_live(page)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/move-preview?*", hold)
    page.get_by_role("button", name="Move the class").press("Enter")
    dialog = page.get_by_role("dialog")
    preview = dialog.get_by_role("region", name="Does it fit?")
    expect(preview).to_contain_text("Checking…")
    dialog.get_by_label("New start").fill(f"{day}T10:00")  # is checked when the first response is shown
    with page.expect_request("**/move-preview?*10%3A00*"):
        _nth(page, held, 0).continue_()
    expect(preview).to_contain_text("It fits")
    expect(preview).to_contain_text("Checking…")
    expect(preview).to_have_attribute("aria-busy", "true")
    _nth(page, held, 1).abort()
    expect(preview).not_to_contain_text("Checking…")


def test_a_booking_that_changes_while_the_dialog_is_open_is_said(
    visits: Visits, plane: ScriptedControlPlane, book: Any, day: str
) -> None:
    mine = book("mine", f"{day}T09:00")
    page, _ = visits.open(plane, f"/bookings/{mine['id']}/classes/1", role="operator", zone=ZONE)
    wait_until_live(page)
    page.get_by_role("button", name="Move the class").press("Enter")
    dialog = page.get_by_role("dialog")
    preview = dialog.get_by_role("region", name="Does it fit?")
    expect(preview).to_contain_text("It fits")
    plane.ask("PATCH", f"/api/bookings/{mine['id']}/occurrences/1", {"start": f"{day}T12:00"})
    expect(preview).to_contain_text("The booking was changed")  # nobody touched the dialog
    dialog.get_by_label("New start").fill(f"{day}T10:00")
    expect(preview).to_contain_text("10:00")
    preview.get_by_role("button", name="Show it as it is now").press("Enter")
    expect(dialog).to_contain_text("12:00")
    expect(dialog.get_by_label("New start")).to_have_value(f"{day}T10:00")
    expect(preview).not_to_contain_text("The booking was changed")
    expect(preview).to_contain_text("It fits")
    dialog.locator("#do").press("Enter")
    expect(dialog).to_be_hidden()
    (occurrence,) = plane.ask("GET", f"/api/bookings/{mine['id']}")["occurrences"]
    assert occurrence["start"]["at"] == f"{day}T10:00:00"


def _times(preview: Locator) -> list[datetime]:
    """When the class would begin and end, as the preview says."""
    times = preview.locator(".yours time")
    expect(times).to_have_count(2)
    return [datetime.fromisoformat(each.get_attribute("datetime") or "") for each in times.all()]


def _nth(page: Page, held: list[Route], number: int) -> Route:
    """A held request, once the browser has sent it: that it is being checked is said a moment before."""
    for _ in range(9000):
        if len(held) > number:
            return held[number]
        page.wait_for_timeout(10)
    raise AssertionError(f"{len(held)} requests were sent")


def _until_checked(page: Page) -> None:
    """No check is under way or waits: one that begins is the next one. A dialog that is opened may check twice."""
    expect(page.locator("#check:not(.htmx-request)")).to_be_attached()


def _warm_up(booking: dict[str, Any]) -> timedelta:
    (occurrence,) = booking["occurrences"]
    return datetime.fromisoformat(occurrence["starts_at"]) - datetime.fromisoformat(occurrence["warm_up_at"])


def _no_faults(page: Page) -> None:
    assert accessibility_violations(page) == []
    assert not overflows_window(page)
