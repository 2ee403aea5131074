"""Signing in with a real identity provider, through two control planes that share a store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.auth.identity_provider import CLIENT_ID, CLIENT_SECRET
from tests.support.servers.mongod import database_name
from tests.support.servers.processes import wait_until
from tests.support.servers.scripted_control_plane import ScriptedControlPlane
from tests.support.web.actions import wait_until_live
from tests.support.web.pages import PHONE, accessibility_violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.support.auth.identity_provider import IdentityProvider
    from tests.support.web.pages import PageWatch, Visits

KEY = "bGNtLXRlc3Qta2V5LWxjbS10ZXN0LWtleS1sY20tdGU="
BUTTON = "Sign in with your organization"


@pytest.fixture(scope="module")
def planes(
    tmp_path_factory: pytest.TempPathFactory, identity_provider: IdentityProvider, mongodb_uri: str
) -> Iterator[tuple[ScriptedControlPlane, ScriptedControlPlane]]:
    """Two replicas: people who start at the first come back from the provider to the second."""
    shared = {
        "STORE_URL": mongodb_uri.replace("/?", f"/{database_name()}?"),
        "LCM_SECRET_KEY": KEY,
        "OIDC_ISSUER": identity_provider.issuer,
        "OIDC_CLIENT_ID": CLIENT_ID,
        "OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "OIDC_ROLE_CLAIM": "groups",
        "OIDC_ROLE_MAP": '{"lab staff": "operator", "lab-admins": "admin"}',
    }
    second = ScriptedControlPlane(tmp_path_factory.mktemp("second"), **shared)
    second.add_settings(LCM_PUBLIC_URL=second.url)
    first = ScriptedControlPlane(tmp_path_factory.mktemp("first"), **shared, LCM_PUBLIC_URL=second.url)
    identity_provider.serve(second.url, ann=["lab staff", "everyone"], bob=["everyone"], eve=["lab-admins"])
    first.start()
    second.start()
    yield first, second
    first.close()
    second.close()


def allow_provider(watch: PageWatch, *patterns: str) -> None:
    """The provider is another host, and it has no icon."""
    watch.allow(r"another host: http://(localhost|127\.0\.0\.1):")
    watch.allow(r"status of 404 .*favicon")
    for pattern in patterns:
        watch.allow(pattern)


def answer(page: Page, account: str) -> None:
    """Sign in at the provider."""
    page.get_by_label("Account").fill(account)
    page.get_by_role("button", name="Continue").click()


def test_a_person_signs_in_returns_to_the_page_and_signs_out(
    visits: Visits, planes: tuple[ScriptedControlPlane, ScriptedControlPlane], identity_provider: IdentityProvider
) -> None:
    first, second = planes
    context, watch = visits.context(first)
    allow_provider(watch)
    page = context.new_page()
    page.goto("/fleet?view=problems&q=a%26b")
    page.get_by_role("link", name=BUTTON).click()
    expect(page).to_have_url(re.compile(r"^http://localhost:"))
    (attempt,) = [each for each in context.cookies(first.url) if each["name"] == "lcm_sign_in"]
    assert (attempt["httpOnly"], attempt["sameSite"]) == (True, "Lax")
    answer(page, "ann")
    expect(page).to_have_url(f"{second.url}/fleet?view=problems&q=a%26b")
    expect(page.locator(".user")).to_contain_text("ann (operator)")
    (cookie,) = [each for each in context.cookies(first.url) if each["name"].startswith("lcm")]
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("lcm_session", True, "Strict")
    wait_until_live(page)

    # The session is in the store: it holds at every control plane.
    page.goto(f"{first.url}/system")
    expect(page.locator(".user")).to_contain_text("ann (operator)")
    (listed,) = first.ask("GET", "/api/sessions")["items"]
    assert (listed["name"], listed["role"]) == ("ann", "operator")
    assert listed["identity"] == f"oidc:{identity_provider.issuer}#ann"
    assert "grant" not in listed

    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile(r"^http://localhost:\d+/session/end"))
    page.get_by_role("button", name="Yes, sign me out").click()
    expect(page).to_have_url(re.compile(f"^{second.url}/sign-in"))
    assert second.ask("GET", "/api/sessions")["items"] == []
    page.context.add_cookies([{"name": cookie["name"], "value": cookie["value"], "url": first.url}])
    page.goto(f"{first.url}/system")
    expect(page.get_by_role("link", name=BUTTON)).to_be_visible()
    # The provider has forgotten the person too: it asks again.
    page.get_by_role("link", name=BUTTON).click()
    expect(page.get_by_label("Account")).to_be_visible()
    assert second.process is not None
    assert [each["name"] for each in second.process.logged("signed in")] == ["ann"]


def test_a_person_without_a_role_is_told_why(
    visits: Visits, planes: tuple[ScriptedControlPlane, ScriptedControlPlane]
) -> None:
    first, second = planes
    context, watch = visits.context(first, scheme="dark", size=PHONE)
    allow_provider(watch, r"status of 40[13]")
    page = context.new_page()
    page.goto("/sign-in?next=/system")
    assert accessibility_violations(page) == []
    page.get_by_role("link", name=BUTTON).click()
    answer(page, "bob")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("bob is signed in but has no role here: the claim groups must hold a group")
    assert accessibility_violations(page) == []
    assert context.cookies(second.url) == []
    assert second.process is not None
    refusal = second.process.logged("sign-in refused")[-1]
    assert (refusal["name"], refusal["groups"]) == ("bob", ["everyone"])

    another, watch = visits.context(first)
    allow_provider(watch, r"status of 40[13]")
    page = another.new_page()
    page.goto("/sign-in")
    page.get_by_role("link", name=BUTTON).click()
    answer(page, "nobody-the-provider-knows")
    expect(page.get_by_role("alert")).to_contain_text("canceled, or the identity provider denied it")
    # The token form works all the same.
    page.get_by_label("Token").fill(visits.token(first, "viewer"))
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.locator(".user")).to_contain_text("viewer")


def test_an_answer_without_its_question_is_refused(
    planes: tuple[ScriptedControlPlane, ScriptedControlPlane], identity_provider: IdentityProvider
) -> None:
    _, second = planes
    before = identity_provider.count("/token")
    with httpx.Client(base_url=second.url, timeout=60) as client:
        started = client.get("/sign-in/oidc")
        state = httpx.URL(started.headers["location"]).params["state"]
        forged = client.get("/sign-in/oidc/callback", params={"code": "x", "state": "another"})
        assert (forged.status_code, "not started in this browser" in forged.text) == (401, True)
        assert client.get("/sign-in/oidc/callback", params={"code": "x", "state": state}).status_code == 401
    with httpx.Client(base_url=second.url, timeout=60) as client:
        # Another browser: an attacker's link must not sign a person in under the attacker's account.
        other = client.get("/sign-in/oidc/callback", params={"code": "x", "state": state})
        assert other.status_code == 401
        assert "set-cookie" not in {name for name, value in other.headers.items() if "lcm_session" in value}
    wait_until(lambda: identity_provider.count("/token") == before, "nobody asks the provider for tokens")
