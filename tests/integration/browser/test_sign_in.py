"""Signing in with a token or a link, signing out, wrong tokens, and expired sessions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.servers.processes import wait_until
from tests.support.servers.scripted_control_plane import ScriptedControlPlane
from tests.support.web.actions import assert_not_reloaded, wait_until_live
from tests.support.web.pages import accessibility_violations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.support.servers.lcm_up import LcmUpProcess
    from tests.support.web.pages import Visits

REFUSED = r"status of 401"


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[ScriptedControlPlane]:
    """A control plane without workers, whichever tests ran before."""
    made = ScriptedControlPlane(tmp_path).start()
    yield made
    made.close()


def test_a_wrong_token_is_refused_and_a_valid_one_is_not(empty: ScriptedControlPlane, visits: Visits) -> None:
    plane = empty
    context, watch = visits.context(plane)
    page = context.new_page()
    page.goto("/")
    expect(page).to_have_url(f"{plane.url}/sign-in")
    sign_in(page, "not-a-token")
    watch.allow(REFUSED)
    expect(page.get_by_role("alert")).not_to_be_empty()
    expect(page.get_by_label("Token")).to_have_value("")
    assert context.cookies() == []

    sign_in(page, visits.token(plane, "viewer"))
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    expect(page.get_by_role("heading", name="No workers yet")).to_be_visible()
    expect(page.locator(".user")).to_contain_text("viewer")
    (cookie,) = context.cookies()
    assert cookie.get("httpOnly")
    assert cookie.get("sameSite") == "Strict"


def test_a_user_returns_to_the_requested_page(visits: Visits, plane: ScriptedControlPlane) -> None:
    context, _ = visits.context(plane)
    page = context.new_page()
    page.goto("/fleet?view=problems&q=a%26b")
    expect(page).to_have_url(re.compile(r"/sign-in\?next="))
    sign_in(page, visits.token(plane, "viewer"))
    expect(page).to_have_url(f"{plane.url}/fleet?view=problems&q=a%26b")
    expect(page.get_by_label("Search")).to_have_value("a&b")


@pytest.mark.parametrize(
    "elsewhere", ["//example.org/", "https://example.org/", "/\\example.org", "javascript:alert(1)"]
)
def test_redirects_stay_on_our_site(visits: Visits, plane: ScriptedControlPlane, elsewhere: str) -> None:
    context, _ = visits.context(plane)
    page = context.new_page()
    page.goto(f"/sign-in?next={elsewhere}")
    sign_in(page, visits.token(plane, "viewer"))
    expect(page).to_have_url(f"{plane.url}/")


def test_signing_out_ends_the_session(visits: Visits, plane: ScriptedControlPlane) -> None:
    page, _ = visits.open(plane, "/system")
    kept = page.context.cookies()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile(r"/sign-in"))
    page.goto("/")
    expect(page).to_have_url(f"{plane.url}/sign-in")
    # The cookie would still work if only the browser had dropped it.
    page.context.add_cookies([{"name": c["name"], "value": c["value"], "url": plane.url} for c in kept])
    page.goto("/")
    expect(page).to_have_url(f"{plane.url}/sign-in")


def test_an_expired_session_keeps_the_form_and_signing_in_goes_on_there(
    visits: Visits, plane: ScriptedControlPlane
) -> None:
    page, watch = visits.open(plane, "/fleet?view=stopped", role="operator")
    wait_until_live(page)
    page.get_by_role("button", name="Create a worker", exact=True).first.click()
    form = page.locator("#new-worker")
    form.get_by_label("Name", exact=True).fill("typed-before")
    watch.allow(REFUSED)
    page.context.clear_cookies()
    form.locator("#do").click()
    ended = page.locator("#session")
    expect(ended).to_contain_text("Your session has ended")
    expect(ended.get_by_role("link", name="another tab")).to_have_attribute("href", re.compile("next=%2Ffleet%3Fview"))
    assert accessibility_violations(page) == []
    page.keyboard.press("Escape")
    expect(ended).to_be_visible()
    ended.get_by_label("Token").fill("wrong")
    ended.get_by_role("button", name="Sign in").click()
    expect(ended.get_by_role("alert")).to_be_visible()
    ended.get_by_label("Token").fill(visits.token(plane, "operator"))
    ended.get_by_role("button", name="Sign in").click()
    expect(ended).to_be_hidden()
    expect(form.get_by_label("Name", exact=True)).to_have_value("typed-before")
    form.locator("#do").click()
    expect(form).to_be_hidden()
    assert [each["name"] for each in plane.ask("GET", "/api/workers?q=typed-before")["items"]] == ["typed-before"]
    assert "view=stopped" in page.url
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    assert_not_reloaded(page)


def test_a_session_begun_on_another_tab_is_taken_over(visits: Visits, plane: ScriptedControlPlane) -> None:
    page, watch = visits.open(plane, "/settings")
    wait_until_live(page)
    page.locator("#scaling-min_workers").fill("3")
    watch.allow(REFUSED)
    page.context.clear_cookies()
    page.locator("#save-scaling").click()
    expect(page.locator("#session")).to_be_visible()
    with page.context.expect_page() as opened:
        page.locator("#session").get_by_role("link", name="another tab").click()
    sign_in(opened.value, visits.token(plane, "admin"))
    expect(opened.value).to_have_url(f"{plane.url}/settings")
    page.bring_to_front()
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.locator("#session")).to_be_hidden()
    expect(page.locator("#scaling-min_workers")).to_have_value("3")
    page.locator("#save-scaling").click()
    expect(page.locator("#dialog")).to_contain_text("MIN_WORKERS")
    assert_not_reloaded(page)


def test_a_token_that_is_revoked_ends_the_sessions_behind_it(visits: Visits, plane: ScriptedControlPlane) -> None:
    made = plane.ask("POST", "/api/tokens", {"name": "short-lived", "role": "viewer"})
    context, watch = visits.context(plane)
    page = context.new_page()
    page.goto("/sign-in")
    sign_in(page, made["token"])
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    plane.ask("DELETE", f"/api/tokens/{made['info']['id']}")
    watch.allow(REFUSED)
    page.goto("/system")
    expect(page).to_have_url(re.compile(r"/sign-in\?next=%2Fsystem"))


def test_the_link_of_lcm_up_signs_in_once(visits: Visits, up: LcmUpProcess) -> None:
    def links() -> list[str]:
        return re.findall(r"http://\S+/sign-in\S*#\S+", up.process.log_path.read_text())

    wait_until(lambda: bool(links()), "lcm up prints a link")
    context, watch = visits.context(up)
    page = context.new_page()
    page.goto(links()[0])
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert "#" not in page.url
    expect(page.locator(".user")).to_contain_text("admin")

    again, watch = visits.context(up)
    page = again.new_page()
    page.goto(links()[0])
    watch.allow(REFUSED)
    expect(page.get_by_role("alert")).to_contain_text("already used")
    assert again.cookies() == []
