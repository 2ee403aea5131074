"""The identity provider as LCM calls it: discovery (OpenID Connect Discovery 1.0), tokens, userinfo and revocation."""

from __future__ import annotations

import asyncio
import base64
import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode

import structlog

from lcm.control_plane.auth.oidc.device_code import GRANT_TYPE, parse_device_code
from lcm.control_plane.auth.oidc.fetch import ProviderResponseError
from lcm.control_plane.secrets.encryption import Secret
from lcm.core import clock
from lcm.core.text import single_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.auth.oidc.device_code import DeviceCode
    from lcm.control_plane.auth.oidc.fetch import ProviderConnection

log = structlog.get_logger(__name__)

DISCOVERY_PATH = "/.well-known/openid-configuration"
DISCOVERY_AGE = 3600.0
RETRY_INTERVAL = 5.0  # after a failed discovery
_ALLOWED_URL = re.compile(r"(https://|http://(127\.|localhost\b|\[::1\]))[^\s\"<>]+", re.ASCII)
_MAX_URL = 2048
_MAX_SHOWN = 200  # characters of a text of the provider
_MAX_TOKEN = 64 * 1024
_MAX_LIFETIME = 365 * 24 * 3600.0
_OK = 200
_CLIENT_ERRORS = range(400, 500)
_TOO_MANY = 429


class TokenRefusedError(Exception):
    """The provider refused a request for tokens: the error code of OAuth 2.0, and its description."""

    def __init__(self, code: str, description: str = "") -> None:
        super().__init__(f"{code}: {description}" if description else code)
        self.code = code
        self.description = description


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """How LCM is registered at the provider."""

    issuer: str
    client_id: str
    client_secret: Secret | None
    public_url: str
    scopes: tuple[str, ...]
    jwks_url: str | None = None

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends a browser after the sign-in."""
        return f"{self.public_url}/sign-in/oidc/callback"

    @property
    def signed_out_uri(self) -> str:
        """Where the provider sends a browser after the sign-out."""
        return f"{self.public_url}/sign-in"


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """The endpoints of the provider; None for those it does not have."""

    authorization: str
    token: str
    jwks: str
    userinfo: str | None
    end_session: str | None
    revocation: str | None
    device_authorization: str | None
    scopes: frozenset[str] | None
    secret_in_body: bool


@dataclass(frozen=True, slots=True)
class TokenSet:
    """What the provider issued."""

    id_token: Secret | None
    access_token: Secret | None
    access_expires_at: datetime | None
    refresh_token: Secret | None


class Provider:
    """The calls. Each takes a bounded time and raises `ProviderResponseError` if the provider is silent."""

    def __init__(self, config: ProviderConfig, connection: ProviderConnection) -> None:
        self.config = config
        self._connection = connection
        self._metadata: ProviderMetadata | None = None
        self._read_at = -math.inf
        self._failed_at = -math.inf
        self._failure = ""
        self._lock = asyncio.Lock()

    async def metadata(self) -> ProviderMetadata:
        """The endpoints, read again every hour; known ones are used while the provider is silent."""
        async with self._lock:  # one discovery at a time: others wait for its result, at most `fetch.TIMEOUT`
            now = asyncio.get_running_loop().time()
            if now - self._read_at < DISCOVERY_AGE:
                assert self._metadata is not None
                return self._metadata
            if now - self._failed_at >= RETRY_INTERVAL:
                await self._discover()
            if self._metadata is None:
                raise ProviderResponseError(self._failure)
            return self._metadata

    async def jwks_url(self) -> str:
        """Where the signing keys are."""
        return self.config.jwks_url or (await self.metadata()).jwks

    async def authorization_url(self, parameters: Mapping[str, str]) -> str:
        """Where a browser goes to sign in."""
        metadata = await self.metadata()
        fields = {"client_id": self.config.client_id, "scope": self._scope(metadata), **parameters}
        return _with_query(metadata.authorization, fields)

    async def sign_out_url(self, id_token: Secret | None) -> str | None:
        """Where a browser goes to sign out at the provider too; None if it offers no such page."""
        endpoint = (await self.metadata()).end_session
        if endpoint is None:
            return None
        fields = {"client_id": self.config.client_id, "post_logout_redirect_uri": self.config.signed_out_uri}
        if id_token is not None:
            fields["id_token_hint"] = id_token.reveal()
        return _with_query(endpoint, fields)

    async def exchange_code(self, code: str, verifier: Secret) -> TokenSet:
        """The tokens for the code of a sign-in."""
        return await self._tokens(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self.config.redirect_uri,
                "code_verifier": verifier.reveal(),
            }
        )

    async def request_device_code(self) -> DeviceCode | None:
        """A code that a person enters on any device (RFC 8628); None if the provider offers none."""
        metadata = await self.metadata()
        if metadata.device_authorization is None:
            return None
        # Some providers read the client's id from the form alone here.
        fields = {"client_id": self.config.client_id, "scope": self._scope(metadata)}
        return parse_device_code(await self._accepted(metadata, metadata.device_authorization, fields))

    async def exchange_device_code(self, device_code: Secret) -> TokenSet:
        """The tokens of the person who entered the code; `TokenRefusedError` says why there are none, or none yet."""
        fields = {"grant_type": GRANT_TYPE, "client_id": self.config.client_id, "device_code": device_code.reveal()}
        return await self._tokens(fields)

    async def refresh(self, refresh_token: Secret) -> TokenSet:
        """New tokens for a refresh token, which most providers accept once; raises `TokenRefusedError`."""
        return await self._tokens({"grant_type": "refresh_token", "refresh_token": refresh_token.reveal()})

    async def userinfo(self, access_token: Secret) -> Mapping[str, Any]:
        """The claims of the person; empty if the provider has no userinfo."""
        endpoint = (await self.metadata()).userinfo
        if endpoint is None:
            return {}
        return await self._connection.get(endpoint, f"Bearer {access_token.reveal()}")

    async def revoke(self, refresh_token: Secret) -> None:
        """Give a refresh token back at the end of a session (RFC 7009), where the provider offers it."""
        metadata = await self.metadata()
        if metadata.revocation is not None:
            fields = {"token": refresh_token.reveal(), "token_type_hint": "refresh_token"}
            await self._post(metadata, metadata.revocation, fields)

    async def _tokens(self, fields: Mapping[str, str]) -> TokenSet:
        metadata = await self.metadata()
        return _token_set(await self._accepted(metadata, metadata.token, fields))

    async def _accepted(self, metadata: ProviderMetadata, url: str, fields: Mapping[str, str]) -> Mapping[str, Any]:
        """The answer to a form; raises `TokenRefusedError` for a refusal."""
        status, body = await self._post(metadata, url, fields)
        if status == _OK and body:
            return body
        error = body.get("error")
        if status in _CLIENT_ERRORS and status != _TOO_MANY and isinstance(error, str):
            raise TokenRefusedError(_short(error), _short(body.get("error_description")))
        raise ProviderResponseError(f"responded with status {status}")

    async def _post(
        self, metadata: ProviderMetadata, url: str, fields: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        config = self.config
        if config.client_secret is None:
            return await self._connection.post(url, {**fields, "client_id": config.client_id})
        secret = config.client_secret.reveal()
        if metadata.secret_in_body:
            return await self._connection.post(url, {**fields, "client_id": config.client_id, "client_secret": secret})
        pair = f"{quote_plus(config.client_id)}:{quote_plus(secret)}"  # form-encoded first, RFC 6749 section 2.3.1
        return await self._connection.post(url, fields, f"Basic {base64.b64encode(pair.encode()).decode()}")

    def _scope(self, metadata: ProviderMetadata) -> str:
        wanted = ["openid", *(scope for scope in self.config.scopes if scope != "openid")]
        # Some providers refuse a sign-in that asks for a scope they do not know.
        return " ".join(scope for scope in wanted if metadata.scopes is None or scope in metadata.scopes)

    async def _discover(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            document = await self._connection.get(self.config.issuer.rstrip("/") + DISCOVERY_PATH)
            self._metadata = parse_metadata(document, self.config.issuer)
            self._read_at = loop.time()
        except ProviderResponseError as error:
            self._failed_at, self._failure = loop.time(), str(error)
            log.warning("identity provider discovery failed", issuer=self.config.issuer, reason=str(error))


def parse_metadata(document: Mapping[str, Any], issuer: str) -> ProviderMetadata:
    """The endpoints in a discovery document; raises `ProviderResponseError` unless it is that of this issuer."""
    if document.get("issuer") != issuer:
        found = _short(document.get("issuer"))
        raise ProviderResponseError(f"calls itself {found or 'nothing'}; set OIDC_ISSUER to exactly that text")
    methods = document.get("token_endpoint_auth_methods_supported")
    scopes = document.get("scopes_supported")
    return ProviderMetadata(
        authorization=_required_url(document, "authorization_endpoint"),
        token=_required_url(document, "token_endpoint"),
        jwks=_required_url(document, "jwks_uri"),
        userinfo=_url(document, "userinfo_endpoint"),
        end_session=_url(document, "end_session_endpoint"),
        revocation=_url(document, "revocation_endpoint"),
        device_authorization=_url(document, "device_authorization_endpoint"),
        scopes=frozenset(each for each in scopes if isinstance(each, str)) if isinstance(scopes, list) else None,
        secret_in_body=isinstance(methods, list)
        and "client_secret_basic" not in methods
        and "client_secret_post" in methods,
    )


def _required_url(document: Mapping[str, Any], name: str) -> str:
    url = _url(document, name)
    if url is None:
        raise ProviderResponseError(f"publishes no valid {name}")
    return url


def _url(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    valid = isinstance(value, str) and len(value) <= _MAX_URL and _ALLOWED_URL.fullmatch(value) is not None
    return value if valid else None


def _with_query(url: str, fields: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(fields)}"


def _token_set(body: Mapping[str, Any]) -> TokenSet:
    seconds = body.get("expires_in")
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= _MAX_LIFETIME
    return TokenSet(
        id_token=_token(body, "id_token"),
        access_token=_token(body, "access_token"),
        access_expires_at=clock.now() + timedelta(seconds=float(seconds)) if known and seconds is not None else None,
        refresh_token=_token(body, "refresh_token"),
    )


def _token(body: Mapping[str, Any], name: str) -> Secret | None:
    value = body.get(name)
    return Secret(value) if isinstance(value, str) and 0 < len(value) <= _MAX_TOKEN else None


def _short(value: object) -> str:
    """Text of the provider for a message: one printable line."""
    return single_line(value, _MAX_SHOWN) if isinstance(value, str) else ""
