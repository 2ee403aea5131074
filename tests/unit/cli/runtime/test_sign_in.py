"""`lcm login` waits for a person who signs in at the identity provider, through everything that can go wrong."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest

from lcm.cli.errors import CommandError
from lcm.cli.runtime.client_factory import describe_error
from lcm.cli.runtime.sign_in import sign_in
from lcm.cli.runtime.target import Target
from lcm.client import Client, Limits
from lcm.client.errors import UnauthenticatedError
from lcm.core import clock
from lcm.model.access import Role
from tests.support.auth.scripted_provider import ScriptedProvider
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.virtual.control_plane import serving_plane
from tests.unit.client.fakes import URL, FaultyNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.virtual.control_plane import TestPlane

LIMITS = Limits(attempts=1, attempt=30.0)


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider()


@pytest.fixture
async def plane(provider: ScriptedProvider) -> AsyncIterator[TestPlane]:
    async with serving_plane(make_sign_in=provider.sign_in) as plane:
        yield plane


@pytest.fixture
async def client(plane: TestPlane) -> AsyncIterator[Client]:
    made = connect(plane)
    yield made
    await made.aclose()


def connect(plane: TestPlane, *faults: str | None, token: str | None = None) -> Client:
    network = FaultyNetwork(plane.app, *faults)
    return Client(URL, token, wire=HttpxTransport(network), limits=LIMITS, with_metrics=False)


async def approve_later(provider: ScriptedProvider, seconds: float, answer: str = "approved") -> None:
    await asyncio.sleep(seconds)
    provider.device_answer = answer


async def test_the_person_sees_code_and_address_and_gets_a_session(
    provider: ScriptedProvider, plane: TestPlane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    session, _ = await asyncio.gather(sign_in(client), approve_later(provider, 42))
    assert session is not None
    assert (session.name, session.role) == ("ann", Role.OPERATOR)
    shown = capsys.readouterr().err
    assert "/enter\nand enter the code WDJB-MJHT\n" in shown
    assert "Waiting up to 10 minutes. Press Ctrl-C to cancel." in shown
    token = session.token.get_secret_value()
    assert token not in shown

    signed_in = connect(plane, token=token)
    me = await signed_in.access.whoami()
    assert (me.name, me.kind.value, me.expires_at) == ("ann", "session", session.expires_at)
    [listed] = (await plane.ask("GET", "/api/sessions", role=Role.ADMIN)).json()["items"]
    assert (listed["kind"], listed["name"]) == ("command_line", "ann")
    await signed_in.access.sign_out()
    with pytest.raises(UnauthenticatedError):
        await signed_in.access.whoami()
    assert plane.services.authenticator.sign_in is not None
    await plane.services.authenticator.sign_in.close()
    assert len(provider.revoked) == 1, "its refresh token is given back"
    await signed_in.aclose()


async def test_it_polls_no_faster_than_the_provider_wants(provider: ScriptedProvider, client: Client) -> None:
    provider.device_interval = 12.0  # more than it says, so it has to say slow_down
    session, _ = await asyncio.gather(sign_in(client), approve_later(provider, 100))
    assert session is not None
    assert provider.count("/token") <= 8


async def test_a_code_that_nobody_enters_expires(provider: ScriptedProvider, client: Client) -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(CommandError, match="the code expired"):
        await sign_in(client)
    assert asyncio.get_running_loop().time() - began <= 601


async def test_a_person_who_declines_ends_it(provider: ScriptedProvider, client: Client) -> None:
    with pytest.raises(CommandError, match="cancelled, or the identity provider denied it"):
        await asyncio.gather(sign_in(client), approve_later(provider, 20, "access_denied"))


async def test_a_person_without_a_role_is_told_which_claim(provider: ScriptedProvider, client: Client) -> None:
    provider.claims["groups"] = ["students"]
    provider.device_answer = "approved"
    with pytest.raises(CommandError, match="ann is signed in but has no role here: the claim groups must hold"):
        await sign_in(client)


async def test_it_waits_through_silence_and_says_so_once(
    provider: ScriptedProvider, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    async def outage() -> None:
        await asyncio.sleep(20)
        provider.down = True
        await asyncio.sleep(90)
        provider.down, provider.device_answer = False, "approved"

    session, _ = await asyncio.gather(sign_in(client), outage())
    assert session is not None
    assert capsys.readouterr().err.count("Still waiting.") == 1


async def test_a_silent_provider_at_the_start_is_named(provider: ScriptedProvider, client: Client) -> None:
    provider.seconds = 3600
    with pytest.raises(CommandError, match="The identity provider did not respond within"):
        await sign_in(client)


async def test_an_answer_that_is_lost_on_the_way_is_asked_for_again(
    provider: ScriptedProvider, plane: TestPlane
) -> None:
    provider.device_answer = "approved"
    client = connect(plane, None, "lost", "late")
    session = await sign_in(client)
    assert session is not None
    assert provider.count("/token") == 1
    await client.aclose()


async def test_without_an_identity_provider_there_is_nothing_to_wait_for() -> None:
    async with serving_plane() as plane:
        client = connect(plane)
        assert await sign_in(client) is None
        await client.aclose()


async def test_an_older_control_plane_has_no_such_route(plane: TestPlane) -> None:
    transport = httpx.MockTransport(
        lambda _: httpx.Response(404, json={"title": "Not found", "status": 404, "code": "not_found", "detail": "no"})
    )
    client = Client(URL, None, wire=HttpxTransport(transport), limits=LIMITS, with_metrics=False)
    assert await sign_in(client) is None
    await client.aclose()


async def test_an_ended_session_is_explained() -> None:
    refused = UnauthenticatedError(401, "unauthenticated", "You are signed out.")
    token = "lcm-session-" + "0" * 64
    over = describe_error(refused, Target(URL, token, "context x", clock.now()))
    assert over is not None
    assert over.startswith("your session ended at 2026-01-17 ")
    assert over.endswith(f": run `lcm login {URL}`")
    early = describe_error(refused, Target(URL, token, "context x", clock.after(60)))
    assert early is not None
    assert "ended early" in early
    assert early.endswith(f"Run `lcm login {URL}`")
