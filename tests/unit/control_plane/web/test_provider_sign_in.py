"""Pages of the sign-in with an identity provider, without a browser."""

from __future__ import annotations

import asyncio
import html
import json
import re
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from structlog.testing import capture_logs

from lcm.control_plane.auth.oidc.sign_in import code_challenge
from lcm.control_plane.auth.rate_limit import MAX_FAILED_CALLBACKS, MAX_FAILURES
from lcm.control_plane.auth.teams import TeamDirectory
from lcm.control_plane.records.kinds import AUDIT
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.model.access import Role
from tests.support.auth.issuer import ISSUER
from tests.support.auth.scripted_provider import ScriptedProvider
from tests.support.virtual.control_plane import serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.auth.oidc.sign_in import OidcSignIn
    from lcm.control_plane.secrets.encryption import SecretBox
    from tests.support.virtual.control_plane import TestPlane

START = "/sign-in/oidc"
CALLBACK = "/sign-in/oidc/callback"


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider()


@pytest.fixture
async def site(provider: ScriptedProvider) -> AsyncIterator[TestPlane]:
    async with serving_plane(make_sign_in=provider.sign_in) as plane:
        yield plane


@pytest.fixture
async def browser(site: TestPlane) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(site.app, raise_app_exceptions=False)
    headers = {"Accept": "text/html"}
    async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test", headers=headers) as client:
        yield client


async def sign_in(
    browser: httpx.AsyncClient, provider: ScriptedProvider, return_to: str = "/", **changes: str
) -> httpx.Response:
    started = await browser.get(START, params={"next": return_to})
    assert started.status_code == 303, started.text
    return await browser.get(CALLBACK, params=provider.answer(started.headers["location"], **changes))


def cookies(response: httpx.Response) -> dict[str, Any]:
    return {name: each for text in response.headers.get_list("set-cookie") for name, each in SimpleCookie(text).items()}


async def test_the_page_has_one_button_and_the_token_form(browser: httpx.AsyncClient) -> None:
    page = (await browser.get("/sign-in", params={"next": "/fleet?q=a&b"})).text
    assert page.count("Sign in with your organization") == 1
    assert 'href="/sign-in/oidc?next=%2Ffleet%3Fq%3Da%26b"' in page
    assert 'name="token"' in page


async def test_without_a_provider_there_is_no_button(plane: TestPlane) -> None:
    assert "organization" not in (await plane.ask("GET", "/sign-in", role=None)).text
    for path in (START, CALLBACK):
        response = await plane.ask("GET", path, role=None)
        assert (response.status_code, "OIDC_ISSUER" in response.text) == (404, True)


async def test_a_person_gets_a_session_and_the_requested_page(
    browser: httpx.AsyncClient, provider: ScriptedProvider, site: TestPlane
) -> None:
    response = await sign_in(browser, provider, "/fleet?view=problems&q=a%26b")
    assert response.status_code == 200, "a redirect would lose the strict cookie"
    assert '<meta http-equiv="refresh" content="0; url=/fleet?view=problems&amp;q=a%26b">' in response.text
    found = cookies(response)
    assert (found["lcm_session"]["samesite"], found["lcm_session"]["httponly"]) == ("Strict", True)
    assert found["lcm_sign_in"]["max-age"] == "0"
    assert "ann" in (await browser.get("/fleet")).text
    await site.services.authenticator.security_log.flush()
    (entry,) = [each for each in await audit(site) if each["action"] == "signed_in"]
    assert (entry["actor"]["name"], entry["actor"]["identity"]) == ("ann", f"oidc:{ISSUER}#u-1")


@pytest.mark.parametrize("elsewhere", ["//evil.example/", "https://evil.example/", "/\\evil.example", "x" * 3000])
async def test_nobody_is_sent_to_another_site(
    browser: httpx.AsyncClient, provider: ScriptedProvider, elsewhere: str
) -> None:
    assert "url=/&#34;" not in (page := (await sign_in(browser, provider, elsewhere)).text)
    assert 'content="0; url=/">' in page


async def test_what_the_provider_issued_is_stored_encrypted(
    browser: httpx.AsyncClient, provider: ScriptedProvider, site: TestPlane
) -> None:
    await sign_in(browser, provider)
    (info,) = (await site.services.authenticator.sessions.page()).items
    from lcm.control_plane.auth.session_record import SESSIONS

    stored = await site.services.context.store.get(SESSIONS, info.id)
    assert stored is not None
    body = json.loads(stored.body)
    assert body["grant"]["refresh_token"].startswith("lcm1.")
    assert b"refresh-" not in stored.body
    assert b"eyJ" not in stored.body


async def test_a_refusal_says_which_claim_and_the_audit_says_which_groups(
    browser: httpx.AsyncClient, provider: ScriptedProvider, site: TestPlane
) -> None:
    provider.claims["groups"] = ["students", "x" * 500]
    for _ in range(3):
        response = await sign_in(browser, provider)
        assert response.status_code == 403
        assert "the claim groups must hold a group that OIDC_ROLE_MAP gives a role" in response.text
        assert "lcm_session" not in cookies(response)
    await site.services.authenticator.security_log.flush()
    (entry,) = await audit(site)
    assert (entry["action"], entry["subject"]) == ("sign_in_refused", "ann")
    assert entry["details"]["groups"] == ["students", "x" * 64]
    assert entry["actor"]["identity"] == f"oidc:{ISSUER}#u-1"


async def test_guesses_at_the_callback_are_limited(browser: httpx.AsyncClient, provider: ScriptedProvider) -> None:
    statuses = [(await browser.get(CALLBACK, params={"code": "x", "state": "y"})).status_code for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert provider.requests == []


async def test_wrong_tokens_at_an_address_stop_nobody_who_signs_in_with_the_organization(
    browser: httpx.AsyncClient, provider: ScriptedProvider
) -> None:
    """All people of a school have one address, and anybody there can send wrong tokens."""
    wrong = [
        (await browser.post("/sign-in", data={"token": f"guess-{n}"})).status_code for n in range(MAX_FAILURES + 2)
    ]
    assert wrong[-2:] == [429] * 2
    assert (await browser.get(CALLBACK, params={"code": "x", "state": "y"})).status_code == 429, "nothing was started"
    assert (await sign_in(browser, provider)).status_code == 200


async def test_cancelled_sign_ins_stop_no_token_at_their_address_and_are_limited_apart(
    browser: httpx.AsyncClient, provider: ScriptedProvider, site: TestPlane
) -> None:
    started = await browser.get(START)
    started_by = {"Cookie": f"lcm_sign_in={cookies(started)['lcm_sign_in'].value}"}
    answer = provider.answer(started.headers["location"]) | {"error": "access_denied"}
    statuses = [
        (await browser.get(CALLBACK, params=answer, headers=started_by)).status_code
        for _ in range(MAX_FAILED_CALLBACKS + 1)
    ]
    assert statuses == [401] * MAX_FAILED_CALLBACKS + [429]
    assert (await browser.post("/sign-in", data={"token": site.tokens[Role.VIEWER]})).status_code == 303
    assert (await browser.post("/sign-in", data={"token": "a-guess"})).status_code == 401


async def test_a_silent_provider_is_named_and_the_token_form_works(
    browser: httpx.AsyncClient, provider: ScriptedProvider, site: TestPlane
) -> None:
    provider.down = True
    response = await browser.get(START, params={"next": "/system"})
    assert response.status_code == 503
    assert "The identity provider cannot be reached" in response.text
    signed_in = await browser.post("/sign-in", data={"token": site.tokens[Role.VIEWER], "next": "/system"})
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/system")


COMMAND_LINE = "/sign-in/command-line"
VERIFIER = "a-verifier-of-43-characters-at-the-very-least"
ASKED = {"port": "41234", "code_challenge": code_challenge(VERIFIER), "state": "a-state-of-the-command-line"}


async def test_a_command_line_gets_its_session_through_the_browser(
    site: TestPlane, browser: httpx.AsyncClient, provider: ScriptedProvider
) -> None:
    provider.device_refusal = {"error": "unauthorized_client"}
    started = await site.ask("POST", "/api/session/command-line", role=None)
    assert started.json() == {"device": None, "browser_url": "http://lcm.test/sign-in/command-line"}
    sent = await browser.get(COMMAND_LINE, params=ASKED)
    assert sent.status_code == 303, sent.text
    page = await browser.get(CALLBACK, params=provider.answer(sent.headers["location"]))
    assert "asks to be signed in as <strong>ann (operator)</strong>" in page.text
    assert "lcm_session" not in cookies(page), "the browser itself is not signed in"
    [link] = re.findall(r'href="(http://127\.0\.0\.1:41234/[^"]+)"', page.text)
    brought = dict(parse_qsl(urlsplit(html.unescape(link)).query))
    assert brought["state"] == ASKED["state"]

    async def redeem(verifier: str) -> httpx.Response:
        body = {"code": brought["code"], "code_verifier": verifier}
        return await site.ask("POST", "/api/session/command-line/redeem", role=None, json=body)

    assert (await redeem("x" * 43)).status_code == 401
    session = (await redeem(VERIFIER)).json()
    assert (session["name"], session["role"]) == ("ann", "operator")
    bearer = {"Authorization": f"Bearer {session['token']}"}
    assert (await site.ask("GET", "/api/whoami", role=None, headers=bearer)).json()["name"] == "ann"
    body = {"name": "alpha", "template_name": "small"}
    assert (await site.ask("POST", "/api/workers", role=None, headers=bearer, json=body)).status_code == 201


async def test_a_command_line_of_a_person_with_roles_in_teams_only(provider: ScriptedProvider) -> None:
    """The page on which they agree, the answer and the log say which roles these are."""
    store = MemoryStore()
    provider.claims["groups"] = ["teachers"]

    def make_sign_in(box: SecretBox) -> OidcSignIn:
        return provider.sign_in(box, teams=TeamDirectory(store))

    async with serving_plane(store=store, make_sign_in=make_sign_in) as site:
        member = {"role": "instructor", "group": "teachers"}
        team = await site.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": "blue", "members": [member]})
        grant = {"team": team.json()["id"], "role": "instructor", "email": None}
        provider.device_answer = "approved"
        device = (await site.ask("POST", "/api/session/command-line", role=None)).json()["device"]
        transport = httpx.ASGITransport(site.app, raise_app_exceptions=False)
        await asyncio.sleep(device["interval"])
        with capture_logs() as logged:
            body = {"handle": device["handle"]}
            polled = await site.ask("POST", "/api/session/command-line/poll", role=None, json=body)
            async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test") as browser:
                sent = await browser.get(COMMAND_LINE, params=ASKED)
                page = await browser.get(CALLBACK, params=provider.answer(sent.headers["location"]))
        assert (polled.json()["session"]["role"], polled.json()["session"]["grants"]) == (None, [grant])
        assert "asks to be signed in as <strong>ann (instructor)</strong>" in page.text
        assert [each["role"] for each in logged if each["event"] == "signed in"] == ["instructor"] * 2


@pytest.mark.parametrize(
    "changes",
    [
        {"port": "0"},
        {"port": "65536"},
        {"port": "80@example.org"},
        {"code_challenge": "short"},
        {"state": "x"},
        {"state": "a state with spaces"},
    ],
)
async def test_addresses_that_lcm_login_does_not_print(browser: httpx.AsyncClient, changes: dict[str, str]) -> None:
    refused = await browser.get(COMMAND_LINE, params={**ASKED, **changes})
    assert refused.status_code == 422
    assert "run lcm login again" in refused.text


async def test_signing_out_goes_on_at_the_provider(
    browser: httpx.AsyncClient, provider: ScriptedProvider, site: TestPlane
) -> None:
    await sign_in(browser, provider)
    response = await browser.post("/sign-out", headers={"HX-Request": "true"})
    assert response.headers["hx-redirect"].startswith(f"{ISSUER}/end?lang=en&client_id=")
    assert (await site.services.authenticator.sessions.page()).items == []
    await sign_in(browser, provider)
    response = await browser.post("/sign-out")
    assert (response.status_code, f"url={ISSUER}/end?lang=en&amp;client_id=" in response.text) == (200, True)
    assert cookies(response)["lcm_session"]["max-age"] == "0"
    assert (await browser.get("/fleet")).status_code == 303


async def audit(site: TestPlane) -> list[dict[str, Any]]:
    page = await site.services.context.store.read_journal(topics=(AUDIT,), limit=1000)
    entries = [json.loads(entry.body) for entry in page]
    return [each for each in entries if each["actor"]["name"] not in ("test", "start-up")]
