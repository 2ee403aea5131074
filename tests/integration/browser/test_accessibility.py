"""Every page is accessible: axe's rules of levels A and AA, in both themes and on a phone, and by keyboard alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.web.actions import PATHS, confirm_dialog, open_hold_dialog, row, wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations
from tests.support.web.sample_fleet import create_sample_fleet

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Scheme, Visits

WORKERS = ("ready", "silent", "failed", "ended")
VIEWPORTS: list[tuple[Scheme, tuple[int, int]]] = [("light", DESKTOP), ("dark", DESKTOP), ("dark", PHONE)]
each_viewport = pytest.mark.parametrize(("scheme", "size"), VIEWPORTS, ids=["light", "dark", "phone"])


@pytest.fixture(scope="module")
def fleet(plane: ScriptedControlPlane) -> dict[str, dict[str, Any]]:
    return create_sample_fleet(plane, many=12)


@each_viewport
def test_signing_in(visits: Visits, plane: ScriptedControlPlane, scheme: Scheme, size: tuple[int, int]) -> None:
    context, watch = visits.context(plane, scheme=scheme, size=size)
    page = context.new_page()
    page.goto("/sign-in")
    assert accessibility_violations(page) == []
    page.get_by_label("Token").fill("nonsense")
    page.get_by_role("button", name="Sign in").click()
    watch.allow("status of 401")
    expect(page.get_by_role("alert")).to_be_visible()
    assert accessibility_violations(page) == []


@each_viewport
def test_every_page(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]], scheme: Scheme, size: tuple[int, int]
) -> None:
    page, _ = visits.open(plane, "/fleet", scheme=scheme, size=size)
    found: list[str] = []
    for path in (*PATHS, *(f"/workers/{fleet[name]['id']}" for name in WORKERS)):
        page.goto(path)
        wait_until_live(page)
        wait_until_loaded(page)
        found += [f"{path}: {barrier}" for barrier in accessibility_violations(page)]
        if overflows_window(page):
            found.append(f"{path}: is wider than the window")
    assert found == [], "\n".join(found)


@each_viewport
def test_a_dialog_a_hold_and_a_lost_connection(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]], scheme: Scheme, size: tuple[int, int]
) -> None:
    page, _ = visits.open(plane, "/fleet", scheme=scheme, size=size)
    wait_until_live(page)
    open_hold_dialog(page)
    expect(page.get_by_role("dialog")).to_be_visible()
    assert accessibility_violations(page) == []
    page.keyboard.press("Escape")
    plane.ask("POST", "/api/fleet/hold", {"reason": "an operator checks the brakes"})
    expect(page.get_by_text("The fleet is on hold")).to_be_visible()
    assert accessibility_violations(page) == []
    plane.ask("POST", "/api/fleet/release")
    expect(page.get_by_text("The fleet is on hold")).to_be_hidden()
    page.locator("#lost").evaluate("element => { element.hidden = false }")
    assert accessibility_violations(page) == []


def wait_until_loaded(page: Page) -> None:
    """Wait for what the page loads later."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    expect(page.locator(".plots-state", has_text="Loading")).to_have_count(0)


def overflows_window(page: Page) -> bool:
    """Whether the page scrolls sideways; a table may scroll within itself."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


def press_until(page: Page, key: str, selector: str, most: int = 120) -> None:
    """Press a key until an element has the focus, as a keyboard user does; the focus must be visible."""
    for _ in range(most):
        page.keyboard.press(key)
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            outlined = page.evaluate(
                "() => { const style = getComputedStyle(document.activeElement);"
                " return style.outlineStyle !== 'none' || style.boxShadow !== 'none' }"
            )
            assert outlined, f"the focus on {selector} is not visible"
            return
    raise AssertionError(f"{selector} is not reached with {key}")


def test_a_phone_is_enough_to_hold_a_worker(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/fleet", role="operator", size=PHONE)
    wait_until_live(page)
    page.get_by_label("Search").fill("more-005")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="more-005").tap()
    wait_until_live(page)
    page.locator("#act-hold").tap()
    assert page.get_by_role("dialog").evaluate("box => box.getBoundingClientRect().right <= window.innerWidth")
    confirm_dialog(page, "Hold more-005", Reason="from the train")
    expect(page.locator("#held")).to_contain_text("from the train")
    assert plane.worker(fleet["more-005"])["hold"]["reason"] == "from the train"


def test_a_keyboard_is_enough_to_stop_a_worker(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    worker = fleet["more-007"]
    page, _ = visits.open(plane, "/fleet", role="operator")
    wait_until_live(page)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    press_until(page, "Tab", "#q")
    page.keyboard.type("more-007")
    expect(page.locator("tbody tr")).to_have_count(1)
    press_until(page, "Tab", f"#select-{worker['id']}")
    page.keyboard.press("Space")
    expect(page.locator("#bulk")).to_be_visible()
    press_until(page, "Shift+Tab", "#bulk [value=stop]")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.type("1")  # the number of workers, which the dialog asks for
    press_until(page, "Tab", "#do", 20)
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(row(page, worker).locator("[data-label=Desired]")).to_have_text("stopped")
    assert plane.worker(worker)["desired_status"] == "STOPPED"
