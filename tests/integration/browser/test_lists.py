"""Lists with many rows: search, pages, all matching rows, columns, history and the keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.web.actions import assert_not_reloaded, confirm_dialog, row, wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Scheme, Visits

MANY = 120


@pytest.fixture(scope="module")
def fleet(plane: ScriptedControlPlane) -> dict[str, dict[str, Any]]:
    made = {f"seat-{number:03}": plane.create(f"seat-{number:03}", desired_status="STOPPED") for number in range(MANY)}
    made["host"] = plane.running("host", tags={"owner": "anna"})
    return made


LIST = "/fleet"


def names(page: Page) -> list[str]:
    return page.locator("tbody th.name > a").all_text_contents()


def test_one_search_box_finds_by_id_instance_tag_and_region(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, f"{LIST}?sort=name")
    wait_until_live(page)
    host = plane.worker(fleet["host"])
    for text in (host["id"], host["instance_id"], "owner=anna", f"anna {host['aws_region']}"):
        page.locator("#q").fill(text)
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(row(page, host)).to_be_visible()
    assert "sort=name" in page.url
    assert_not_reloaded(page)


def test_typing_a_filter_is_one_entry_of_the_history_and_keeps_the_order(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, LIST)
    wait_until_live(page)
    page.get_by_role("link", name="Worker", exact=True).click()
    expect(page.locator("th[aria-sort='ascending']")).to_contain_text("Worker")
    before = page.evaluate("history.length")
    for length in range(1, 7):
        page.locator("#q").fill("seat-1"[:length])
        expect(page).to_have_url(re.compile(rf"q={re.escape('seat-1'[:length])}(&|$)"))
    expect(page.locator("tbody tr")).to_have_count(20)
    assert "sort=name" in page.url
    assert page.evaluate("history.length") == before + 1
    page.locator("#q").press("Enter")
    page.locator("#q").fill("seat-11")
    expect(page).to_have_url(re.compile(r"q=seat-11(&|$)"))
    page.get_by_label("Status").select_option("PENDING")
    expect(page).to_have_url(re.compile(r"status=PENDING"))
    page.evaluate("history.back()")
    expect(page).to_have_url(re.compile(r"q=seat-11(&|$)"))
    expect(page.get_by_label("Status")).to_have_value("")


def test_pages_previous_next_and_jump(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, f"{LIST}?q=seat-&sort=name")
    first = names(page)
    assert first[0] == "seat-000"
    pages = page.get_by_role("navigation", name="Pagination")
    expect(pages.get_by_role("link", name="Previous page")).to_have_count(0)
    pages.get_by_role("link", name="Next page").click()
    expect(page.locator("tbody th.name > a").first).to_have_text("seat-050")
    pages.get_by_label("Page").fill("3")
    pages.get_by_role("button", name="Go").click()
    expect(page.locator("tbody th.name > a").first).to_have_text("seat-100")
    assert len(names(page)) == 20
    expect(pages.get_by_role("link", name="Next page")).to_have_count(0)
    pages.get_by_role("link", name="Previous page").click()
    expect(page.locator("tbody th.name > a").first).to_have_text("seat-050")
    page.goto(f"{LIST}?q=seat-&sort=name&page=999")
    expect(page.locator("tbody th.name > a").first).to_have_text("seat-100")


def test_workers_that_were_never_launched_say_so(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, f"{LIST}?q=seat-000")
    expect(row(page, fleet["seat-000"])).to_contain_text("NOT LAUNCHED")
    expect(row(page, fleet["seat-000"])).not_to_contain_text("PENDING")


def test_columns_are_chosen_and_kept(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, f"{LIST}?q=host")
    wait_until_live(page)
    region = row(page, fleet["host"]).locator("[data-column=region]")
    expect(region).to_be_visible()
    url = page.url
    page.get_by_text("Columns", exact=True).click()
    page.locator("#columns").get_by_role("button", name="Region").click()
    expect(region).to_be_hidden()
    expect(page.locator("thead [data-column=region]")).to_be_hidden()
    assert accessibility_violations(page) == []
    assert page.url == url, "choosing columns is no filter"
    page.reload()
    expect(region).to_be_hidden()
    page.get_by_text("Columns", exact=True).click()
    page.locator("#columns").get_by_role("button", name="Region").click()
    expect(region).to_be_visible()


def test_the_keyboard(visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]) -> None:
    page, _ = visits.open(plane, f"{LIST}?q=seat-&sort=name")
    wait_until_live(page)
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="seat-000")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.get_by_role("link", name="seat-001")).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#q")).not_to_be_focused()
    page.keyboard.press("?")
    help_dialog = page.get_by_role("dialog", name="Keyboard")
    expect(help_dialog).to_contain_text("next and previous row")
    assert accessibility_violations(page) == []
    page.keyboard.press("Escape")
    expect(help_dialog).to_be_hidden()
    page.get_by_role("link", name="seat-002").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="seat-002", level=1)).to_be_visible()


def test_times_are_in_the_zone_of_the_viewer(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, f"/workers/{fleet['host']['id']}")
    wait_until_live(page)
    made = page.locator("#worker time").first
    expect(made).to_have_attribute("title", re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \S+\n20[0-9T:-]+Z$"))


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE)], ids=["light", "dark", "phone"]
)
def test_all_matching_rows_are_selected_on_the_server(
    visits: Visits,
    plane: ScriptedControlPlane,
    fleet: dict[str, dict[str, Any]],
    scheme: Scheme,
    size: tuple[int, int],
) -> None:
    page, _ = visits.open(plane, f"{LIST}?q=seat-&sort=name", role="operator", scheme=scheme, size=size)
    wait_until_live(page)
    offer = page.locator("#select-matching")
    expect(offer).to_be_hidden()
    if (scheme, size) == ("light", DESKTOP):
        for number in range(50):
            page.get_by_label(f"Select seat-{number:03}", exact=True).check()
    else:
        page.get_by_label("Select all on this page").check()
    expect(offer).to_have_text(f"Select all {MANY} workers that match")
    offer.click()
    expect(page.locator("#selected-count")).to_have_text(f"All {MANY} workers that match are selected")
    assert accessibility_violations(page) == []
    page.locator("#bulk").get_by_role("button", name="Hold").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Hold {MANY} workers?")
    changed = plane.command(fleet["seat-119"], "hold", {"reason": "mine"})
    dialog.get_by_label("Reason").fill("an exam")
    confirm_dialog(page, f"Hold {MANY}")
    toast = page.locator("#toasts .toast")
    expect(toast).to_contain_text(f"On hold: {MANY - 1} of {MANY}")
    expect(toast).to_contain_text("changed since the dialog was opened")
    assert plane.worker(fleet["seat-118"])["hold"]["reason"] == "an exam", "it was not on the page"
    assert plane.worker(fleet["seat-119"])["version"] == changed["version"]
    for worker in plane.ask("GET", "/api/workers?q=seat-&limit=200")["items"]:
        plane.command(worker, "release")
