"""Sign-in of a browser: what is asked of the provider, and which answers are accepted."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from lcm.control_plane.auth.oidc import fetch
from lcm.control_plane.auth.oidc.provider import RETRY_INTERVAL
from lcm.control_plane.auth.oidc.sign_in import ATTEMPT_LIFETIME, FinishedSignIn, OidcSignIn, StartedSignIn
from lcm.control_plane.auth.oidc.verifier import LEEWAY, NoRoleError
from lcm.control_plane.auth.roles import IdentityProviderUnavailableError, UnauthenticatedError
from lcm.control_plane.auth.sessions import EndedSession
from lcm.control_plane.auth.teams import TeamDirectory, put_team
from lcm.control_plane.records.kinds import ALL_KINDS
from lcm.control_plane.secrets.encryption import Secret
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.team import Team, TeamMember
from tests.support.auth.issuer import ISSUER
from tests.support.auth.scripted_provider import CLIENT_ID, PUBLIC_URL, ScriptedProvider, make_box


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider()


@pytest.fixture
def sign_in(provider: ScriptedProvider) -> OidcSignIn:
    return provider.sign_in()


async def finish(
    sign_in: OidcSignIn, provider: ScriptedProvider, started: StartedSignIn | None = None, **changes: str
) -> FinishedSignIn:
    started = started or await sign_in.start("/fleet?q=a")
    return await sign_in.finish(started.cookie.reveal(), provider.answer(started.url, **changes))


async def refused(sign_in: OidcSignIn, provider: ScriptedProvider, why: str, **changes: str) -> None:
    with pytest.raises(UnauthenticatedError, match=why):
        await finish(sign_in, provider, None, **changes)


async def test_a_person_signs_in(provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
    finished = await finish(sign_in, provider)
    assert (finished.caller.name, finished.caller.role, finished.return_to) == ("ann", Role.OPERATOR, "/fleet?q=a")
    assert finished.caller.identity == f"oidc:{ISSUER}#u-1"
    assert finished.tokens.refresh_token is not None


async def test_what_the_provider_is_asked(provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
    one, other = await sign_in.start("/"), await sign_in.start("/")
    asked, again = (parse_qs(urlsplit(each.url).query) for each in (one, other))
    assert one.url.startswith(f"{ISSUER}/authorize?")
    assert asked["redirect_uri"] == [f"{PUBLIC_URL}/sign-in/oidc/callback"]
    assert asked["scope"] == ["openid profile groups"], "email is not published by this provider"
    for name in ("state", "nonce", "code_challenge"):
        assert len(asked[name][0]) == 43
        assert asked[name] != again[name]
    for name in ("state", "nonce"):
        assert asked[name][0] not in one.cookie.reveal(), "the cookie reveals nothing"
    assert provider.requests == ["/.well-known/openid-configuration"], "it is asked once an hour"


async def test_another_control_plane_finishes_what_one_has_started(provider: ScriptedProvider) -> None:
    box = make_box()
    started = await provider.sign_in(box).start("/system")
    assert (await finish(provider.sign_in(box), provider, started)).return_to == "/system"


class TestAnswers:
    async def test_the_state_of_another_sign_in(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        for state in ("", "another", "é"):
            await refused(sign_in, provider, "not started in this browser", state=state)
        assert provider.count("/token") == 0

    @pytest.mark.parametrize("cookie", [None, "", "lcm1.x.y", "x" * 5000, "é"])
    async def test_a_browser_that_started_nothing(
        self, provider: ScriptedProvider, sign_in: OidcSignIn, cookie: str | None
    ) -> None:
        started = await sign_in.start("/")
        with pytest.raises(UnauthenticatedError, match="not started in this browser"):
            await sign_in.finish(cookie, provider.answer(started.url))

    async def test_a_cookie_of_other_keys(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        foreign = await provider.sign_in().start("/")
        with pytest.raises(UnauthenticatedError, match="not started in this browser"):
            await sign_in.finish(foreign.cookie.reveal(), provider.answer(foreign.url))

    async def test_too_late(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        started = await sign_in.start("/")
        await asyncio.sleep(ATTEMPT_LIFETIME.total_seconds())
        with pytest.raises(UnauthenticatedError, match="longer than ten minutes"):
            await finish(sign_in, provider, started)

    async def test_another_provider_answers(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        await refused(sign_in, provider, "another identity provider", iss="https://evil.example")

    async def test_a_code_is_used_once(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        started = await sign_in.start("/")
        answer = provider.answer(started.url)
        await sign_in.finish(started.cookie.reveal(), answer)
        with pytest.raises(UnauthenticatedError, match="already used"):
            await sign_in.finish(started.cookie.reveal(), answer)

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            ({"error": "access_denied"}, "cancelled, or the identity provider denied it. Sign in again"),
            ({"error": "access_denied", "error_description": "Not\x1b you."}, "denied it: Not you. Sign in again"),
            ({"error": "unauthorized_client"}, "check OIDC_CLIENT_ID.*/sign-in/oidc/callback is registered"),
            ({"error": "server_error", "error_description": "x" * 500}, f"\\(server_error\\): {'x' * 199}…\\. "),
            ({"error": "x" * 500}, "unknown error"),
            ({"code": ""}, "sent no code"),
            ({"code": "x" * 5000}, "sent no code"),
        ],
    )
    async def test_refusals_are_explained(
        self, provider: ScriptedProvider, sign_in: OidcSignIn, answer: dict[str, str], why: str
    ) -> None:
        await refused(sign_in, provider, why, **answer)

    async def test_a_wrong_secret_of_lcm_is_for_its_admin(
        self, provider: ScriptedProvider, sign_in: OidcSignIn
    ) -> None:
        provider.token_error = {"error": "invalid_client", "error_description": "wrong"}
        await refused(sign_in, provider, "An admin of LCM should check OIDC_CLIENT_ID")


class TestIdTokens:
    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"nonce": "of-another-sign-in"}, "belongs to another sign-in"),
            ({"nonce": None}, "belongs to another sign-in"),
            ({"nonce": 5}, "belongs to another sign-in"),
            ({"aud": "another"}, "not meant for lcm-web"),
            ({"aud": [CLIENT_ID, "another"]}, "issued to another application"),
            ({"aud": [CLIENT_ID, "another"], "azp": "another"}, "issued to another application"),
            ({"azp": "another"}, "issued to another application"),
            ({"iss": "https://evil.example"}, "is not from"),
            ({"exp": 1_000_000_000}, "has expired"),
        ],
    )
    async def test_wrong_ones(
        self, provider: ScriptedProvider, sign_in: OidcSignIn, changes: dict[str, Any], why: str
    ) -> None:
        provider.id_token_changes = changes
        await refused(sign_in, provider, why)

    async def test_several_audiences_with_lcm_as_the_authorized_party(
        self, provider: ScriptedProvider, sign_in: OidcSignIn
    ) -> None:
        provider.id_token_changes = {"aud": [CLIENT_ID, "another"], "azp": CLIENT_ID}
        assert (await finish(sign_in, provider)).caller.name == "ann"

    async def test_clocks_may_differ_a_little(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        ahead = clock.now().timestamp() + LEEWAY
        provider.id_token_changes = {"iat": ahead - 1, "nbf": ahead - 1}
        assert (await finish(sign_in, provider)).caller.name == "ann"
        provider.id_token_changes = {"iat": ahead + 60}
        await refused(sign_in, provider, "Check the clocks")

    async def test_the_first_sign_in_after_a_change_of_keys(
        self, provider: ScriptedProvider, sign_in: OidcSignIn
    ) -> None:
        await finish(sign_in, provider)
        provider.kid = "two"
        assert (await finish(sign_in, provider)).caller.name == "ann"


class TestRoles:
    async def test_the_highest_role_counts(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        provider.claims["groups"] = ["everyone", "staff", "admins"]
        assert (await finish(sign_in, provider)).caller.role is Role.ADMIN

    async def test_without_a_map_the_claim_holds_the_role(self, provider: ScriptedProvider) -> None:
        sign_in = provider.sign_in(role_map={})
        provider.claims["groups"] = ["viewer", "controller"]
        assert (await finish(sign_in, provider)).caller.role is Role.VIEWER
        provider.claims["groups"] = ["controller"]
        with pytest.raises(NoRoleError, match="must hold one of viewer, operator, admin"):
            await finish(sign_in, provider)

    async def test_with_a_map_role_words_are_groups_like_others(
        self, provider: ScriptedProvider, sign_in: OidcSignIn
    ) -> None:
        provider.claims["groups"] = ["admin", "Staff"]
        with pytest.raises(NoRoleError, match="ann is signed in but has no role here: the claim groups") as refusal:
            await finish(sign_in, provider)
        assert refusal.value.groups == ("admin", "Staff")

    async def test_what_was_issued_for_a_refused_sign_in_is_revoked(
        self, provider: ScriptedProvider, sign_in: OidcSignIn
    ) -> None:
        provider.claims["groups"] = ["students"]
        with pytest.raises(NoRoleError):
            await finish(sign_in, provider)
        provider.claims["groups"] = ["staff"]
        provider.id_token_changes = {"groups": None}
        provider.userinfo_claims = {"sub": "somebody-else"}
        await refused(sign_in, provider, "two different people")
        await sign_in.close()
        assert len(provider.revoked) == 2
        assert all(each.startswith("refresh-") for each in provider.revoked)

    async def test_one_group_as_text_may_have_spaces(self, provider: ScriptedProvider) -> None:
        sign_in = provider.sign_in(role_map={"lab staff": Role.VIEWER})
        provider.claims["groups"] = "lab staff"
        assert (await finish(sign_in, provider)).caller.role is Role.VIEWER

    async def test_groups_that_only_userinfo_has(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        provider.id_token_changes = {"groups": None}
        assert (await finish(sign_in, provider)).caller.role is Role.OPERATOR
        provider.userinfo_claims = {"sub": "somebody-else", "groups": ["admins"]}
        await refused(sign_in, provider, "two different people")

    async def test_an_address_that_only_userinfo_has(self, provider: ScriptedProvider) -> None:
        """Userinfo is asked for it if a team names people by address: groups alone may be in the ID token."""
        store = MemoryStore()
        await store.open(ALL_KINDS)
        directory = TeamDirectory(store)
        sign_in = provider.sign_in(teams=directory)
        provider.userinfo_claims = provider.claims | {"email": "ann@example.org", "email_verified": True}
        assert (await finish(sign_in, provider)).caller.grants == ()
        assert provider.count("/me") == 0, "nobody needs it"
        member = TeamMember(role=Role.LEARNER, email="ann@example.org")
        now = clock.now()
        team = Team(id="team-a", name="a", members=(member,), created_at=now, updated_at=now)
        await store.commit([put_team(team, None)])
        directory.forget()
        (grant,) = (await finish(sign_in, provider)).caller.grants
        assert (grant.team, grant.role) == ("team-a", Role.LEARNER)

    async def test_an_address_is_verified_by_the_answer_that_has_it(
        self, provider: ScriptedProvider, sign_in: OidcSignIn
    ) -> None:
        """Teams name people by address: that userinfo has verified one says nothing about that of the ID token."""
        provider.userinfo_claims = provider.claims | {"email": "ann@example.org", "email_verified": True}
        for address, counts in (("boss@example.org", None), ("ann@example.org", "ann@example.org")):
            provider.id_token_changes = {"groups": None, "email": address}
            assert (await finish(sign_in, provider)).caller.email == counts

    async def test_a_verified_address_is_a_name_too(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        provider.claims = {"sub": "u-1", "groups": ["staff"], "email": "ann@example.org", "email_verified": True}
        assert (await finish(sign_in, provider)).caller.name == "ann@example.org"
        provider.claims["email_verified"] = False
        assert (await finish(sign_in, provider)).caller.name == "u-1"


class TestDiscovery:
    async def test_silence_is_bounded_and_explained(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        provider.seconds = 3600
        began = asyncio.get_running_loop().time()
        with pytest.raises(
            IdentityProviderUnavailableError, match=r"did not respond within 5 s\. Try again in a minute"
        ):
            await sign_in.start("/")
        assert asyncio.get_running_loop().time() - began == pytest.approx(fetch.TIMEOUT)
        provider.seconds = 0
        with pytest.raises(IdentityProviderUnavailableError):
            await sign_in.start("/")  # not asked again at once
        assert len(provider.requests) == 1
        await asyncio.sleep(RETRY_INTERVAL)
        await sign_in.start("/")

    async def test_known_endpoints_are_used_while_it_is_down(
        self, provider: ScriptedProvider, sign_in: OidcSignIn
    ) -> None:
        await sign_in.start("/")
        provider.down = True
        await asyncio.sleep(7200)
        assert (await sign_in.start("/")).url.startswith(f"{ISSUER}/authorize?")
        started = await sign_in.start("/")
        with pytest.raises(IdentityProviderUnavailableError, match="cannot be reached: connection refused"):
            await finish(sign_in, provider, started)

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"issuer": f"{ISSUER}/"}, "set OIDC_ISSUER to exactly that text"),
            ({"issuer": None}, "calls itself nothing"),
            ({"token_endpoint": None}, "no valid token_endpoint"),
            ({"token_endpoint": "http://id.example/token"}, "no valid token_endpoint"),
            ({"authorization_endpoint": "javascript:alert(1)"}, "no valid authorization_endpoint"),
            ({"jwks_uri": 5}, "no valid jwks_uri"),
        ],
    )
    async def test_documents_that_are_not_believed(
        self, provider: ScriptedProvider, sign_in: OidcSignIn, changes: dict[str, Any], why: str
    ) -> None:
        provider.metadata_changes = changes
        with pytest.raises(IdentityProviderUnavailableError, match=why):
            await sign_in.start("/")


class TestSignOut:
    async def test_the_browser_signs_out_at_the_provider_and_the_refresh_token_is_given_back(
        self, provider: ScriptedProvider, sign_in: OidcSignIn
    ) -> None:
        finished = await finish(sign_in, provider)
        assert finished.tokens.refresh_token is not None
        ended = EndedSession(finished.caller, finished.tokens.id_token, finished.tokens.refresh_token)
        url = await sign_in.sign_out(ended)
        await sign_in.close()
        assert url is not None
        fields = parse_qs(urlsplit(url).query)
        assert fields["post_logout_redirect_uri"] == [f"{PUBLIC_URL}/sign-in"]
        assert fields["lang"] == ["en"]
        assert finished.tokens.id_token == Secret(fields["id_token_hint"][0])
        assert provider.revoked == [finished.tokens.refresh_token.reveal()]

    async def test_a_silent_provider_does_not_delay_it(self, provider: ScriptedProvider, sign_in: OidcSignIn) -> None:
        finished = await finish(sign_in, provider)
        provider.seconds = 3600
        began = asyncio.get_running_loop().time()
        await sign_in.sign_out(EndedSession(finished.caller, None, finished.tokens.refresh_token))
        assert asyncio.get_running_loop().time() == began
        await sign_in.close()

    async def test_without_a_page_for_it_the_sign_out_is_local(
        self, provider: ScriptedProvider, sign_in: OidcSignIn
    ) -> None:
        provider.metadata_changes = {"end_session_endpoint": None, "revocation_endpoint": None}
        finished = await finish(sign_in, provider)
        ended = EndedSession(finished.caller, finished.tokens.id_token, finished.tokens.refresh_token)
        assert await sign_in.sign_out(ended) is None
        await sign_in.close()
        assert await sign_in.sign_out(EndedSession(finished.caller)) is None
