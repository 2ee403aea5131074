"""The Fleet page: its rows, filters in the URL, live updates, and bulk actions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.web.actions import assert_not_reloaded, row, type_confirmation, wait_until_live
from tests.support.web.sample_fleet import create_sample_fleet

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Visits

WORKER_COUNT = 55  # more than fit on a page


@pytest.fixture(scope="module")
def fleet(plane: ScriptedControlPlane) -> dict[str, dict[str, Any]]:
    return create_sample_fleet(plane, many=WORKER_COUNT)


def names(page: Page) -> list[str]:
    return page.locator("tbody th.name > a").all_text_contents()


def back(page: Page) -> None:
    """The back button. Not `go_back`: it takes a page that reloads on the way for an aborted navigation."""
    page.evaluate("history.back()")


def test_problems_come_first_and_each_row_shows_its_details(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/fleet")
    first = names(page)[:3]
    assert first[0] == "failed"
    assert "silent" in first
    assert "ended" not in names(page)
    failed = row(page, fleet["failed"])
    expect(failed).to_contain_text("FAILED")
    expect(failed.locator(".why")).to_contain_text("text written by a user")
    page.goto("/fleet?q=ready")
    ready = row(page, fleet["ready"])
    for text in ("RUNNING", "ready", "running", "us-east-1", "small", "$0.0263"):
        expect(ready).to_contain_text(text)
    expect(ready.locator("svg.spark polyline")).to_be_attached()
    expect(ready.locator(f"#labs-{fleet['ready']['id']}")).to_have_text(re.compile(r"\d"))
    expect(ready.locator("time").first).to_have_attribute("title", re.compile(r"20\d\d-\d\d-\d\d .*UTC"))


def test_filters_and_order_are_in_the_url_and_the_back_button_undoes_them(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/fleet")
    wait_until_live(page)
    page.get_by_label("Search").press_sequentially("more-00")
    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page).to_have_url(re.compile(r"[?&]q=more-00"))
    page.get_by_label("Region").select_option("us-east-1")
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page).to_have_url(re.compile(r"region=us-east-1"))
    page.get_by_role("link", name="Worker").click()
    expect(page.locator("th[aria-sort='ascending']")).to_contain_text("Worker")
    assert names(page) == ["more-001", "more-004", "more-007"]
    page.get_by_role("link", name="Worker").click()
    expect(page.locator("th[aria-sort='descending']")).to_contain_text("Worker")
    assert names(page) == ["more-007", "more-004", "more-001"]
    assert "q=more-00" in page.url
    assert "region=us-east-1" in page.url
    assert "sort=-name" in page.url
    assert_not_reloaded(page)
    here = page.url

    back(page)
    expect(page.locator("th[aria-sort='ascending']")).to_contain_text("Worker")
    assert names(page) == ["more-001", "more-004", "more-007"]
    back(page)
    expect(page.locator("th[aria-sort]")).to_have_count(0)
    expect(page.locator("tbody tr")).to_have_count(3)
    back(page)
    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page.get_by_label("Search")).to_have_value("more-00")
    expect(page.get_by_label("Region")).to_have_value("")
    # The page still receives events.
    wait_until_live(page)
    page.get_by_label("Select more-004").check()
    page.locator("#bulk").get_by_role("button", name="Stop").click()
    expect(page.get_by_role("dialog")).to_contain_text("more-004")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    worker = plane.command(fleet["more-004"], "hold", {"reason": "still alive"})
    expect(row(page, worker)).to_have_attribute("data-version", str(worker["version"]))

    page.goto(here)
    assert names(page) == ["more-007", "more-004", "more-001"]
    expect(page.get_by_label("Search")).to_have_value("more-00")
    expect(page.get_by_label("Region")).to_have_value("us-east-1")


def test_views_and_pages_are_links(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/fleet?sort=name")
    expect(page.locator("tbody tr")).to_have_count(50)
    seen = names(page)
    page.get_by_role("link", name="Next page").click()
    expect(page).to_have_url(re.compile("page=2"))
    expect(page.locator("tbody tr").first).not_to_contain_text(seen[0])
    assert not set(names(page)) & set(seen)
    assert {*seen, *names(page)} >= fleet.keys() - {"ended"}  # other tests have workers of their own
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(50)
    for title, name in (("Stopped", "stopped"), ("Terminated", "ended")):
        view = page.get_by_role("link", name=re.compile(f"^{title}"))
        count = int(view.locator(".n").inner_text())  # other tests have workers of their own
        view.click()
        expect(page.locator("tbody tr")).to_have_count(count)
        expect(page.locator("tbody tr").filter(has_text=title.upper())).to_have_count(count)
        assert name in names(page)
    page.goto("/fleet?q=no-such-name")
    expect(page.get_by_role("heading", name="No matching workers")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Show all workers").click()
    expect(page.locator("tbody tr")).to_have_count(50)


def test_a_row_follows_its_worker_without_a_reload(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/fleet?q=more-05")
    wait_until_live(page)
    worker = fleet["more-050"]
    plane.command(worker, "stop")
    expect(row(page, worker).locator("[data-label=Desired]")).to_have_text("stopped")
    plane.report(worker, "STOPPING")
    expect(row(page, worker)).to_contain_text("STOPPING")
    written = plane.report(worker, "STOPPED")
    expect(row(page, worker)).to_contain_text("STOPPED")
    expect(row(page, worker)).to_have_attribute("data-version", str(written["version"]))
    assert_not_reloaded(page)


def test_workers_come_and_go_without_a_reload_and_the_counts_follow(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/fleet?q=new-one")
    expect(page.get_by_role("heading", name="No matching workers")).to_be_visible()
    wait_until_live(page)
    workers = page.locator("#summary dl div").filter(has_text="Workers").locator("dd")
    before = int(workers.text_content() or "")
    made = plane.create("new-one")
    expect(row(page, made)).to_contain_text("PENDING")
    expect(workers).to_have_text(str(before + 1))
    plane.command(made, "terminate")
    plane.report(made, "TERMINATED")
    expect(row(page, made)).to_have_count(0)
    expect(workers).to_have_text(str(before))
    assert_not_reloaded(page)


def test_several_workers_are_stopped_after_a_preview(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/fleet?q=more-04", role="operator")
    wait_until_live(page)
    expect(page.locator("#bulk")).to_be_hidden()
    for name in ("more-041", "more-042"):
        page.get_by_label(f"Select {name}").check()
    page.locator("#bulk").get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("more-041")
    expect(dialog).to_contain_text("more-042")
    expect(dialog).to_contain_text("$")
    assert plane.worker(fleet["more-041"])["desired_status"] == "RUNNING"
    type_confirmation(page)
    dialog.get_by_role("button", name=re.compile("Stop")).click()
    expect(dialog).to_be_hidden()
    for name in ("more-041", "more-042"):
        expect(row(page, fleet[name]).locator("[data-label=Desired]")).to_have_text("stopped")
        assert plane.worker(fleet[name])["desired_status"] == "STOPPED"
    assert plane.worker(fleet["more-043"])["desired_status"] == "RUNNING"
    assert_not_reloaded(page)


def test_the_selection_stays_while_rows_change(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/fleet?q=more-03", role="operator")
    wait_until_live(page)
    box = page.get_by_label("Select more-031")
    box.check()
    plane.command(fleet["more-031"], "hold", {"reason": "selected"})
    expect(row(page, fleet["more-031"]).locator(".chip.held")).to_be_visible()
    expect(box).to_be_checked()
    plane.create("more-03x")
    expect(page.locator("tbody tr")).to_have_count(11)
    expect(box).to_be_checked()


def test_a_dialog_can_be_left_without_a_change(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/fleet?q=more-02", role="operator")
    wait_until_live(page)
    page.get_by_label("Select all on this page").check()
    page.locator("#bulk").get_by_role("button", name="Terminate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("more-020")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    page.locator("#bulk").get_by_role("button", name="Terminate").click()
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert plane.worker(fleet["more-020"])["desired_status"] == "RUNNING"


def test_a_viewer_sees_no_actions(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/fleet", role="viewer")
    wait_until_live(page)
    expect(page.locator("tbody tr").first).to_be_visible()
    assert page.get_by_role("checkbox").count() == 0
    offered = {text.strip() for text in page.get_by_role("button").all_text_contents()}
    assert offered <= {"Sign out", "◐", ""}, offered
    # The server refuses a request as well.
    watch.allow("status of 403")
    csrf = page.evaluate("JSON.parse(document.body.getAttribute('hx-headers:inherited'))['X-LCM-CSRF']")
    for path in (f"/api/workers/{fleet['ready']['id']}/stop", "/api/fleet/hold"):
        response = page.request.post(path, data={"reason": "I want to"}, headers={"X-LCM-CSRF": csrf})
        assert response.status == 403
