"""Which claims identify a caller, and which are rejected."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from lcm.control_plane.auth.oidc.fetch import ProviderConnection
from lcm.control_plane.auth.oidc.jwks import JwksCache, fixed_url
from lcm.control_plane.auth.oidc.verifier import LEEWAY, OidcConfig, OidcVerifier, looks_like_jwt
from lcm.control_plane.auth.roles import Caller, ForbiddenError, IdentityProviderUnavailableError, UnauthenticatedError
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from tests.support.auth.issuer import AUDIENCE, ISSUER, document, entry, private_key, signed
from tests.support.network.httpx_transport import HttpxTransport

KEY = private_key("one", "P-256")


def provider(role_claim: str = "roles", *, status: int = 200) -> OidcVerifier:
    def respond(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=document(entry(KEY, "one")))

    client = HttpxTransport(httpx.MockTransport(respond))
    config = OidcConfig(issuer=ISSUER, audience=AUDIENCE, role_claim=role_claim)
    return OidcVerifier(config, JwksCache(fixed_url("https://id.example/keys"), ProviderConnection(client)))


def token(**more: Any) -> str:
    return signed(KEY, "one", "ES256", **more)


def now() -> float:
    return clock.now().timestamp()


async def test_a_token_gives_name_and_role() -> None:
    caller = await provider().verify(token())
    assert (caller.name, caller.kind, caller.role) == ("ann", CallerKind.OIDC, Role.OPERATOR)
    assert caller.token_id is None
    assert caller.expires_at == clock.after(300)


async def test_the_name_falls_back_to_the_subject() -> None:
    for name in (None, "", "evil\nname", "x" * 129, 5):
        assert (await provider().verify(token(preferred_username=name))).name == "u-1"
    with pytest.raises(UnauthenticatedError, match="names no user: it has no preferred_username"):
        await provider().verify(token(preferred_username=None, sub="u" * 129))


@pytest.mark.parametrize("subject", [None, "", "evil\nname", "x" * 256, 5])
async def test_a_name_that_people_choose_is_never_their_identity(subject: object) -> None:
    with pytest.raises(UnauthenticatedError, match="no usable sub"):
        await provider().verify(token(preferred_username="ann", sub=subject))


@pytest.mark.parametrize("name", ["bootstrap", "Controller", " bootstrap", "start-up"])
async def test_a_name_chosen_at_the_provider_does_not_pass_for_an_account_of_lcm(name: str) -> None:
    assert (await provider().verify(token(preferred_username=name))).name == f"{name} (oidc)"


async def test_the_audit_has_issuer_and_subject_beside_a_name_that_a_token_may_have_too() -> None:
    caller = await provider().verify(token(preferred_username="ann"))
    token_of_that_name = Caller(name="ann", kind=CallerKind.TOKEN, role=Role.OPERATOR, token_id="t-1")
    assert caller.actor.name == token_of_that_name.actor.name
    assert (caller.actor.identity, token_of_that_name.actor.identity) == (f"oidc:{ISSUER}#u-1", "token:t-1")
    assert caller.unique_name != token_of_that_name.unique_name, "an Idempotency-Key of one is not that of the other"


@pytest.mark.parametrize(
    ("value", "role"),
    [
        ("viewer", Role.VIEWER),
        (["viewer", "admin", "operator"], Role.ADMIN),
        (["offline_access", "Operator"], Role.OPERATOR),
        ("openid operator", Role.OPERATOR),
        ("viewer,operator", Role.OPERATOR),
        (["viewer", 5, None, {"admin": True}], Role.VIEWER),
        (["viewer", "controller"], Role.VIEWER),
    ],
)
async def test_the_highest_known_role_counts(value: object, role: Role) -> None:
    assert (await provider().verify(token(roles=value))).role is role


@pytest.mark.parametrize("value", [None, "", [], "root", ["administrator"], {"admin": True}, 3, True, "controller"])
async def test_a_user_without_a_known_role_is_forbidden(value: object) -> None:
    with pytest.raises(ForbiddenError, match="ann is signed in but has no role here: the claim roles must hold"):
        await provider().verify(token(roles=value))


async def test_the_role_claim_may_be_a_path_or_have_dots_in_its_name() -> None:
    deep = provider("realm_access.roles")
    assert (await deep.verify(token(realm_access={"roles": ["admin"]}))).role is Role.ADMIN
    odd: list[object] = [["admin"], {"roles": {}}, None]
    for value in odd:
        with pytest.raises(ForbiddenError):
            await deep.verify(token(realm_access=value))
    dotted = provider("https://lcm.example/role")
    assert (await dotted.verify(token(**{"https://lcm.example/role": "viewer"}))).role is Role.VIEWER


async def test_times_are_checked_with_a_small_leeway() -> None:
    oidc = provider()
    early = token(nbf=now() + LEEWAY, iat=now() + LEEWAY)
    await oidc.verify(early)
    for claim in ("nbf", "iat"):
        with pytest.raises(UnauthenticatedError, match="not valid yet"):
            await oidc.verify(token(**{claim: now() + LEEWAY + 1}))
    short = token(exp=now() + 60)
    await asyncio.sleep(60 + LEEWAY - 1)
    await oidc.verify(short)
    await asyncio.sleep(1)
    with pytest.raises(UnauthenticatedError, match="has expired"):
        await oidc.verify(short)


async def test_a_token_needs_an_expiry_but_no_other_time() -> None:
    await provider().verify(token(nbf=None, iat=None))
    with pytest.raises(UnauthenticatedError, match="no expiry"):
        await provider().verify(token(exp=None))


@pytest.mark.parametrize("value", ["tomorrow", True, [], float("nan"), float("inf"), 10**400, 1e300])
async def test_invalid_times_are_rejected(value: object) -> None:
    with pytest.raises(UnauthenticatedError, match="exp is not a time"):
        await provider().verify(token(exp=value))


@pytest.mark.parametrize("issuer", [None, "", ISSUER + "/", "https://evil.example", ISSUER.upper(), [ISSUER], 5])
async def test_another_issuer_is_rejected(issuer: object) -> None:
    with pytest.raises(UnauthenticatedError, match=r"is not from https://id\.example"):
        await provider().verify(token(iss=issuer))


@pytest.mark.parametrize("audience", [None, "", "other", ["other"], [], {"lcm": 1}, "lcm2", 5])
async def test_another_audience_is_rejected(audience: object) -> None:
    with pytest.raises(UnauthenticatedError, match="is not meant for lcm"):
        await provider().verify(token(aud=audience))


async def test_one_of_several_audiences_is_accepted() -> None:
    await provider().verify(token(aud=["other", AUDIENCE]))


async def test_before_the_keys_were_read_the_provider_is_unavailable() -> None:
    with pytest.raises(IdentityProviderUnavailableError, match="cannot be read now"):
        await provider(status=503).verify(token())


def test_jwts_are_recognized() -> None:
    assert looks_like_jwt(token())
    assert not looks_like_jwt(token() + "\n")
    assert not looks_like_jwt(token(more="x" * 20_000))


@pytest.mark.parametrize("text", ["", "a.b.c", "lcm_t-1_" + "0" * 64, "eyJ.x", "eyJx.eyJx.!!", "eyJx.e.x", "\ud800"])
async def test_other_text_is_not_taken_for_a_jwt(text: str) -> None:
    with pytest.raises(UnauthenticatedError, match="not a valid token"):
        await provider().verify(text)
