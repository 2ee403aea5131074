"""What tests in a browser do on most pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

PATHS = ("/", "/lablets", "/definitions", "/templates", "/activity", "/system", "/settings")
"""Every page that is about no single worker."""


def row(page: Page, worker: dict[str, Any]) -> Locator:
    """A worker's row in the list."""
    return page.locator(f"tr[data-worker='{worker['id']}']")


def live(page: Page) -> None:
    """Wait until the page hears of changes, and mark it: one that was loaded anew has no mark."""
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    page.evaluate("window.sameDocument = true")


def not_reloaded(page: Page) -> None:
    """It is still the document that `live` has marked."""
    assert page.evaluate("window.sameDocument") is True


def confirm(page: Page, button: str, **fields: str) -> None:
    """Fill in the dialog that is open and say yes; wait until it is gone."""
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    for label, value in fields.items():
        dialog.get_by_label(label).fill(value)
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_be_hidden()
