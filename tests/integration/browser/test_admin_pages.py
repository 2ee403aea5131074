"""Templates, Activity, System, Settings, and the button on every page that holds the fleet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.network.webhook_hosts import webhook_host
from tests.support.web.actions import PATHS, assert_not_reloaded, confirm_dialog, open_hold_dialog, wait_until_live
from tests.support.web.pages import accessibility_violations
from tests.support.web.sample_fleet import SAMPLE_TEXT, create_sample_fleet

if TYPE_CHECKING:
    from tests.support.servers.lcm_up import LcmUpProcess
    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Visits


@pytest.fixture(scope="module")
def fleet(plane: ScriptedControlPlane) -> dict[str, dict[str, Any]]:
    return create_sample_fleet(plane)


def test_the_fleet_is_held_and_released_from_every_page(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/", role="operator")
    other, _ = visits.open(plane, "/system", role="viewer")
    wait_until_live(other)
    for path in (*PATHS, f"/workers/{fleet['ready']['id']}"):
        page.goto(path)
        wait_until_live(page)
        open_hold_dialog(page)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("What happens:")
        expect(dialog).to_contain_text("Cost:")
        # A reason is required: the browser reports the empty field.
        dialog.locator("#do").click()
        expect(dialog).to_be_visible()
        assert plane.ask("GET", "/api/fleet")["hold"] is None
        confirm_dialog(page, "Hold the fleet", Reason=f"stop everything, from {path}")
        for shown in (page, other):
            expect(shown.locator("#summary")).to_contain_text(f"stop everything, from {path}")
        assert plane.ask("GET", "/api/fleet")["hold"]["reason"] == f"stop everything, from {path}"
        expect(other.get_by_role("button", name="Release the fleet")).to_have_count(0)
        page.get_by_role("button", name="Release the fleet").click()
        confirm_dialog(page, "Release the fleet")
        for shown in (page, other):
            expect(shown.get_by_text("The fleet is on hold.")).to_have_count(0)
            assert_not_reloaded(shown)
        assert plane.ask("GET", "/api/fleet")["hold"] is None


def test_the_fleet_menu_stays_open_while_the_page_changes_and_a_double_click_holds_once(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/", role="operator")
    wait_until_live(page)
    heading, hold = page.get_by_text("Fleet actions", exact=True), page.locator("#hold-fleet")
    expect(hold).to_be_hidden()
    heading.click()
    count = page.locator("#summary dd").first
    before = count.inner_text()
    plane.ask("POST", "/api/workers", {"name": "menu-one", "template_name": "small", "desired_status": "STOPPED"})
    expect(count).not_to_have_text(before)
    expect(hold).to_be_visible()
    page.keyboard.press("Escape")
    expect(hold).to_be_hidden()
    expect(heading).to_be_focused()
    page.keyboard.press("Enter")
    expect(hold).to_be_visible()
    page.get_by_role("heading", name="Overview", level=1).click()
    expect(hold).to_be_hidden()
    open_hold_dialog(page)
    expect(hold).to_be_hidden()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("a double click")
    dialog.locator("#do").dblclick()
    expect(page.locator("#summary")).to_contain_text("a double click")
    entries = plane.ask("GET", "/api/audit?action=fleet_held")["items"]
    assert [each["reason"] for each in entries].count("a double click") == 1
    plane.ask("POST", "/api/fleet/release")


def test_an_admin_closes_a_breaker(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/system")
    wait_until_live(page)
    banner = page.locator("#summary .breaker")
    expect(banner).to_contain_text("ap-southeast-2")
    banner.get_by_role("button", name="Close it").click()
    confirm_dialog(page, "Close the breaker")
    expect(banner).to_have_count(0)
    assert plane.ask("GET", "/api/fleet")["breakers"] == []
    assert_not_reloaded(page)


def test_templates_are_created_changed_and_disabled(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/templates")
    wait_until_live(page)
    expect(page.locator("#t-special")).to_contain_text(SAMPLE_TEXT)
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
    confirm_dialog(page, "Create template")
    row = page.locator("#t-bigger")
    expect(row.locator("[data-label=CPU]")).to_have_text("4")
    assert plane.ask("GET", "/api/worker-templates/bigger")["capacity"]["cpu_cores"] == 4
    page.get_by_role("button", name="Edit bigger").click()
    dialog.get_by_label("Description").fill("with more cores")
    confirm_dialog(page, "Save bigger")
    expect(row).to_contain_text("with more cores")
    page.get_by_role("button", name="Disable bigger").click()
    expect(dialog).to_contain_text("No new worker will be created from it")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    assert plane.ask("GET", "/api/worker-templates/bigger")["enabled"] is True
    confirm_dialog(page, "Disable template bigger")
    expect(row).to_contain_text("disabled")
    assert plane.ask("GET", "/api/worker-templates/bigger")["enabled"] is False
    page.get_by_role("button", name="Enable bigger").click()
    expect(row).not_to_contain_text("disabled")
    assert_not_reloaded(page)


def fail_worker(plane: ScriptedControlPlane, name: str) -> None:
    worker = plane.create(name)
    failed = {"status": "FAILED", "version": worker["version"], "reason": f"no capacity for {SAMPLE_TEXT}"}
    plane.controller("POST", f"/api/internal/workers/{worker['id']}/status", failed)


def subscribe(plane: ScriptedControlPlane, name: str, url: str) -> Any:
    body = {"name": name, "target": "webhook", "url": url, "filter": {"types": ["worker_failed"]}}
    return plane.ask("POST", "/api/subscriptions", body)["subscription"]


def test_an_admin_sees_what_was_delivered_and_sends_what_was_rejected_again(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    with webhook_host() as url:
        accepting = subscribe(plane, "on-call", f"{url}/accepts")
        rejecting = subscribe(plane, "old-tool", f"{url}/rejects")
        fail_worker(plane, "broken")
        page, _ = visits.open(plane, "/notifications")
        wait_until_live(page)
        delivered, rejected = page.locator(f"#{accepting['id']}"), page.locator(f"#{rejecting['id']}")
        lines = delivered.get_by_role("region", name="Last deliveries of on-call").locator("tbody tr")
        expect(lines.first).to_contain_text("broken", timeout=30_000)
        expect(lines.first.locator("[data-label=Outcome]")).to_have_text("delivered")
        expect(delivered).to_contain_text("Delivered: 1. Waiting: 0. Dead letters: 0.")
        expect(rejected).to_contain_text("Dead letters: 1.", timeout=30_000)
        letter = rejected.get_by_role("region", name="Dead letters of old-tool").locator("tbody tr")
        expect(letter.locator("[data-label=Answer]")).to_contain_text("400")
        letter.get_by_role("button", name=re.compile("^Send again")).click()
        expect(page.locator("#toasts")).to_contain_text("old-tool: not delivered.")
        delivered.get_by_role("button", name="Send a test to on-call").click()
        expect(page.locator("#toasts")).to_contain_text("on-call: delivered in")
        rejected.get_by_role("button", name="Disable old-tool").click()
        confirm_dialog(page, "Disable subscription old-tool")
        expect(rejected).to_contain_text("disabled")
        assert accessibility_violations(page) == []
        assert_not_reloaded(page)
        viewer, _ = visits.open(plane, "/notifications", role="viewer")
        expect(viewer.locator(f"#{accepting['id']}")).to_contain_text("broken")
        assert viewer.get_by_role("main").get_by_role("button").count() == 0
        for each in (accepting, rejecting):
            plane.ask("DELETE", f"/api/subscriptions/{each['id']}")


def test_an_operator_reads_templates_and_settings_and_changes_none(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/templates", role="operator")
    expect(page.locator("#t-small")).to_be_visible()
    assert page.get_by_role("main").get_by_role("button").count() == 0
    page.goto("/settings")
    expect(page.get_by_text("Only an admin can change them.")).to_be_visible()
    assert page.get_by_role("main").get_by_role("textbox").count() == 0
    assert page.get_by_role("main").get_by_role("button", name=re.compile("Save|Reset")).count() == 0


def test_activity_is_filtered_and_announces_new_entries(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/activity")
    wait_until_live(page)
    lines = page.locator("table.lines tbody tr")
    expect(lines.first).to_be_visible()
    held = fleet["held"]["id"]
    page.get_by_label("Target").fill(held)
    expect(page).to_have_url(re.compile(f"subject={held}"))
    expect(lines.filter(has_text="held").first).to_be_visible()
    expect(lines.filter(has_not=page.get_by_role("link", name="held", exact=True))).to_have_count(0)
    expect(lines.filter(has_text=SAMPLE_TEXT).first).to_be_visible()
    plane.command(fleet["held"], "release")
    page.get_by_role("link", name=re.compile("1 new entry")).click()
    expect(lines.first).to_contain_text("release")
    page.get_by_label("Target").fill("")
    page.get_by_label("Text").fill("no entry has this text")
    expect(page.get_by_role("heading", name=re.compile("^No "))).to_be_visible()
    page.goto(f"/activity?subject={held}")
    expect(lines.filter(has_not=page.get_by_role("link", name="held", exact=True))).to_have_count(0)


def test_the_activity_summary_shows_savings(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/activity")
    summary = page.locator("#activity-summary")
    expect(summary.locator(".saved")).to_contain_text(re.compile(r"\$\d+\.\d\d.* saved "))
    expect(summary.get_by_role("heading", name="People")).to_be_visible()
    expect(summary).to_contain_text("stopped")
    page.get_by_role("link", name="24 hours").click()
    expect(page).to_have_url(re.compile("night=24h"))
    expect(summary.locator(".saved")).to_be_visible()


def test_settings_are_saved_refused_and_reset(visits: Visits, plane: ScriptedControlPlane) -> None:
    page, watch = visits.open(plane, "/settings")
    wait_until_live(page)
    field = page.locator("#idle-worker_idle_timeout_minutes")
    was = plane.ask("GET", "/api/settings")["idle"]["worker_idle_timeout_minutes"]
    field.fill("soon")
    watch.allow("status of 422")
    page.locator("#save-idle").click()
    expect(page.locator("#group-idle").get_by_role("alert")).to_contain_text("Nothing was saved")
    assert plane.ask("GET", "/api/settings")["idle"]["worker_idle_timeout_minutes"] == was
    field.fill("0.0001")
    page.locator("#save-idle").click()
    expect(page.locator("#idle-worker_idle_timeout_minutes-problem")).to_have_text("must be at least 1")
    field.fill("17")
    page.locator("#save-idle").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("No worker will be stopped within 5 minutes.")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    assert plane.ask("GET", "/api/settings")["idle"]["worker_idle_timeout_minutes"] == was
    confirm_dialog(page, "Save")
    reset = page.get_by_role("button", name=re.compile("Reset .*idle", re.IGNORECASE)).first
    expect(reset).to_be_visible()
    assert plane.ask("GET", "/api/settings")["idle"]["worker_idle_timeout_minutes"] == 17
    reset.click()
    confirm_dialog(page, "Save")
    expect(reset).to_have_count(0)
    expect(field).to_have_value(re.compile(rf"^{was:g}"))
    assert plane.ask("GET", "/api/settings")["idle"]["worker_idle_timeout_minutes"] == was
    assert_not_reloaded(page)


def test_the_theme_is_a_choice_that_stays(visits: Visits, plane: ScriptedControlPlane) -> None:
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


def test_the_system_page_shows_leaders_queues_and_calls(visits: Visits, up: LcmUpProcess) -> None:
    up.ask("POST", "/api/workers", {"name": "alpha", "template_name": "small"})
    page, _ = visits.open(up, "/system", role="viewer")
    wait_until_live(page)
    card = page.locator("section.controller").filter(has_text="worker-controller")
    expect(card).to_contain_text(re.compile(r"leads in term \d+"))
    for name in ("Queue depth", "Last resync", "Throttled by AWS"):
        expect(card.locator("dt").filter(has_text=name)).to_be_visible()
    expect(card.get_by_role("region", name="Regions")).to_contain_text("us-east-1")
    expect(page.get_by_role("region", name="Mirror")).to_contain_text("in sync")
    expect(page.get_by_role("region", name="Suspended")).to_contain_text("all closed")
    assert_not_reloaded(page)
