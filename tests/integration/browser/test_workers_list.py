"""The Fleet page: what it shows, filters that stay in the address, rows that live, and changes of several at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.web.actions import live, not_reloaded, row
from tests.support.web.sample_fleet import furnish

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.servers.scripted_control_plane import QuietPlane
    from tests.support.web.pages import Visits

WORKER_COUNT = 55  # more than fit on a page


@pytest.fixture(scope="module")
def fleet(plane: QuietPlane) -> dict[str, dict[str, Any]]:
    return furnish(plane, many=WORKER_COUNT)


def names(page: Page) -> list[str]:
    return page.locator("tbody th.name > a").all_text_contents()


def back(page: Page) -> None:
    """The back button. Not `go_back`: a page that reads itself anew on the way would be an aborted navigation to it."""
    page.evaluate("history.back()")


def test_problems_come_first_and_each_row_says_what_there_is_to_know(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/")
    first = names(page)[:3]
    assert first[0] == "failed"
    assert "silent" in first
    assert "ended" not in names(page)
    failed = row(page, fleet["failed"])
    expect(failed).to_contain_text("FAILED")
    expect(failed.locator(".why")).to_contain_text("as somebody wrote it")
    page.goto("/?q=ready")
    ready = row(page, fleet["ready"])
    for text in ("RUNNING", "ready", "running", "us-east-1", "small", "$0.0208"):
        expect(ready).to_contain_text(text)
    expect(ready.locator("svg.spark polyline")).to_be_attached()
    expect(ready.locator(f"#labs-{fleet['ready']['id']}")).to_have_text(re.compile(r"\d"))
    expect(ready.locator("time").first).to_have_attribute("title", re.compile(r"20\d\d-\d\d-\d\d .*UTC"))


def test_filters_search_and_order_stand_in_the_address_and_the_back_button_undoes_them(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/")
    live(page)
    page.get_by_label("Name").press_sequentially("more-00")
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
    not_reloaded(page)
    here = page.url

    back(page)
    expect(page.locator("th[aria-sort='ascending']")).to_contain_text("Worker")
    assert names(page) == ["more-001", "more-004", "more-007"]
    back(page)
    expect(page.locator("th[aria-sort]")).to_have_count(0)
    expect(page.locator("tbody tr")).to_have_count(3)
    back(page)
    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page.get_by_label("Name")).to_have_value("more-00")
    expect(page.get_by_label("Region")).to_have_value("")
    # And the page is as alive as before.
    live(page)
    page.get_by_label("Choose more-004").check()
    page.locator("#bulk").get_by_role("button", name="Stop").click()
    expect(page.get_by_role("dialog")).to_contain_text("more-004")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    worker = plane.command(fleet["more-004"], "hold", {"reason": "still alive"})
    expect(row(page, worker)).to_have_attribute("data-version", str(worker["version"]))

    page.goto(here)
    assert names(page) == ["more-007", "more-004", "more-001"]
    expect(page.get_by_label("Name")).to_have_value("more-00")
    expect(page.get_by_label("Region")).to_have_value("us-east-1")


def test_views_and_pages_are_links(visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]) -> None:
    page, _ = visits.open(plane, "/?sort=name")
    expect(page.locator("tbody tr")).to_have_count(50)
    seen = names(page)
    page.get_by_role("link", name="Next page").click()
    expect(page).to_have_url(re.compile("page=2"))
    expect(page.locator("tbody tr").first).not_to_contain_text(seen[0])
    assert not set(names(page)) & set(seen)
    assert len(names(page)) + len(seen) == len(fleet) - 1
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name=re.compile("^Stopped")).click()
    expect(page.locator("tbody tr")).to_have_count(1)
    assert names(page) == ["stopped"]
    page.get_by_role("link", name=re.compile("^Ended")).click()
    expect(page.locator("tbody th.name a")).to_have_text("ended")
    page.goto("/?q=nobody-is-called-so")
    expect(page.get_by_role("heading", name="No worker fits")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Show all workers").click()
    expect(page.locator("tbody tr")).to_have_count(50)


def test_a_row_follows_its_worker_without_a_reload(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/?q=more-05")
    live(page)
    worker = fleet["more-050"]
    plane.command(worker, "stop")
    expect(row(page, worker).locator("[data-label=Wanted]")).to_have_text("stopped")
    plane.report(worker, "STOPPING")
    expect(row(page, worker)).to_contain_text("STOPPING")
    written = plane.report(worker, "STOPPED")
    expect(row(page, worker)).to_contain_text("STOPPED")
    expect(row(page, worker)).to_have_attribute("data-version", str(written["version"]))
    not_reloaded(page)


def test_workers_come_and_go_without_a_reload_and_the_counts_follow(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/?q=new-one")
    expect(page.get_by_role("heading", name="No worker fits")).to_be_visible()
    live(page)
    workers = page.locator("#summary dl div").filter(has_text="Workers").locator("dd")
    before = int(workers.text_content() or "")
    made = plane.create("new-one")
    expect(row(page, made)).to_contain_text("PENDING")
    expect(workers).to_have_text(str(before + 1))
    plane.command(made, "terminate")
    plane.report(made, "TERMINATED")
    expect(row(page, made)).to_have_count(0)
    expect(workers).to_have_text(str(before))
    not_reloaded(page)


def test_several_are_stopped_at_once_after_a_look_at_what_follows(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/?q=more-04", role="operator")
    live(page)
    expect(page.locator("#bulk")).to_be_hidden()
    for name in ("more-041", "more-042"):
        page.get_by_label(f"Choose {name}").check()
    page.locator("#bulk").get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("more-041")
    expect(dialog).to_contain_text("more-042")
    expect(dialog).to_contain_text("$")
    assert plane.worker(fleet["more-041"])["desired_status"] == "RUNNING"
    dialog.get_by_role("button", name=re.compile("Stop")).click()
    expect(dialog).to_be_hidden()
    for name in ("more-041", "more-042"):
        expect(row(page, fleet[name]).locator("[data-label=Wanted]")).to_have_text("stopped")
        assert plane.worker(fleet[name])["desired_status"] == "STOPPED"
    assert plane.worker(fleet["more-043"])["desired_status"] == "RUNNING"
    not_reloaded(page)


def test_what_was_chosen_stays_chosen_while_rows_change(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/?q=more-03", role="operator")
    live(page)
    box = page.get_by_label("Choose more-031")
    box.check()
    plane.command(fleet["more-031"], "hold", {"reason": "chosen"})
    expect(row(page, fleet["more-031"]).locator(".chip.held")).to_be_visible()
    expect(box).to_be_checked()
    plane.create("more-03x")
    expect(page.locator("tbody tr")).to_have_count(11)
    expect(box).to_be_checked()


def test_a_dialog_can_be_left_without_a_change(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/?q=more-02", role="operator")
    live(page)
    page.get_by_label("Choose all on this page").check()
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


def test_a_viewer_is_offered_nothing_that_he_may_not_do(
    visits: Visits, plane: QuietPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/", role="viewer")
    live(page)
    expect(page.locator("tbody tr").first).to_be_visible()
    assert page.get_by_role("checkbox").count() == 0
    offered = {text.strip() for text in page.get_by_role("button").all_text_contents()}
    assert offered <= {"Sign out", "◐", ""}, offered
    # And if he asks all the same: the server decides.
    watch.allow("status of 403")
    csrf = page.evaluate("JSON.parse(document.body.getAttribute('hx-headers:inherited'))['X-LCM-CSRF']")
    for path in (f"/api/workers/{fleet['ready']['id']}/stop", "/api/fleet/hold"):
        answer = page.request.post(path, data={"reason": "I want to"}, headers={"X-LCM-CSRF": csrf})
        assert answer.status == 403
