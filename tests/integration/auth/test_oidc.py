"""JWTs signed with real keys, verified with keys that a real server publishes; and forged tokens."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.auth.oidc import fetch, jwks
from lcm.control_plane.auth.roles import IdentityProviderUnavailableError, UnauthenticatedError
from lcm.model.access import Role
from tests.support.auth.issuer import claims, document, entry, private_key, public_pem, signed
from tests.support.servers.jwks_server import http_response

if TYPE_CHECKING:
    from lcm.control_plane.auth.oidc.verifier import OidcVerifier
    from tests.support.servers.jwks_server import JwksServer

FIRST = private_key("first")
SECOND = private_key("second")


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def forged(header: dict[str, Any], secret: bytes | None = None, **more: Any) -> str:
    """A token with any header, signed by HMAC or not at all, as no library would create it."""
    parts = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims(**more)).encode())}"
    signature = b"" if secret is None else hmac.digest(secret, parts.encode(), hashlib.sha256)
    return f"{parts}.{encoded(signature)}"


async def refused(oidc: OidcVerifier, token: str, why: str) -> None:
    with pytest.raises(UnauthenticatedError, match=why):
        await oidc.verify(token)


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        *(("RSA", name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        ("P-256", "ES256"),
        ("P-384", "ES384"),
        ("P-521", "ES512"),
        ("Ed25519", "EdDSA"),
    ],
)
async def test_every_asymmetric_algorithm(server: JwksServer, oidc: OidcVerifier, kind: str, algorithm: str) -> None:
    key = private_key(kind, kind)
    server.publish(entry(key, "k"))
    token = signed(key, "k", algorithm)
    caller = await oidc.verify(token)
    assert (caller.name, caller.role) == ("ann", Role.OPERATOR)
    head, body, signature = token.split(".")
    altered = encoded(json.dumps(claims(roles=["admin"])).encode())
    await refused(oidc, f"{head}.{altered}.{signature}", "signature is wrong")
    await refused(oidc, f"{head}.{body}.", "signature is wrong")
    await refused(oidc, signed(private_key("other", kind), "k", algorithm), "signature is wrong")
    assert len(server.asked) == 1


class TestRotation:
    async def test_old_keys_hold_until_the_new_ones_are_read(self, server: JwksServer, oidc: OidcVerifier) -> None:
        old, new = signed(FIRST, "first"), signed(SECOND, "second")
        await oidc.verify(old)
        server.publish(entry(SECOND, "second"))
        await oidc.verify(old)
        await oidc.verify(new)
        await refused(oidc, old, "does not publish")

    async def test_both_hold_while_both_are_published(self, server: JwksServer, oidc: OidcVerifier) -> None:
        server.publish(entry(FIRST, "first"), entry(SECOND, "second"))
        for key, kid in ((FIRST, "first"), (SECOND, "second")):
            await oidc.verify(signed(key, kid))
        await refused(oidc, signed(FIRST, "second"), "signature is wrong")

    async def test_tokens_that_name_no_key(self, server: JwksServer, oidc: OidcVerifier) -> None:
        await oidc.verify(signed(FIRST, None))
        await refused(oidc, signed(SECOND, None), "signature is wrong")
        server.publish(entry(FIRST, None), entry(SECOND, None))
        await oidc.verify(signed(SECOND, None))

    async def test_forged_names_do_not_make_the_server_busy(
        self, server: JwksServer, oidc: OidcVerifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jwks, "MIN_REFRESH_INTERVAL", 30.0)
        await oidc.verify(signed(FIRST, "first"))
        for number in range(200):
            await refused(oidc, signed(SECOND, f"forged-{number}"), "does not publish")
        assert len(server.asked) == 1


class TestServer:
    async def test_down_from_the_start_and_back(self, server: JwksServer, oidc: OidcVerifier) -> None:
        await server.stop()
        with pytest.raises(IdentityProviderUnavailableError):
            await oidc.verify(signed(FIRST, "first"))
        await server.start()
        await oidc.verify(signed(FIRST, "first"))

    async def test_down_later_known_keys_go_on(
        self, server: JwksServer, oidc: OidcVerifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await oidc.verify(signed(FIRST, "first"))
        await server.stop()
        monkeypatch.setattr(jwks, "BLOCKING_REFRESH_AGE", 0.0)
        await oidc.verify(signed(FIRST, "first"))
        await refused(oidc, signed(SECOND, "second"), "does not publish")
        await oidc.verify(signed(FIRST, "first"))
        await server.start()

    @pytest.mark.parametrize(
        "reply",
        [
            http_response(b"oops", status="500 Internal Server Error"),
            http_response(b"<html>"),
            http_response(b'{"keys": []}'),
            http_response(gzip.compress(document(entry(SECOND, "second"))), "Content-Encoding: gzip"),
            b"nonsense\r\n\r\n",
            http_response(b"x" * 100)[:-50],
            b"",
        ],
    )
    async def test_bad_answers_change_nothing(self, server: JwksServer, oidc: OidcVerifier, reply: bytes) -> None:
        await oidc.verify(signed(FIRST, "first"))
        server.reply = reply
        await refused(oidc, signed(SECOND, "second"), "does not publish")
        assert len(server.asked) == 2
        await oidc.verify(signed(FIRST, "first"))

    async def test_a_huge_answer_is_not_read_to_its_end(self, server: JwksServer, oidc: OidcVerifier) -> None:
        server.reply = b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"keys": ['
        server.endless = b" " * 65_536
        with pytest.raises(IdentityProviderUnavailableError):
            await oidc.verify(signed(FIRST, "first"))
        assert server.sent < 100 * fetch.MAX_BYTES  # what the buffers of the system hold, but not endlessly
        server.endless = b""
        server.reply = http_response(b" " * (fetch.MAX_BYTES + 1))
        with pytest.raises(IdentityProviderUnavailableError):
            await oidc.verify(signed(FIRST, "first"))

    async def test_an_answer_that_drips_is_given_up(
        self, server: JwksServer, oidc: OidcVerifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jwks, "TIMEOUT", 0.3)
        server.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
        server.endless, server.pause = b" ", 0.01
        with pytest.raises(IdentityProviderUnavailableError):
            await oidc.verify(signed(FIRST, "first"))
        server.endless = b""

    async def test_a_redirect_to_another_host_is_not_followed(self, server: JwksServer, oidc: OidcVerifier) -> None:
        for host in (f"localhost:{server.port}", "evil.example"):
            server.reply = http_response(b"", f"Location: http://{host}/keys", status="302 Found")
            with pytest.raises(IdentityProviderUnavailableError):
                await oidc.verify(signed(FIRST, "first"))
        assert len(server.asked) == 2

    async def test_it_asks_for_nothing_compressed(self, server: JwksServer, oidc: OidcVerifier) -> None:
        await oidc.verify(signed(FIRST, "first"))
        assert "accept-encoding: identity" in server.asked[0].lower()


class TestAlgorithmConfusion:
    @pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
    async def test_the_public_key_is_no_secret_for_hmac(self, oidc: OidcVerifier, algorithm: str) -> None:
        for secret in (public_pem(FIRST), public_pem(FIRST).strip()):
            token = forged({"alg": algorithm, "kid": "first", "typ": "JWT"}, secret)
            await refused(oidc, token, "is not signed by one of")

    @pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", None, 0, [], ["RS256"], "RS256 "])
    async def test_no_algorithm(self, oidc: OidcVerifier, algorithm: object) -> None:
        await refused(oidc, forged({"alg": algorithm, "kid": "first"}), "is not signed by one of")
        await refused(oidc, forged({"kid": "first"}), "is not signed by one of")

    async def test_a_symmetric_key_is_not_taken_though_it_is_published(
        self, server: JwksServer, oidc: OidcVerifier
    ) -> None:
        secret = b"a secret that was published!!!!!"
        published = {"kty": "oct", "kid": "shared", "k": encoded(secret), "alg": "HS256"}
        server.publish(published, entry(FIRST, "first"))
        await refused(oidc, forged({"alg": "HS256", "kid": "shared"}, secret), "is not signed by one of")
        await refused(oidc, forged({"alg": "RS256", "kid": "shared"}, secret), "does not publish")
        await refused(oidc, signed(FIRST, "shared"), "does not publish")
        await oidc.verify(signed(FIRST, "first"))

    async def test_a_key_serves_only_the_algorithm_it_is_published_for(
        self, server: JwksServer, oidc: OidcVerifier
    ) -> None:
        server.publish(entry(FIRST, "first", alg="PS256"))
        await oidc.verify(signed(FIRST, "first", "PS256"))
        await refused(oidc, signed(FIRST, "first", "RS256"), "does not publish")

    async def test_a_key_that_the_token_brings_along_does_not_count(
        self, server: JwksServer, oidc: OidcVerifier
    ) -> None:
        mine = entry(SECOND, "first")
        for extra in ({"jwk": mine}, {"jku": server.url}, {"x5c": ["AAAA"]}):
            head = encoded(json.dumps({"alg": "RS256", "kid": "first", **extra}).encode())
            _, body, signature = signed(SECOND, "first").split(".")
            await refused(oidc, f"{head}.{body}.{signature}", "signature is wrong")

    @pytest.mark.parametrize("extra", [{"crit": ["exp"]}, {"b64": False, "crit": ["b64"]}, {"kid": 5}, {"kid": []}])
    async def test_headers_that_nobody_understands(self, oidc: OidcVerifier, extra: dict[str, Any]) -> None:
        await refused(oidc, forged({"alg": "RS256", "kid": "first", **extra}), "not a valid|signature is wrong")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"iss": "https://evil.example"}, "is not from"),
        ({"iss": None}, "is not from"),
        ({"aud": "another"}, "is not meant for lcm"),
        ({"aud": None}, "is not meant for lcm"),
        ({"exp": 1_700_000_000}, "has expired"),
        ({"exp": None}, "has no expiry"),
        ({"nbf": 99_999_999_999}, "not valid yet"),
        ({"iat": 99_999_999_999}, "not valid yet"),
    ],
)
async def test_rightly_signed_but_not_valid(oidc: OidcVerifier, more: dict[str, Any], why: str) -> None:
    await refused(oidc, signed(FIRST, "first", **more), why)
