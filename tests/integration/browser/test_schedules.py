"""Schedules by keyboard: a form that shows the week while it is filled in, and what it says about workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.web.actions import wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations
from tests.support.web.sample_fleet import create_sample_fleet

if TYPE_CHECKING:
    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Scheme, Visits


@pytest.fixture(scope="module")
def fleet(plane: ScriptedControlPlane) -> dict[str, dict[str, Any]]:
    return create_sample_fleet(plane)


@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)], ids=["light", "phone"])
def test_a_schedule_is_made_by_keyboard_and_its_week_is_shown_before_it_is_saved(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]], scheme: Scheme, size: tuple[int, int]
) -> None:
    worker = fleet["ready"]
    page, _ = visits.open(plane, "/schedules", role="operator", scheme=scheme, size=size)
    wait_until_live(page)
    page.get_by_role("button", name="New schedule").first.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("classes")
    dialog.get_by_label("Time zone").fill("Asia/Kathmandu")
    dialog.get_by_label("Windows", exact=True).fill("daily 00:00-24:00")
    dialog.get_by_label("Exceptions").fill("1970-01-01..2999-12-31 closed")
    dialog.get_by_label("Names").fill(worker["name"])
    page.keyboard.press("Tab")
    preview = dialog.locator("#schedule-preview")
    expect(preview).to_contain_text("times in Asia/Kathmandu")
    expect(preview.get_by_role("row")).to_have_count(8 + 2)
    expect(preview).to_contain_text("stopped now, or as soon as it is not in use")
    assert accessibility_violations(page) == []
    dialog.get_by_label("Windows", exact=True).fill("daily 8-18")
    page.keyboard.press("Tab")
    expect(preview).to_contain_text("windows: line 1:")
    dialog.get_by_label("Windows", exact=True).fill("daily 08:00-18:00")
    dialog.locator("#do").focus()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    row = page.get_by_role("row", name="classes")
    expect(row).to_contain_text("closed")
    assert accessibility_violations(page) == []
    row.get_by_role("button", name="Week of classes").press("Enter")
    expect(dialog).to_contain_text(worker["name"])
    assert accessibility_violations(page) == []
    page.keyboard.press("Escape")
    row.get_by_role("button", name="Disable classes").press("Enter")
    expect(dialog).to_contain_text("It will do nothing until it is enabled again.")
    assert accessibility_violations(page) == []
    page.keyboard.press("Escape")
    expect(row).to_contain_text("closed")
    page.goto(f"/workers/{worker['id']}")
    expect(page.get_by_text("by schedule classes")).to_be_visible()
    expect(page.get_by_text("schedule classes is closed").first).to_be_visible()
    page.goto("/schedules")
    wait_until_live(page)
    page.get_by_role("button", name="Delete classes").press("Enter")
    dialog.get_by_role("button", name="Delete schedule").press("Enter")
    expect(page.get_by_text("No schedules")).to_be_visible()
