"""A session without a refresh token: when its access token has expired, the person's browser asks the provider."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from lcm.model.access import Role
from tests.support.auth.scripted_provider import ScriptedProvider
from tests.support.virtual.control_plane import serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.virtual.control_plane import TestPlane

PAGE = "/fleet?view=problems&q=a%26b"
CALLBACK = "/sign-in/oidc/callback"
ACCESS_TOKEN_SECONDS = 600


@pytest.fixture
def provider() -> ScriptedProvider:
    made = ScriptedProvider()
    made.with_refresh_token = False
    return made


@pytest.fixture
async def site(provider: ScriptedProvider) -> AsyncIterator[TestPlane]:
    async with serving_plane(make_sign_in=provider.sign_in) as plane:
        yield plane


@pytest.fixture
async def browser(site: TestPlane, provider: ScriptedProvider) -> AsyncIterator[httpx.AsyncClient]:
    """A browser whose session has just lapsed."""
    transport = httpx.ASGITransport(site.app, raise_app_exceptions=False)
    headers = {"Accept": "text/html"}
    async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test", headers=headers) as client:
        started = await client.get("/sign-in/oidc")
        await client.get(CALLBACK, params=provider.answer(started.headers["location"]))
        assert (await client.get(PAGE)).status_code == 200
        assert (await client.get("/sign-in/silent/possible")).json() == {"possible": False}
        await asyncio.sleep(ACCESS_TOKEN_SECONDS)
        yield client


async def sessions(site: TestPlane) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await site.ask("GET", "/api/sessions", role=Role.ADMIN)).json()["items"]
    return found


async def sent_to_provider(browser: httpx.AsyncClient) -> str:
    """Where the browser is sent when it asks for the page."""
    away = await browser.get(PAGE)
    assert (away.status_code, urlsplit(away.headers["location"]).path) == (303, "/sign-in/silent")
    sent = await browser.get(away.headers["location"])
    assert sent.status_code == 303, sent.text
    location: str = sent.headers["location"]
    assert parse_qs(urlsplit(location).query)["prompt"] == ["none"]
    return location


async def test_a_person_whom_the_provider_knows_comes_back_without_a_question(
    browser: httpx.AsyncClient, provider: ScriptedProvider, site: TestPlane
) -> None:
    [before] = await sessions(site)
    location = await sent_to_provider(browser)
    assert await sessions(site) == [], "nobody can use it, so it is not open"
    back = await browser.get(CALLBACK, params=provider.answer(location))
    assert f'url={PAGE.replace("&", "&amp;")}">' in back.text
    assert (await browser.get(PAGE)).status_code == 200
    [now] = await sessions(site)
    assert (now["id"] != before["id"], now["ends_at"]) == (True, before["ends_at"]), "12 hours at most, in all"


async def test_a_person_whom_the_provider_has_forgotten_keeps_the_page_and_is_told_why(
    browser: httpx.AsyncClient, provider: ScriptedProvider, site: TestPlane
) -> None:
    answer = provider.answer(await sent_to_provider(browser))
    refused = await browser.get(CALLBACK, params={"state": answer["state"], "error": "login_required"})
    assert refused.status_code == 401
    assert "you are no longer signed in at the identity provider. Sign in to continue where you were." in refused.text
    assert 'href="/sign-in/oidc?next=%2Ffleet%3Fview%3Dproblems%26q%3Da%2526b"' in refused.text
    again = await browser.get(PAGE)
    assert urlsplit(again.headers["location"]).path == "/sign-in", "the provider is not asked for nothing again"


async def test_a_person_who_lost_their_groups_is_refused_once_and_then_asked_to_sign_in(
    browser: httpx.AsyncClient, provider: ScriptedProvider, site: TestPlane
) -> None:
    location = await sent_to_provider(browser)
    provider.claims["groups"] = ["students"]
    refused = await browser.get(CALLBACK, params=provider.answer(location))
    assert (refused.status_code, "has no role here" in refused.text) == (403, True)
    again = await browser.get(PAGE)
    assert urlsplit(again.headers["location"]).path == "/sign-in", "the session is over, so nothing can go on"


async def test_another_person_at_the_provider_does_not_take_the_page_over(
    browser: httpx.AsyncClient, provider: ScriptedProvider, site: TestPlane
) -> None:
    location = await sent_to_provider(browser)
    provider.claims |= {"sub": "u-2", "preferred_username": "bob"}
    provider.with_refresh_token = True
    refused = await browser.get(CALLBACK, params=provider.answer(location))
    assert (refused.status_code, "bob is signed in at the identity provider now" in refused.text) == (401, True)
    await asyncio.sleep(1)
    assert len(provider.revoked) == 1, "what was issued for bob"
    assert await sessions(site) == []


async def test_a_lost_group_ends_it_here_too(browser: httpx.AsyncClient, provider: ScriptedProvider) -> None:
    location = await sent_to_provider(browser)
    provider.claims["groups"] = ["students"]
    refused = await browser.get(CALLBACK, params=provider.answer(location))
    assert (refused.status_code, "ann is signed in but has no role here" in refused.text) == (403, True)


async def test_a_part_of_a_page_asks_the_script_and_changes_nothing(browser: httpx.AsyncClient) -> None:
    part = await browser.get("/fleet", headers={"HX-Request": "true"})
    assert (part.status_code, part.headers["HX-Trigger"]) == (401, "lcm:signed-out")
    assert (await browser.get("/sign-in/silent/possible")).json() == {"possible": True}
    assert (await browser.get("/api/whoami")).status_code == 401


async def test_after_an_hour_without_use_it_has_ended(browser: httpx.AsyncClient) -> None:
    await browser.get(PAGE)
    await asyncio.sleep(3600)
    assert urlsplit((await browser.get(PAGE)).headers["location"]).path == "/sign-in"
    gone = await browser.get("/sign-in/silent", params={"next": PAGE})
    assert urlsplit(gone.headers["location"]).path == "/sign-in"
