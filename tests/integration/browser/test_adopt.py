"""Adopting an imported worker in a browser: the dialog, bad input, a double click, and changing the adoption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.support.servers.processes import wait_until
from tests.support.web.actions import assert_not_reloaded, wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Scheme, Visits


def test_an_imported_worker_is_adopted_once(visits: Visits, plane: ScriptedControlPlane) -> None:
    found = {"instance_id": "i-0ad0b7", "aws_region": "eu-west-1", "status": "RUNNING", "name": "found-one"}
    offers = {"instance_type": "x9.unheard", "cpu_cores": 8, "memory_gb": 32}
    worker = plane.controller("POST", "/api/internal/workers/import", {**found, **offers})
    page, watch = visits.open(plane, f"/workers/{worker['id']}", role="operator")
    watch.allow("status of 422")
    wait_until_live(page)
    page.locator("#act-adopt").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("x9.unheard: 8 CPU, 32 GB memory")
    assert_accessible_everywhere(page)
    # No template has its instance type, so one must be chosen before lablets may be placed on it.
    preview = dialog.locator("#adopt-preview")
    expect(preview).to_contain_text("A template is required, because no template has this worker's instance type")
    dialog.get_by_label("Lablets may be placed on it").uncheck()
    expect(preview).to_contain_text("It will take no lablets.")
    dialog.get_by_label("Lablets may be placed on it").check()
    expect(preview).to_contain_text("A template is required")
    dialog.get_by_label("Stop when idle").check()
    dialog.get_by_label("License token").fill("not a token")
    dialog.locator("#do").click()
    expect(dialog.locator("#problem-license_token")).to_be_visible()
    dialog.get_by_label("License token").fill("a-license-token")
    dialog.locator("#do").click()
    expect(dialog.locator("#problem-template_name")).to_contain_text("no template has this worker's instance type")
    expect(dialog.get_by_label("Stop when idle")).to_be_checked()
    assert accessibility_violations(page) == []
    assert plane.worker(worker)["adopted_at"] is None

    dialog.get_by_label("Template").select_option("large")
    expect(preview).to_contain_text("8 CPU, 32 GB memory, 200 GB disk, 30 nodes")
    dialog.locator("#do").dblclick()
    expect(dialog).to_be_hidden()
    expect(page.locator("#act-adopt")).to_have_text("Change adoption…")
    adopted = plane.worker(worker)
    assert (adopted["schedulable"], adopted["template_name"], adopted["idle_detection_enabled"]) == (
        True,
        "large",
        True,
    )
    entries = plane.ask("GET", f"/api/audit?action=adopted&subject={worker['id']}")["items"]
    assert len(entries) == 1

    page.locator("#act-adopt").click()
    expect(dialog.get_by_label("Lablets may be placed on it")).to_be_checked()
    expect(dialog.get_by_label("Template")).to_have_value("large")
    dialog.get_by_label("Lablets may be placed on it").uncheck()
    for _ in range(3):
        page.keyboard.press("Enter")
    wait_until(lambda: plane.worker(worker)["schedulable"] is False, "the change is made")
    entries = plane.ask("GET", f"/api/audit?action=adopted&subject={worker['id']}")["items"]
    assert len(entries) == 2
    assert_not_reloaded(page)


def assert_accessible_everywhere(page: Page) -> None:
    """In light and dark colors, and on a phone."""
    viewports: list[tuple[Scheme, tuple[int, int]]] = [("dark", PHONE), ("dark", DESKTOP), ("light", DESKTOP)]
    for scheme, (width, height) in viewports:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": height})
        assert accessibility_violations(page) == []
        assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
