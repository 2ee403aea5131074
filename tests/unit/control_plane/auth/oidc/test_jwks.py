"""The provider's keys: how often they are fetched, and which are accepted."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import structlog

from lcm.control_plane.auth.oidc import jwks
from lcm.control_plane.auth.oidc.fetch import ProviderConnection
from lcm.control_plane.auth.oidc.jwks import JwksCache, JwksError, fixed_url, parse_jwks
from tests.support.auth.issuer import document, entry, private_key
from tests.support.network.httpx_transport import HttpxTransport

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "https://id.example/keys"
ONE = entry(private_key("one", "P-256"), "one")
TWO = entry(private_key("two", "P-256"), "two")


class Provider:
    """Counts requests and responds; `seconds` is how long a response takes."""

    def __init__(self, *entries: dict[str, Any], seconds: float = 0.0) -> None:
        self.entries = entries
        self.seconds = seconds
        self.down = False
        self.requests = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        await asyncio.sleep(self.seconds)
        if self.down:
            raise httpx.ConnectError("connection refused")
        return httpx.Response(200, content=document(*self.entries))

    def keys(self) -> JwksCache:
        return JwksCache(fixed_url(URL), ProviderConnection(HttpxTransport(httpx.MockTransport(self))))


async def kids(keys: JwksCache, kid: str | None) -> list[str | None]:
    return [key.kid for key in await keys.candidates(kid, "ES256")]


async def test_known_keys_are_not_fetched_again() -> None:
    provider = Provider(ONE)
    keys = provider.keys()
    assert not keys.has_keys
    for _ in range(100):
        assert await kids(keys, "one") == ["one"]
    assert keys.has_keys
    assert provider.requests == 1


async def test_a_token_without_a_key_id_may_use_any_matching_key() -> None:
    rsa = entry(private_key("rsa"), "rsa")
    keys = Provider(ONE, TWO, rsa).keys()
    assert await kids(keys, None) == ["one", "two"]
    assert [key.kid for key in await keys.candidates(None, "PS384")] == ["rsa"]
    assert not await keys.candidates("rsa", "ES256")


async def test_forged_key_ids_do_not_flood_the_provider() -> None:
    provider = Provider(ONE)
    keys = provider.keys()
    await kids(keys, "one")
    began = asyncio.get_running_loop().time()
    for number in range(600):
        assert await kids(keys, f"forged-{number}") == []
        await asyncio.sleep(0.5)
    spent = asyncio.get_running_loop().time() - began
    assert provider.requests == spent // jwks.MIN_REFRESH_INTERVAL
    assert await kids(keys, "one") == ["one"]


async def test_a_new_key_is_found_within_the_bound_and_a_withdrawn_one_is_gone() -> None:
    provider = Provider(ONE)
    keys = provider.keys()
    await kids(keys, "one")
    provider.entries = (TWO,)
    assert await kids(keys, "two") == []
    assert await kids(keys, "one") == ["one"]
    await asyncio.sleep(jwks.MIN_REFRESH_INTERVAL)
    assert await kids(keys, "two") == ["two"]
    assert await kids(keys, "one") == []


async def test_concurrent_lookups_share_one_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "MIN_FIRST_REFRESH_INTERVAL", 0.0)
    provider = Provider(ONE, seconds=2)
    keys = provider.keys()
    found = await asyncio.gather(*(kids(keys, "one") for _ in range(50)))
    assert found == [["one"]] * 50
    assert provider.requests == 1


async def test_a_cancelled_waiter_does_not_cancel_the_fetch_for_others() -> None:
    keys = Provider(ONE, seconds=2).keys()
    first = asyncio.create_task(kids(keys, "one"))
    other = asyncio.create_task(kids(keys, "one"))
    await asyncio.sleep(1)
    first.cancel()
    assert await other == ["one"]


async def test_known_keys_stay_valid_while_the_provider_is_down() -> None:
    provider = Provider(ONE)
    keys = provider.keys()
    await kids(keys, "one")
    provider.down = True
    for _ in range(100):
        await asyncio.sleep(jwks.BLOCKING_REFRESH_AGE)
        assert await kids(keys, "one") == ["one"]
    provider.down = False
    provider.entries = (TWO,)
    await asyncio.sleep(jwks.MIN_REFRESH_INTERVAL)
    assert await kids(keys, "two") == ["two"]


async def test_a_provider_that_hangs_times_out() -> None:
    provider = Provider(ONE, seconds=3600)
    keys = provider.keys()
    began = asyncio.get_running_loop().time()
    assert await kids(keys, "one") == []
    assert asyncio.get_running_loop().time() - began == pytest.approx(jwks.TIMEOUT)
    assert not keys.has_keys
    provider.seconds = 0
    await asyncio.sleep(jwks.MIN_FIRST_REFRESH_INTERVAL)
    assert await kids(keys, "one") == ["one"]


async def test_aging_keys_are_refreshed_in_the_background() -> None:
    provider = Provider(ONE)
    keys = provider.keys()
    await kids(keys, "one")
    provider.entries, provider.seconds = (TWO,), 1.0
    await asyncio.sleep(jwks.BACKGROUND_REFRESH_AGE + 1)
    began = asyncio.get_running_loop().time()
    assert await kids(keys, "one") == ["one"]
    assert asyncio.get_running_loop().time() == began
    await asyncio.sleep(2)
    assert await kids(keys, "one") == []


async def test_a_key_withdrawn_long_ago_is_not_accepted_once_more() -> None:
    provider = Provider(ONE)
    keys = provider.keys()
    await kids(keys, "one")
    provider.entries, provider.seconds = (TWO,), 1.0
    await asyncio.sleep(jwks.BLOCKING_REFRESH_AGE + 1)
    assert await kids(keys, "one") == []


async def test_closing_cancels_a_refresh_in_progress() -> None:
    keys = Provider(ONE, seconds=3).keys()
    waiting = asyncio.create_task(kids(keys, "one"))
    await asyncio.sleep(1)
    await keys.close()
    assert await waiting == []
    await keys.close()


def without(name: str) -> dict[str, Any]:
    return {field: value for field, value in ONE.items() if field != name}


@pytest.mark.parametrize(
    "rejected",
    [
        pytest.param({"kty": "oct", "kid": "x", "k": "c2VjcmV0", "alg": "HS256"}, id="symmetric"),
        pytest.param(entry(private_key("rsa"), "x", use="enc"), id="for encryption"),
        pytest.param(entry(private_key("rsa"), "x", alg="HS256"), id="rsa said to be hmac"),
        pytest.param(entry(private_key("rsa"), "x", alg="none"), id="rsa said to be none"),
        pytest.param(entry(private_key("rsa"), "x", alg=["RS256"]), id="alg a list"),
        pytest.param(entry(private_key("rsa"), "x", alg="RSA-OAEP"), id="other use"),
        pytest.param(entry(private_key("rsa"), "x", private=True), id="private RSA"),
        pytest.param(entry(private_key("P-256", "P-256"), "x", private=True), id="private EC"),
        pytest.param(entry(private_key("Ed25519", "Ed25519"), "x", private=True), id="private Ed25519"),
        pytest.param({"kty": "oct", "kid": "x", "k": "c2VjcmV0"}, id="symmetric, no algorithm"),
        pytest.param(entry(private_key("small", "RSA-1024"), "x"), id="weak"),
        pytest.param(entry(private_key("odd", "secp256k1"), "x"), id="another curve"),
        pytest.param(entry(private_key("one", "P-256"), "x", alg="ES512"), id="alg of another curve"),
        pytest.param(without("x"), id="incomplete"),
        pytest.param(ONE | {"x": 5}, id="wrong type"),
        pytest.param(ONE | {"x": ONE["y"]}, id="not on the curve"),
        pytest.param({}, id="empty"),
        pytest.param("key", id="no object"),
    ],
)
def test_unsupported_keys_are_rejected(rejected: Any) -> None:
    assert [key.kid for key in parse_jwks(document(rejected, ONE))] == ["one"]
    with pytest.raises(JwksError, match="a key that can verify signatures"):
        parse_jwks(document(rejected))


@pytest.mark.parametrize("kind", ["RSA", "P-256", "Ed25519"])
@pytest.mark.parametrize("odd", [5, -1.5, None, [], {}, True, "", "!!", "é", "AA", "A" * 5000], ids=repr)
def test_an_odd_field_of_one_key_does_not_affect_the_others(kind: str, odd: object) -> None:
    whole = entry(private_key(kind, kind), "x", use="sig", alg=None)
    for field in whole:
        assert "one" in [key.kid for key in parse_jwks(document(whole | {field: odd}, ONE))]


@pytest.mark.parametrize(
    ("kind", "algorithms"),
    [
        ("RSA", {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        ("P-256", {"ES256"}),
        ("P-384", {"ES384"}),
        ("P-521", {"ES512"}),
        ("Ed25519", {"EdDSA"}),
    ],
)
def test_a_key_is_valid_for_algorithms_of_its_type(kind: str, algorithms: set[str]) -> None:
    (key,) = parse_jwks(document(entry(private_key(kind, kind), "x")))
    assert key.algorithms == algorithms


def test_a_key_may_name_its_algorithm() -> None:
    (key,) = parse_jwks(document(entry(private_key("rsa"), "x", alg="PS256", use="sig")))
    assert key.algorithms == {"PS256"}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not respond with valid JSON"),
        (b"<html>", "not respond with valid JSON"),
        (b"[" * 100_000, "not respond with valid JSON"),
        (b"[]", "not respond with a list of keys"),
        (b'{"keys": {}}', "not respond with a list of keys"),
        (b'{"keys": []}', "not respond with a key that"),
        (json.dumps({"keys": [ONE] * 101}).encode(), "more than 100 keys"),
    ],
)
def test_invalid_documents_are_rejected(body: bytes, why: str) -> None:
    with pytest.raises(JwksError, match=why):
        parse_jwks(body)


async def redirected(respond: Callable[[httpx.Request], httpx.Response]) -> tuple[list[str], JwksCache]:
    urls: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        urls.append(str(request.url))
        return respond(request)

    client = HttpxTransport(httpx.MockTransport(handle))
    keys = JwksCache(fixed_url(URL), ProviderConnection(client))
    await keys.candidates("one", "ES256")
    return urls, keys


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/keys",
        "http://id.example/keys",
        "https://id.example:8443/keys",
        "//evil.example",
        "https://[::1",
    ],
)
async def test_redirects_to_another_host_are_not_followed(target: str) -> None:
    with structlog.testing.capture_logs() as lines:
        urls, keys = await redirected(lambda _: httpx.Response(302, headers={"location": target}))
    assert ["could not be read" in line["event"] for line in lines] == [True]
    assert urls == [URL]
    assert not keys.has_keys


async def test_redirects_on_the_same_host_are_followed_a_few_times() -> None:
    def once(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/keys":
            return httpx.Response(307, headers={"location": "/v2/keys"})
        return httpx.Response(200, content=document(ONE))

    urls, keys = await redirected(once)
    assert urls == [URL, "https://id.example/v2/keys"]
    assert keys.has_keys
    urls, keys = await redirected(lambda _: httpx.Response(302, headers={"location": URL}))
    assert len(urls) == 4
    assert not keys.has_keys
