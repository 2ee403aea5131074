"""Signing browsers and command lines in with a real identity provider, at two control planes that share a store."""

from __future__ import annotations

import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.auth.identity_provider import CLIENT_ID, CLIENT_SECRET
from tests.support.network.balancer import Balancer
from tests.support.run import watchdog
from tests.support.servers.mongod import database_name
from tests.support.servers.processes import wait_until
from tests.support.servers.pseudo_terminal import PseudoTerminal
from tests.support.servers.scripted_control_plane import ScriptedControlPlane
from tests.support.web.actions import wait_until_live
from tests.support.web.organization import allow_provider, answer, make_old
from tests.support.web.pages import PHONE, accessibility_violations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.support.auth.identity_provider import IdentityProvider
    from tests.support.web.pages import Visits

KEY = "bGNtLXRlc3Qta2V5LWxjbS10ZXN0LWtleS1sY20tdGU="
BUTTON = "Sign in with your organization"


@pytest.fixture(scope="module")
def store_url(mongodb_uri: str) -> str:
    return mongodb_uri.replace("/?", f"/{database_name()}?")


@pytest.fixture(scope="module")
def planes(
    tmp_path_factory: pytest.TempPathFactory, identity_provider: IdentityProvider, store_url: str
) -> Iterator[tuple[ScriptedControlPlane, ScriptedControlPlane]]:
    """Two replicas: people who start at the first come back from the provider to the second."""
    shared = {
        "STORE_URL": store_url,
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
    first.start()
    second.start()
    yield first, second
    first.close()
    second.close()


def sessions_of_ann(plane: ScriptedControlPlane) -> list[dict[str, Any]]:
    return [each for each in plane.ask("GET", "/api/sessions")["items"] if each["name"] == "ann"]


@pytest.fixture(autouse=True)
def _people(planes: tuple[ScriptedControlPlane, ScriptedControlPlane], identity_provider: IdentityProvider) -> None:
    """Nobody is signed in, whichever test ran before."""
    for session in sessions_of_ann(planes[1]):
        planes[1].ask("DELETE", f"/api/sessions/{session['id']}")
    identity_provider.serve(planes[1].url, ann=["lab staff", "everyone"], bob=["everyone"])


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
    (listed,) = sessions_of_ann(first)
    assert listed["role"] == "operator"
    assert listed["identity"] == f"oidc:{identity_provider.issuer}#ann"
    assert "grant" not in listed

    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile(r"^http://localhost:\d+/session/end"))
    page.get_by_role("button", name="Yes, sign me out").click()
    expect(page).to_have_url(re.compile(f"^{second.url}/sign-in"))
    assert sessions_of_ann(second) == []
    page.context.add_cookies([{"name": cookie["name"], "value": cookie["value"], "url": first.url}])
    page.goto(f"{first.url}/system")
    expect(page.get_by_role("link", name=BUTTON)).to_be_visible()
    # The provider has forgotten the person too: it asks again.
    page.get_by_role("link", name=BUTTON).click()
    expect(page.get_by_label("Account")).to_be_visible()
    assert second.process is not None
    assert "ann" in [each["name"] for each in second.process.logged("signed in")]


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
    expect(page.get_by_role("alert")).to_contain_text("cancelled, or the identity provider denied it")
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


def test_a_person_who_loses_the_group_is_out(
    visits: Visits,
    planes: tuple[ScriptedControlPlane, ScriptedControlPlane],
    identity_provider: IdentityProvider,
    store_url: str,
) -> None:
    first, second = planes
    earlier = ended_sessions(planes)
    context, watch = visits.context(first)
    allow_provider(watch, r"status of 40[13]")
    page = context.new_page()
    page.goto("/system")
    page.get_by_role("link", name=BUTTON).click()
    answer(page, "ann")
    expect(page.locator(".user")).to_contain_text("ann (operator)")
    wait_until_live(page)
    (cookie,) = [each for each in context.cookies(first.url) if each["name"] == "lcm_session"]

    def statuses() -> list[int]:
        """Many requests at both control planes at once."""
        headers = {"Cookie": f"lcm_session={cookie['value']}"}
        with ThreadPoolExecutor(8) as pool:
            urls = [f"{plane.url}/api/whoami" for plane in planes] * 4
            return list(pool.map(lambda url: httpx.get(url, headers=headers, timeout=60).status_code, urls))

    # Refresh tokens work once: control planes that both used one would lose the session.
    for _ in range(2):
        before = identity_provider.count("/token")
        make_old(store_url, 5)
        wait_until(lambda: identity_provider.count("/token") > before or statuses() != [200] * 8, "a renewal")  # noqa: B023
        assert statuses() == [200] * 8
        assert identity_provider.count("/token") == before + 1

    # Keys of the provider change, and nobody notices.
    identity_provider.change(key=2)
    before = identity_provider.count("/jwks")
    make_old(store_url, 5)
    wait_until(lambda: statuses() == [200] * 8 and identity_provider.count("/jwks") > before, "the new keys are read")

    # The provider is silent: those who are signed in go on.
    identity_provider.change(silent=True)
    make_old(store_url, 5)
    wait_until(lambda: bool(silences(planes)), "the silence is noticed")
    assert statuses() == [200] * 8
    identity_provider.change(silent=False)

    identity_provider.change(people={"ann": {"groups": ["everyone"]}})
    make_old(store_url, 5)
    # The open page learns it from its event stream: it asks for a new sign-in.
    expect(page.get_by_role("link", name=BUTTON).or_(page.locator("#session[open]"))).to_be_visible()
    wait_until(lambda: set(statuses()) == {401}, "both control planes refuse it")
    assert sessions_of_ann(second) == []
    (ended,) = [each for each in ended_sessions(planes) if each not in earlier]
    assert ended["reason"] == "no role any more: the claim groups holds everyone"
    page.goto("/system")
    page.get_by_role("link", name=BUTTON).click()
    expect(page.get_by_role("alert")).to_contain_text("ann is signed in but has no role here")


def ended_sessions(planes: tuple[ScriptedControlPlane, ...]) -> list[Any]:
    return [each for plane in planes if plane.process for each in plane.process.logged("session ended")]


def silences(planes: tuple[ScriptedControlPlane, ...]) -> list[object]:
    event = "identity provider did not confirm a session"
    return [each for plane in planes if plane.process for each in plane.process.logged(event)]


@pytest.mark.parametrize(("seconds", "why"), [(20, ""), (300, "This token is not valid yet. Check the clocks")])
def test_new_keys_and_other_clocks_of_the_provider(
    visits: Visits,
    planes: tuple[ScriptedControlPlane, ScriptedControlPlane],
    identity_provider: IdentityProvider,
    seconds: int,
    why: str,
) -> None:
    first, second = planes
    context, watch = visits.context(first)
    allow_provider(watch, r"status of 401")
    # The keys are new for every case: control planes have read the others already.
    identity_provider.change(key=100 + seconds, clock=seconds)
    page = context.new_page()
    page.goto("/sign-in?next=/system")
    page.get_by_role("link", name=BUTTON).click()
    answer(page, "ann")
    if why:
        expect(page.get_by_role("alert")).to_contain_text(why)
    else:
        expect(page).to_have_url(f"{second.url}/system")
        expect(page.locator(".user")).to_contain_text("ann (operator)")


def test_a_session_without_a_refresh_token_goes_on_where_the_provider_knows_the_person(
    visits: Visits,
    planes: tuple[ScriptedControlPlane, ScriptedControlPlane],
    identity_provider: IdentityProvider,
    store_url: str,
) -> None:
    _, second = planes
    identity_provider.change(refresh=False)
    context, watch = visits.context(second)
    allow_provider(watch, r"status of 401")
    page = context.new_page()
    page.goto("/fleet?view=stopped")
    page.get_by_role("link", name=BUTTON).click()
    answer(page, "ann")
    expect(page.locator(".user")).to_contain_text("ann (operator)")
    wait_until_live(page)

    def session_cookie() -> str:
        (cookie,) = [each for each in context.cookies(second.url) if each["name"] == "lcm_session"]
        return str(cookie["value"])

    # Nothing was typed: the open page goes to the provider and comes back by itself.
    before = session_cookie()
    make_old(store_url, 5, access_expired=True)
    wait_until(lambda: session_cookie() != before, "the session goes on")
    expect(page).to_have_url(f"{second.url}/fleet?view=stopped")
    wait_until_live(page)

    # Something was typed: it stays, and a tab beside it needs no answer of the person.
    page.get_by_role("button", name="Create a worker", exact=True).first.click()
    form = page.locator("#new-worker")
    form.get_by_label("Name", exact=True).fill("typed-before")
    make_old(store_url, 5, access_expired=True)
    ended = page.locator("#session")
    expect(ended).to_be_visible()
    expect(ended.locator("#session-lapsed")).to_be_visible()
    assert accessibility_violations(page) == []
    with context.expect_page() as opened:
        ended.get_by_role("link", name="another tab").click()
    expect(opened.value.locator(".user")).to_contain_text("ann (operator)")
    page.bring_to_front()
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(ended).to_be_hidden()
    expect(form.get_by_label("Name", exact=True)).to_have_value("typed-before")
    opened.value.close()

    # The provider does not know the person any more: they are told why, and return to the page.
    page.reload()
    wait_until_live(page)
    context.clear_cookies(domain="localhost")
    make_old(store_url, 5, access_expired=True)
    expect(page.get_by_role("alert")).to_contain_text("you are no longer signed in at the identity provider")
    page.get_by_role("link", name=BUTTON).click()
    answer(page, "ann")
    expect(page).to_have_url(f"{second.url}/fleet?view=stopped")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., PseudoTerminal]]:
    """`lcm` in a pseudo-terminal, for a person with a home of their own."""
    made: list[PseudoTerminal] = []

    def start(*arguments: str) -> PseudoTerminal:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", watchdog.VARIABLE) if name in os.environ}
        env = {**kept, "HOME": str(tmp_path), "PYTHONUTF8": "1", "TZ": "UTC"}
        made.append(PseudoTerminal(*arguments, env=env, columns=200))
        return made[-1]

    yield start
    for each in made:
        each.close()


def shown_address(terminal: PseudoTerminal, pattern: str) -> str:
    """The address that a command has printed."""
    found = re.search(pattern, terminal.text)
    assert found is not None, terminal.text
    return found[1]


def enter_code(page: Page, login: PseudoTerminal, account: str | None) -> None:
    """Enter the code of `lcm login` at the provider, as this person; None if it still knows them."""
    login.expect("Press Ctrl-C to cancel.")
    page.goto(shown_address(login, r"or open (http://localhost:\S+)"))
    page.get_by_role("button", name="Continue").click()
    if account is not None:
        answer(page, account)


def said(*commands: PseudoTerminal) -> list[tuple[int, str]]:
    return [(each.end(), each.text) for each in commands]


def test_a_command_line_signs_in_with_a_code_through_any_control_plane(
    visits: Visits,
    planes: tuple[ScriptedControlPlane, ScriptedControlPlane],
    identity_provider: IdentityProvider,
    store_url: str,
    terminal: Callable[..., PseudoTerminal],
    tmp_path: Path,
) -> None:
    first, second = planes
    context, watch = visits.context(first)
    allow_provider(watch)
    page = context.new_page()
    with Balancer(first.plane_port, second.plane_port) as balancer:
        login = terminal("login", balancer.url, "--name", "school")
        enter_code(page, login, "ann")
        login.expect(f"Signed in to {balancer.url} as ann (operator) until ")
        login.expect("Saved as context school.")
        assert login.end() == 0
        assert set(balancer.connections) == {first.plane_port, second.plane_port}, "both have answered"
        saved = tmp_path / ".config" / "lcm" / "contexts.json"
        assert saved.stat().st_mode & 0o777 == 0o600
        token = json.loads(saved.read_text())["contexts"]["school"]["token"]
        assert token not in login.raw
        (listed,) = sessions_of_ann(second)
        assert (listed["kind"], listed["identity"]) == ("command_line", f"oidc:{identity_provider.issuer}#ann")
        [(code, text)] = said(terminal("whoami"))
        assert (code, "ann" in text, "context school" in text) == (0, True, True)

        # A second sign-in replaces the first, and ends it.
        again = terminal("login", balancer.url, "--name", "school")
        enter_code(page, again, None)
        again.expect("Saved as context school.")
        assert again.end() == 0
        (other,) = sessions_of_ann(first)
        assert other["id"] != listed["id"]

        # Admins see it beside the sessions of browsers.
        admin, _ = visits.open(first, "/system")
        expect(admin.locator("#sessions tr", has_text="ann")).to_contain_text("command line")

        identity_provider.change(people={"ann": {"groups": ["everyone"]}})
        make_old(store_url, 5)
        (code, text), deadline = (0, ""), time.monotonic() + 60
        while code == 0 and time.monotonic() < deadline:  # a control plane may know a session for 5 s unread
            [(code, text)] = said(terminal("whoami"))
        assert code == 1
        assert "your session has ended early: you or an admin ended it, or the identity provider no" in text
        assert f"Run `lcm login {balancer.url}`" in text
        assert sessions_of_ann(second) == []


def test_a_person_cancels_a_sign_in_of_the_command_line(
    visits: Visits,
    planes: tuple[ScriptedControlPlane, ScriptedControlPlane],
    terminal: Callable[..., PseudoTerminal],
    tmp_path: Path,
) -> None:
    first, second = planes
    context, watch = visits.context(first)
    allow_provider(watch, r"status of 40[03]")
    page = context.new_page()
    denied = terminal("login", first.url)
    enter_code(page, denied, "nobody-the-provider-knows")
    denied.expect("The sign-in was cancelled, or the identity provider denied it")
    assert denied.end() == 1

    interrupted = terminal("login", first.url)
    interrupted.expect("Press Ctrl-C to cancel.")
    interrupted.interrupt()
    assert interrupted.end() == 130
    assert not (tmp_path / ".config").exists()
    assert sessions_of_ann(second) == []


def test_a_command_line_signs_in_with_a_browser_where_the_provider_gives_no_codes(
    visits: Visits,
    planes: tuple[ScriptedControlPlane, ScriptedControlPlane],
    identity_provider: IdentityProvider,
    terminal: Callable[..., PseudoTerminal],
) -> None:
    first, second = planes
    identity_provider.serve(second.url, codes=False, ann=["lab staff"])
    context, watch = visits.context(first)
    allow_provider(watch, r"status of 404")
    page = context.new_page()
    login = terminal("login", first.url)
    login.expect("Press Ctrl-C to cancel.")
    address = shown_address(login, r"on this computer:\s+(http://127\S+)")
    port = httpx.URL(address).params["port"]
    assert httpx.get(f"http://127.0.0.1:{port}/?code=x&state=guessed", timeout=60).status_code == 404
    page.goto(address)
    answer(page, "ann")
    expect(page.get_by_role("heading", name="Sign in the command line")).to_be_visible()
    expect(page.locator("main")).to_contain_text("ann (operator)")
    assert accessibility_violations(page) == []
    page.get_by_role("link", name="Continue").click()
    expect(page.locator("body")).to_contain_text("go back to the command line")
    login.expect(f"Signed in to {first.url} as ann (operator) until ")
    assert login.end() == 0
    (listed,) = sessions_of_ann(first)
    assert listed["kind"] == "command_line"

    logout = terminal("logout")
    logout.expect(f"Signed out of {first.url}.")
    assert logout.end() == 0
    assert sessions_of_ann(second) == []
    [(code, text), (repeated, reason)] = said(terminal("whoami"), terminal("logout"))
    assert (code, f"Sign in: lcm login {first.url}" in text) == (1, True)
    assert (repeated, f"you are not signed in to {first.url}" in reason) == (1, True)
