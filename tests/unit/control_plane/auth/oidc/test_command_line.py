"""Sign-in of a command line: with a code at any control plane, or with a browser and a loopback port."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.auth.oidc.command_line import MAX_STARTS, CommandLineSignIns, StartedDeviceSignIn
from lcm.control_plane.auth.oidc.device_code import parse_device_code
from lcm.control_plane.auth.oidc.fetch import ProviderResponseError
from lcm.control_plane.auth.oidc.renewal import SessionRenewal
from lcm.control_plane.auth.oidc.sign_in import code_challenge
from lcm.control_plane.auth.oidc.verifier import NoRoleError
from lcm.control_plane.auth.roles import (
    IdentityProviderUnavailableError,
    TooManyAttemptsError,
    UnauthenticatedError,
)
from lcm.control_plane.auth.session_record import FIRST_USE_LIMIT, OIDC_MAX_AGE
from lcm.control_plane.auth.sessions import SessionService
from lcm.core import clock
from lcm.model.access import Role, SessionKind
from tests.support.auth.scripted_provider import ScriptedProvider, make_box

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.auth.oidc.sign_in import OidcSignIn
    from lcm.control_plane.auth.tokens import TokenService
    from lcm.control_plane.secrets.encryption import SecretBox
    from tests.support.records.gated_store import GatedStore

ADDRESS = "192.0.2.1"
COMMAND_LINE = SessionKind.COMMAND_LINE
VERIFIER = "a-verifier-of-43-characters-at-the-very-least"


@dataclass
class Replica:
    """One control plane."""

    sign_in: OidcSignIn
    sessions: SessionService
    command_line: CommandLineSignIns


def make_replica(provider: ScriptedProvider, store: GatedStore, tokens: TokenService, box: SecretBox) -> Replica:
    sign_in = provider.sign_in(box)
    sessions = SessionService(store, tokens, box, SessionRenewal(store, box, sign_in))
    return Replica(sign_in, sessions, CommandLineSignIns(sign_in, sessions, box))


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider()


@pytest.fixture
async def replicas(provider: ScriptedProvider, store: GatedStore, tokens: TokenService) -> AsyncIterator[list[Replica]]:
    box = make_box()
    made = [make_replica(provider, store, tokens, box) for _ in range(2)]
    yield made
    for each in made:
        await each.sessions.close()
        await each.sign_in.close()


async def started(replica: Replica) -> StartedDeviceSignIn:
    begun = await replica.command_line.start(ADDRESS)
    assert begun is not None
    await asyncio.sleep(begun.code.interval)
    return begun


class TestWithACode:
    """RFC 8628."""

    async def test_a_person_enters_the_code_and_any_control_plane_answers(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        begun = await started(replicas[0])
        assert (begun.code.user_code, begun.code.interval, begun.code.lifetime) == ("WDJB-MJHT", 5.0, 600.0)
        assert "device-" not in begun.handle.reveal()
        assert "device-" not in repr(begun)
        for number in range(4):
            assert (await replicas[number % 2].command_line.poll(begun.handle.reveal(), ADDRESS)).session is None
            await asyncio.sleep(begun.code.interval)
        provider.device_answer = "approved"
        session = (await replicas[1].command_line.poll(begun.handle.reveal(), ADDRESS)).session
        assert session is not None
        assert (session.caller.name, session.caller.role) == ("ann", Role.OPERATOR)
        assert session.caller.expires_at == clock.now() + OIDC_MAX_AGE
        resumed = await replicas[0].sessions.resume(session.id.reveal(), COMMAND_LINE)
        assert resumed.caller.subject == session.caller.subject
        [listed] = (await replicas[0].sessions.page()).items
        assert (listed.kind, listed.name, listed.address) == (COMMAND_LINE, "ann", ADDRESS)

    async def test_an_answer_that_was_lost_is_given_again_by_any_control_plane(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        begun = await started(replicas[0])
        provider.device_answer = "approved"
        first = await replicas[0].command_line.poll(begun.handle.reveal(), ADDRESS)
        again = await replicas[1].command_line.poll(begun.handle.reveal(), ADDRESS)
        assert first.session is not None
        assert again.session is not None
        assert again.session.id == first.session.id
        assert (first.is_new, again.is_new) == (True, False)
        assert provider.count("/token") == 1

    async def test_two_control_planes_that_are_asked_at_once_open_one_session(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        begun = await started(replicas[0])
        provider.device_answer = "approved"
        provider.device_interval = 0.0
        polls = [each.command_line.poll(begun.handle.reveal(), ADDRESS) for each in replicas]
        found = await asyncio.gather(*polls, return_exceptions=True)
        sessions = [each.session for each in found if not isinstance(each, BaseException)]
        assert len(sessions) >= 1
        later = await replicas[1].command_line.poll(begun.handle.reveal(), ADDRESS)
        assert later.session is not None
        assert {each.id.reveal() for each in sessions if each is not None} == {later.session.id.reveal()}
        assert len((await replicas[0].sessions.page()).items) == 1

    async def test_whoever_polls_too_fast_is_slowed_down_and_does_not_reach_the_provider(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        begun = await replicas[0].command_line.start(ADDRESS)
        assert begun is not None
        assert (await replicas[0].command_line.poll(begun.handle.reveal(), ADDRESS)).slow_down, "the provider says so"
        for _ in range(100):
            assert (await replicas[0].command_line.poll(begun.handle.reveal(), ADDRESS)).slow_down
        assert provider.count("/token") == 1

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            ("access_denied", "cancelled, or the identity provider denied it"),
            ("authorization_declined", "cancelled, or the identity provider denied it"),  # Entra ID
            ("expired_token", "expired or was already used. Run lcm login again"),
            ("bad_verification_code", "expired or was already used. Run lcm login again"),  # Entra ID
            ("invalid_grant", "expired or was already used. Run lcm login again"),
            ("unauthorized_client", "does not accept LCM itself"),
        ],
    )
    async def test_refusals_are_explained(
        self, provider: ScriptedProvider, replicas: list[Replica], answer: str, why: str
    ) -> None:
        begun = await started(replicas[0])
        provider.device_answer = answer
        with pytest.raises(UnauthenticatedError, match=why):
            await replicas[0].command_line.poll(begun.handle.reveal(), ADDRESS)

    async def test_a_code_is_forgotten_when_it_expires(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        begun = await started(replicas[0])
        await asyncio.sleep(600)
        before = provider.count("/token")
        with pytest.raises(UnauthenticatedError, match="expired"):
            await replicas[0].command_line.poll(begun.handle.reveal(), ADDRESS)
        assert provider.count("/token") == before, "nobody asks the provider about it"

    async def test_a_person_without_a_role_is_told_why_and_the_refresh_token_is_given_back(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        begun = await started(replicas[0])
        provider.claims["groups"] = ["students"]
        provider.device_answer = "approved"
        with pytest.raises(NoRoleError, match="the claim groups must hold"):
            await replicas[0].command_line.poll(begun.handle.reveal(), ADDRESS)
        await replicas[0].sign_in.close()
        assert len(provider.revoked) == 1
        assert (await replicas[0].sessions.page()).items == []

    async def test_a_silent_provider_is_named_and_the_next_poll_goes_on(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        begun = await started(replicas[0])
        provider.down = True
        with pytest.raises(IdentityProviderUnavailableError, match="cannot be reached"):
            await replicas[0].command_line.poll(begun.handle.reveal(), ADDRESS)
        provider.down = False
        provider.device_answer = "approved"
        await asyncio.sleep(5)
        assert (await replicas[0].command_line.poll(begun.handle.reveal(), ADDRESS)).session is not None

    async def test_a_silent_provider_starts_nothing(self, provider: ScriptedProvider, replicas: list[Replica]) -> None:
        provider.seconds = 3600
        began = asyncio.get_running_loop().time()
        with pytest.raises(IdentityProviderUnavailableError, match="did not respond"):
            await replicas[0].command_line.start(ADDRESS)
        assert asyncio.get_running_loop().time() - began <= 15

    @pytest.mark.parametrize("handle", ["", "x", "v1.a.b", "x" * 9000, "\ud800"])
    async def test_handles_that_are_not_ours(self, replicas: list[Replica], handle: str) -> None:
        with pytest.raises(UnauthenticatedError, match="Run lcm login again"):
            await replicas[0].command_line.poll(handle, ADDRESS)

    async def test_one_address_starts_a_bounded_number(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        for _ in range(MAX_STARTS):
            await replicas[0].command_line.start(ADDRESS)
        with pytest.raises(TooManyAttemptsError, match="Too many sign-ins were started from this address"):
            await replicas[0].command_line.start(ADDRESS)
        assert provider.count("/device") == MAX_STARTS
        assert await replicas[0].command_line.start("192.0.2.2") is not None, "others are not affected"


class TestTheSession:
    """What a command line gets."""

    async def opened(self, provider: ScriptedProvider, replica: Replica) -> str:
        begun = await started(replica)
        provider.device_answer = "approved"
        session = (await replica.command_line.poll(begun.handle.reveal(), ADDRESS)).session
        assert session is not None
        return session.id.reveal()

    async def test_it_may_rest_for_hours_and_ends_after_twelve(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        session_id = await self.opened(provider, replicas[0])
        await replicas[0].sessions.resume(session_id, COMMAND_LINE)
        await asyncio.sleep(11 * 3600)
        await replicas[0].sessions.resume(session_id, COMMAND_LINE)
        await asyncio.sleep(3600)
        with pytest.raises(UnauthenticatedError):
            await replicas[0].sessions.resume(session_id, COMMAND_LINE)

    async def test_one_that_nobody_received_ends_soon(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        session_id = await self.opened(provider, replicas[0])
        await asyncio.sleep(FIRST_USE_LIMIT.total_seconds() + 1)
        with pytest.raises(UnauthenticatedError):
            await replicas[0].sessions.resume(session_id, COMMAND_LINE)
        assert (await replicas[0].sessions.page()).items == []

    async def test_it_is_no_cookie_and_a_cookie_is_no_session_token(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        session_id = await self.opened(provider, replicas[0])
        with pytest.raises(UnauthenticatedError):
            await replicas[0].sessions.resume(session_id)
        begun = await replicas[0].sign_in.start("/")
        finished = await replicas[0].sign_in.finish(begun.cookie.reveal(), provider.answer(begun.url))
        browser = await replicas[0].sessions.begin(finished.caller, ADDRESS, finished.tokens)
        with pytest.raises(UnauthenticatedError):
            await replicas[0].sessions.resume(browser.id.reveal(), COMMAND_LINE)

    async def test_a_lost_group_ends_it_within_five_minutes(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        session_id = await self.opened(provider, replicas[0])
        await replicas[0].sessions.resume(session_id, COMMAND_LINE)
        provider.claims["groups"] = ["students"]
        await asyncio.sleep(300)
        with pytest.raises(UnauthenticatedError):
            await replicas[1].sessions.resume(session_id, COMMAND_LINE)


class TestWithABrowser:
    """RFC 8252, where the provider gives LCM no codes."""

    async def finished(self, provider: ScriptedProvider, replica: Replica, verifier: str = VERIFIER) -> str:
        begun = await replica.sign_in.start("/")
        done = await replica.sign_in.finish(begun.cookie.reveal(), provider.answer(begun.url))
        _, code = await replica.command_line.finish_in_browser(done, ADDRESS, code_challenge(verifier))
        return code.reveal()

    @pytest.mark.parametrize("error", ["unauthorized_client", "invalid_client", "invalid_request"])
    async def test_a_registration_without_codes_needs_a_browser(
        self, provider: ScriptedProvider, replicas: list[Replica], error: str
    ) -> None:
        provider.device_refusal = {"error": error, "error_description": "the flow is disabled for the client"}
        assert await replicas[0].command_line.start(ADDRESS) is None

    async def test_a_provider_without_codes_needs_a_browser(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        provider.metadata_changes = {"device_authorization_endpoint": None}
        assert await replicas[0].command_line.start(ADDRESS) is None

    async def test_the_code_is_for_the_one_who_asked_at_any_control_plane(
        self, provider: ScriptedProvider, replicas: list[Replica]
    ) -> None:
        code = await self.finished(provider, replicas[0])
        with pytest.raises(UnauthenticatedError, match="expired or was already used"):
            await replicas[1].command_line.redeem(code, "another-verifier-of-43-characters-at-the-least")
        session = await replicas[1].command_line.redeem(code, VERIFIER)
        again = await replicas[0].command_line.redeem(code, VERIFIER)
        assert again.id == session.id, "a lost answer is given again"
        assert session.caller.role is Role.OPERATOR

    async def test_a_code_is_valid_for_two_minutes(self, provider: ScriptedProvider, replicas: list[Replica]) -> None:
        code = await self.finished(provider, replicas[0])
        await asyncio.sleep(121)
        with pytest.raises(UnauthenticatedError):
            await replicas[0].command_line.redeem(code, VERIFIER)

    async def test_a_handle_is_no_code(self, provider: ScriptedProvider, replicas: list[Replica]) -> None:
        begun = await started(replicas[0])
        with pytest.raises(UnauthenticatedError):
            await replicas[0].command_line.redeem(begun.handle.reveal(), VERIFIER)


@pytest.mark.parametrize(
    "changes",
    [
        {"device_code": None},
        {"user_code": "A\x1b[2J"},
        {"user_code": "x" * 65},
        {"verification_uri": "http://login.example.org/enter"},
        {"verification_uri": "javascript:alert(1)"},
        {"expires_in": 0},
        {"expires_in": "600"},
    ],
)
def test_codes_that_are_not_believed(changes: dict[str, Any]) -> None:
    body = {"device_code": "d", "user_code": "u", "verification_uri": "https://login.example.org", "expires_in": 60}
    assert parse_device_code(body).interval == 5.0
    with pytest.raises(ProviderResponseError, match="complete code"):
        parse_device_code({**body, **changes})
