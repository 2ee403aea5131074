"""Templates, Activity, System, Settings, and the switch that holds the fleet, which stands on every page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.web.actions import PATHS, confirm, live, not_reloaded
from tests.support.web.sample_fleet import PLAIN, furnish

if TYPE_CHECKING:
    from tests.support.servers.lcm_up import Up
    from tests.support.servers.scripted_control_plane import QuietPlane
    from tests.support.web.pages import Visits


@pytest.fixture(scope="module")
def fleet(plane: QuietPlane) -> dict[str, dict[str, Any]]:
    return furnish(plane)


def test_the_fleet_is_held_and_released_from_every_page(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/", role="operator")
    other, _ = visits.open(plane, "/system", role="viewer")
    live(other)
    for path in (*PATHS, f"/workers/{fleet['ready']['id']}"):
        page.goto(path)
        live(page)
        page.get_by_role("button", name="Hold the fleet").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("What happens:")
        expect(dialog).to_contain_text("Cost:")
        # Without a reason nothing happens: the field says so by itself.
        dialog.locator("#do").click()
        expect(dialog).to_be_visible()
        assert plane.ask("GET", "/api/fleet")["hold"] is None
        confirm(page, "Hold the fleet", Reason=f"stop everything, from {path}")
        for shown in (page, other):
            expect(shown.locator("#summary")).to_contain_text(f"stop everything, from {path}")
        assert plane.ask("GET", "/api/fleet")["hold"]["reason"] == f"stop everything, from {path}"
        expect(other.get_by_role("button", name="Release the fleet")).to_have_count(0)
        page.get_by_role("button", name="Release the fleet").click()
        confirm(page, "Release the fleet")
        for shown in (page, other):
            expect(shown.get_by_text("The fleet is on hold.")).to_have_count(0)
            not_reloaded(shown)
        assert plane.ask("GET", "/api/fleet")["hold"] is None


def test_an_admin_closes_a_breaker(visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]) -> None:
    page, _ = visits.open(plane, "/system")
    live(page)
    banner = page.locator("#summary .breaker")
    expect(banner).to_contain_text("ap-southeast-2")
    banner.get_by_role("button", name="Close it").click()
    confirm(page, "Close the breaker")
    expect(banner).to_have_count(0)
    assert plane.ask("GET", "/api/fleet")["breakers"] == []
    not_reloaded(page)


def test_templates_are_made_changed_and_switched_off(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/templates")
    live(page)
    expect(page.locator("#t-special")).to_contain_text(PLAIN)
    expect(page.locator("#t-small")).to_contain_text("$0.0208")
    page.get_by_role("button", name="Copy small").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("bigger")
    dialog.get_by_label("CPU cores").fill("many")
    watch.allow("status of 422")
    dialog.locator("#do").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was saved")
    expect(dialog.get_by_label("Name", exact=True)).to_have_value("bigger")
    dialog.get_by_label("CPU cores").fill("4")
    confirm(page, "Make template")
    row = page.locator("#t-bigger")
    expect(row.locator("[data-label=CPU]")).to_have_text("4")
    assert plane.ask("GET", "/api/worker-templates/bigger")["capacity"]["cpu_cores"] == 4
    page.get_by_role("button", name="Edit bigger").click()
    dialog.get_by_label("Description").fill("with more cores")
    confirm(page, "Save bigger")
    expect(row).to_contain_text("with more cores")
    page.get_by_role("button", name="Disable bigger").click()
    expect(row).to_contain_text("disabled")
    assert plane.ask("GET", "/api/worker-templates/bigger")["enabled"] is False
    page.get_by_role("button", name="Enable bigger").click()
    expect(row).not_to_contain_text("disabled")
    not_reloaded(page)


def test_an_operator_reads_templates_and_settings_and_changes_none(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/templates", role="operator")
    expect(page.locator("#t-small")).to_be_visible()
    assert page.get_by_role("main").get_by_role("button").count() == 0
    page.goto("/settings")
    expect(page.get_by_text("Only an admin can change them.")).to_be_visible()
    assert page.get_by_role("main").get_by_role("textbox").count() == 0
    assert page.get_by_role("main").get_by_role("button", name=re.compile("Store|Reset")).count() == 0


def test_activity_is_filtered_and_tells_of_what_is_new(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/activity")
    live(page)
    lines = page.locator("table.lines tbody tr")
    expect(lines.first).to_be_visible()
    held = fleet["held"]["id"]
    page.get_by_label("To what").fill(held)
    expect(page).to_have_url(re.compile(f"subject={held}"))
    expect(lines.filter(has_text="held").first).to_be_visible()
    expect(lines.filter(has_not=page.get_by_role("link", name="held", exact=True))).to_have_count(0)
    expect(lines.filter(has_text=PLAIN).first).to_be_visible()
    plane.command(fleet["held"], "release")
    page.get_by_role("link", name=re.compile("1 new line")).click()
    expect(lines.first).to_contain_text("release")
    page.get_by_label("To what").fill("")
    page.get_by_label("Words").fill("no line has these words")
    expect(page.get_by_role("heading", name=re.compile("^Nothing"))).to_be_visible()
    page.goto(f"/activity?subject={held}")
    expect(lines.filter(has_not=page.get_by_role("link", name="held", exact=True))).to_have_count(0)


def test_the_night_is_summed_up_with_the_money_it_saved(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/activity")
    night = page.locator("#night")
    expect(night.locator(".saved")).to_contain_text(re.compile(r"\$\d+\.\d\d.* saved "))
    expect(night.get_by_role("heading", name="People")).to_be_visible()
    expect(night).to_contain_text("stopped")
    page.get_by_role("link", name="24 hours").click()
    expect(page).to_have_url(re.compile("night=24h"))
    expect(night.locator(".saved")).to_be_visible()


def test_settings_are_stored_refused_and_taken_back(visits: Visits, plane: QuietPlane) -> None:
    page, watch = visits.open(plane, "/settings")
    live(page)
    field = page.locator("#idle-worker_idle_timeout_minutes")
    was = plane.ask("GET", "/api/settings")["idle"]["worker_idle_timeout_minutes"]
    field.fill("soon")
    watch.allow("status of 422")
    page.locator("#save-idle").click()
    expect(page.locator("#group-idle").get_by_role("alert")).to_contain_text("Nothing was stored")
    assert plane.ask("GET", "/api/settings")["idle"]["worker_idle_timeout_minutes"] == was
    field.fill("17")
    page.locator("#save-idle").click()
    reset = page.get_by_role("button", name=re.compile("Reset .*idle", re.IGNORECASE)).first
    expect(reset).to_be_visible()
    assert plane.ask("GET", "/api/settings")["idle"]["worker_idle_timeout_minutes"] == 17
    reset.click()
    expect(reset).to_have_count(0)
    expect(field).to_have_value(re.compile(rf"^{was:g}"))
    assert plane.ask("GET", "/api/settings")["idle"]["worker_idle_timeout_minutes"] == was
    not_reloaded(page)


def test_the_theme_is_a_choice_that_stays(visits: Visits, plane: QuietPlane) -> None:
    page, _ = visits.open(plane, "/settings", scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Dark", exact=True).click()
    expect(page.get_by_role("button", name="Dark", exact=True)).to_have_attribute("aria-pressed", "true")
    dark = page.evaluate(background)
    assert dark != light
    page.goto("/")
    assert page.evaluate(background) == dark
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate(background) == light


def test_the_system_says_who_leads_what_waits_and_what_was_called(visits: Visits, up: Up) -> None:
    up.ask("POST", "/api/workers", {"name": "alpha", "template_name": "small"})
    page, _ = visits.open(up, "/system", role="viewer")
    live(page)
    card = page.locator("section.controller").filter(has_text="worker-controller")
    expect(card).to_contain_text(re.compile(r"leads in term \d+"), timeout=60_000)
    for name in ("Waiting in the queue", "Last resync", "Throttled by AWS"):
        expect(card.locator("dt").filter(has_text=name)).to_be_visible(timeout=60_000)
    expect(card.get_by_role("region", name="Regions")).to_contain_text("us-east-1", timeout=60_000)
    expect(page.get_by_role("region", name="Mirror")).to_contain_text("in step")
    expect(page.get_by_role("region", name="Suspended")).to_contain_text("all closed", timeout=60_000)
    not_reloaded(page)
