"""What browser tests do on most pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

PATHS = (
    "/",
    "/fleet",
    "/lablets",
    "/definitions",
    "/templates",
    "/activity",
    "/notifications",
    "/schedules",
    "/bookings",
    "/teams",
    "/system",
    "/settings",
)
"""Every page that is not about one record."""


def row(page: Page, worker: dict[str, Any]) -> Locator:
    """A worker's row in the list."""
    return page.locator(f"tr[data-worker='{worker['id']}']")


def wait_until_live(page: Page) -> None:
    """Wait until the page receives events, and mark its document: a reloaded page has no mark."""
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    page.evaluate("window.sameDocument = true")


def open_hold_dialog(page: Page) -> None:
    """Open the dialog that holds the fleet, from the menu of every page."""
    page.get_by_text("Fleet actions", exact=True).click()
    page.get_by_role("button", name="Hold the fleet").click()


def assert_not_reloaded(page: Page) -> None:
    """Assert that the document is the one that `wait_until_live` marked."""
    assert page.evaluate("window.sameDocument") is True


def type_confirmation(page: Page) -> None:
    """Type the name or the number that the open dialog asks for, if it does."""
    field = page.get_by_role("dialog").locator("[data-expected]")
    if field.count():
        field.fill(field.get_attribute("data-expected") or "")


def confirm_dialog(page: Page, button: str, **fields: str) -> None:
    """Fill in the open dialog and confirm it; wait until it is closed."""
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    for label, value in fields.items():
        dialog.get_by_label(label).fill(value)
    type_confirmation(page)
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_be_hidden()
