"""An identity provider without a socket, for tests in virtual time: it can be slow, silent or wrong."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlsplit

import httpx

from lcm.control_plane.auth.oidc.fetch import ProviderConnection
from lcm.control_plane.auth.oidc.jwks import JwksCache
from lcm.control_plane.auth.oidc.provider import Provider, ProviderConfig
from lcm.control_plane.auth.oidc.sign_in import OidcSignIn
from lcm.control_plane.auth.oidc.verifier import OidcConfig, OidcVerifier
from lcm.control_plane.secrets.encryption import Secret, SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.model.access import Role
from tests.support.auth.issuer import ISSUER, document, entry, private_key, signed
from tests.support.network.httpx_transport import HttpxTransport

if TYPE_CHECKING:
    from lcm.control_plane.auth.teams import TeamDirectory

CLIENT_ID = "lcm-web"
CLIENT_SECRET = "s3cret: of+tests%"
PUBLIC_URL = "http://lcm.test"
GROUPS = {"staff": Role.OPERATOR, "admins": Role.ADMIN}


class ScriptedProvider:
    """What it publishes and issues. `claims` are those of the person who signs in."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {"sub": "u-1", "preferred_username": "ann", "groups": ["staff"]}
        self.id_token_changes: dict[str, Any] = {}
        self.userinfo_claims: dict[str, Any] | None = None
        self.userinfo_status = 200
        self.metadata_changes: dict[str, Any] = {}
        self.kid = "one"
        self.seconds = 0.0  # how long each response takes
        self.down = False
        self.token_error: dict[str, Any] | None = None
        self.with_refresh_token = True
        self.renews_id_token = True  # whether a refresh brings an ID token too
        self.device_answer = "authorization_pending"  # "approved", or another error code
        self.device_refusal: dict[str, Any] | None = None
        self.device_interval = 5.0
        self.requests: list[str] = []
        self.revoked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: set[str] = set()
        self._device_codes: dict[str, tuple[float, float]] = {}  # when each expires, and when it may be asked again
        self._numbers = itertools.count(1)

    def sign_in(
        self,
        box: SecretBox | None = None,
        role_map: dict[str, Role] | None = None,
        teams: TeamDirectory | None = None,
    ) -> OidcSignIn:
        """The sign-in of one control plane that is registered here."""
        connection = ProviderConnection(HttpxTransport(httpx.MockTransport(self)))
        config = ProviderConfig(ISSUER, CLIENT_ID, Secret(CLIENT_SECRET), PUBLIC_URL, ("profile", "email", "groups"))
        provider = Provider(config, connection)
        roles = GROUPS if role_map is None else role_map
        rules = OidcConfig(ISSUER, None, "groups", roles, CLIENT_ID)
        verifier = OidcVerifier(rules, JwksCache(provider.jwks_url, connection), teams)
        return OidcSignIn(provider, verifier, box or make_box())

    def answer(self, url: str, **changes: str) -> dict[str, str]:
        """What the browser brings back after the person signed in at this URL."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT_ID
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{next(self._numbers)}"
        self._codes[code] = asked
        return {"code": code, "state": asked["state"], "iss": ISSUER, **changes}

    def count(self, path: str) -> int:
        """How many requests a path got."""
        return self.requests.count(path)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.requests.append(path)
        await asyncio.sleep(self.seconds)
        if self.down:
            raise httpx.ConnectError("connection refused")
        if path == "/.well-known/openid-configuration":
            return httpx.Response(200, json=self._metadata())
        if path == "/keys":
            return httpx.Response(200, content=document(entry(private_key(self.kid, "P-256"), self.kid)))
        if path == "/me":
            shown = self.claims if self.userinfo_claims is None else self.userinfo_claims
            return httpx.Response(self.userinfo_status, json=shown)
        assert request.headers["authorization"] == _basic(), "the client authenticates"
        fields = dict(parse_qsl(request.content.decode(), strict_parsing=True))
        if path == "/device":
            return self._device_code()
        if path == "/revoke":
            self.revoked.append(fields["token"])
            self._refresh_tokens.discard(fields["token"])
            return httpx.Response(200)
        return self._issue(fields) if self.token_error is None else httpx.Response(400, json=self.token_error)

    def _metadata(self) -> dict[str, Any]:
        plain = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
            "userinfo_endpoint": f"{ISSUER}/me",
            "end_session_endpoint": f"{ISSUER}/end?lang=en",
            "revocation_endpoint": f"{ISSUER}/revoke",
            "device_authorization_endpoint": f"{ISSUER}/device",
            "scopes_supported": ["openid", "profile", "groups"],
        }
        return {name: value for name, value in (plain | self.metadata_changes).items() if value is not None}

    def _device_code(self) -> httpx.Response:
        if self.device_refusal is not None:
            return httpx.Response(400, json=self.device_refusal)
        code, now = f"device-{next(self._numbers)}", asyncio.get_running_loop().time()
        self._device_codes[code] = (now + 600, now + self.device_interval)
        page = f"{ISSUER}/enter"
        body = {"device_code": code, "user_code": "WDJB-MJHT", "verification_uri": page, "expires_in": 600}
        return httpx.Response(200, json={**body, "verification_uri_complete": f"{page}?user_code=WDJB-MJHT"})

    def _refuse_device_code(self, code: str) -> str | None:
        """Why there are no tokens for a code, or None."""
        if code not in self._device_codes:
            return "invalid_grant"
        (expires, next_poll), now = self._device_codes[code], asyncio.get_running_loop().time()
        if now >= expires:
            return "expired_token"
        self._device_codes[code] = (expires, now + self.device_interval)
        if now < next_poll:
            return "slow_down"
        if self.device_answer != "approved":
            return self.device_answer
        del self._device_codes[code]
        return None

    def _issue(self, fields: dict[str, str]) -> httpx.Response:
        nonce = None
        if fields["grant_type"] == "urn:ietf:params:oauth:grant-type:device_code":
            if (error := self._refuse_device_code(fields["device_code"])) is not None:
                return httpx.Response(400, json={"error": error})
        elif fields["grant_type"] == "authorization_code":
            asked = self._codes.pop(fields["code"], None)
            if asked is None:
                return httpx.Response(400, json={"error": "invalid_grant"})
            digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
            assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked["code_challenge"]
            assert fields["redirect_uri"] == asked["redirect_uri"]
            nonce = asked["nonce"]
        elif fields["refresh_token"] not in self._refresh_tokens:
            self._refresh_tokens.clear()  # used twice: it may be stolen, so all that came from it is withdrawn
            return httpx.Response(400, json={"error": "invalid_grant"})
        else:
            self._refresh_tokens.remove(fields["refresh_token"])
        issued = self._tokens(nonce)
        if fields["grant_type"] == "refresh_token" and not self.renews_id_token:
            del issued["id_token"]
        return httpx.Response(200, json=issued)

    def _tokens(self, nonce: str | None) -> dict[str, Any]:
        claims = {
            "aud": CLIENT_ID,
            "roles": None,
            "preferred_username": None,
            "nonce": nonce,
            **self.claims,
            **self.id_token_changes,
        }
        issued: dict[str, Any] = {
            "id_token": signed(private_key(self.kid, "P-256"), self.kid, "ES256", **claims),
            "access_token": f"access-{next(self._numbers)}",
            "token_type": "Bearer",
            "expires_in": 600,
        }
        if self.with_refresh_token:
            issued["refresh_token"] = f"refresh-{next(self._numbers)}"
            self._refresh_tokens.add(issued["refresh_token"])
        return issued


def make_box() -> SecretBox:
    """Keys for what the provider issues."""
    return SecretBox([parse_key(generate_key(), "test")])


def _basic() -> str:
    def decoded(header: str) -> str:
        return ":".join(unquote_plus(part) for part in base64.b64decode(header).decode().split(":"))

    pair = "lcm-web:s3cret%3A+of%2Btests%25"
    assert decoded(base64.b64encode(pair.encode()).decode()) == f"{CLIENT_ID}:{CLIENT_SECRET}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
