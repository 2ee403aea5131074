"""The signing keys of an identity provider, from its JWKS URL.

Only public keys of asymmetric algorithms are accepted. Each is valid only for the algorithms of its type, so a token
cannot choose how its signature is verified.

Keys are fetched again when a token names an unknown key, at most once in `MIN_REFRESH_INTERVAL` seconds: forged key ids
cannot make us flood the provider. They are also refreshed as they age. While the provider is unreachable, known keys
stay valid.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from lcm.http.transport import HttpRequest, HttpTransportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.http.transport import HttpResponse, HttpTransport

log = structlog.get_logger(__name__)

MIN_REFRESH_INTERVAL = 30.0
MIN_FIRST_REFRESH_INTERVAL = 5.0  # while there is no key at all, no one can sign in
BACKGROUND_REFRESH_AGE = 600.0  # in the background
BLOCKING_REFRESH_AGE = 3600.0  # a token waits for this refresh, or a key withdrawn long ago would be accepted
TIMEOUT = 5.0
MAX_BYTES = 256 * 1024
MAX_KEYS = 100
_MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK = 200
_RSA_BITS = range(2048, 8193)

RSA_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
EC_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ASYMMETRIC_ALGORITHMS = RSA_ALGORITHMS | set(EC_ALGORITHMS.values()) | {"EdDSA"}


class JwksError(Exception):
    """The keys could not be read; the message says why."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key, and the algorithms it may be used with."""

    kid: str | None
    algorithms: frozenset[str]
    key: Any


class JwksCache:
    """The keys of one URL. The caller owns the HTTP transport and closes it."""

    def __init__(self, url: str, http: HttpTransport) -> None:
        self._url = url
        self._http = http
        self._keys: Sequence[VerifyingKey] = ()
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._refresh_task: asyncio.Task[None] | None = None

    @property
    def has_keys(self) -> bool:
        """Whether keys were read at least once."""
        return self._read_at is not None

    async def candidates(self, kid: str | None, algorithm: str, *, refresh: bool = False) -> Sequence[VerifyingKey]:
        """The keys that a token may be signed with; fetched again if none is known, or if `refresh` is set."""
        age = self._age()
        if age > BLOCKING_REFRESH_AGE:
            await self._refresh_keys()
        elif age > BACKGROUND_REFRESH_AGE:
            self._start_refresh()
        matches = self._matching(kid, algorithm)
        if refresh or not matches:
            await self._refresh_keys()
            matches = self._matching(kid, algorithm)
        return matches

    async def close(self) -> None:
        """Cancel a refresh that is in progress."""
        if self._refresh_task is not None:
            self._refresh_task.cancel()
            await asyncio.wait({self._refresh_task})

    def _matching(self, kid: str | None, algorithm: str) -> Sequence[VerifyingKey]:
        return [key for key in self._keys if algorithm in key.algorithms and kid in (None, key.kid)]

    def _age(self) -> float:
        return 0.0 if self._read_at is None else asyncio.get_running_loop().time() - self._read_at

    async def _refresh_keys(self) -> None:
        self._start_refresh()
        if self._refresh_task is not None:
            # The task itself is not awaited: one cancelled request must not cancel the refresh for all.
            await asyncio.wait({self._refresh_task})

    def _start_refresh(self) -> None:
        """Start a refresh unless one is in progress or was made recently."""
        now = asyncio.get_running_loop().time()
        pause = MIN_REFRESH_INTERVAL if self.has_keys else MIN_FIRST_REFRESH_INTERVAL
        if self._refresh_task is not None or (self._tried_at is not None and now - self._tried_at < pause):
            return
        self._tried_at = now
        self._refresh_task = asyncio.get_running_loop().create_task(self._fetch_keys())

    async def _fetch_keys(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT):
                keys = parse_jwks(await self._fetch(self._url))
        except (JwksError, HttpTransportError, OSError) as error:
            reason = str(error) or f"no response within {TIMEOUT:g} s"
            log.warning("identity provider keys could not be read", host=urlsplit(self._url).hostname, reason=reason)
        else:
            self._keys = keys
            self._read_at = asyncio.get_running_loop().time()
        finally:
            self._refresh_task = None

    async def _fetch(self, url: str) -> bytes:
        for _ in range(_MAX_REDIRECTS + 1):
            # Uncompressed: a small compressed response could expand to any size.
            headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "lcm"}
            request = HttpRequest("GET", url, headers, connect_seconds=TIMEOUT, read_seconds=TIMEOUT, keep=False)
            response = await self._http.send(request)
            try:
                target = response.header("location")
                if response.status not in _REDIRECTS or target is None:
                    return await _read_body(response)
                url = _checked_redirect(url, target)
            finally:
                await response.aclose()
        raise JwksError(f"more than {_MAX_REDIRECTS} redirects")


def _checked_redirect(url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
        here, there = urlsplit(url), urlsplit(target)
        same = (there.scheme, there.hostname, there.port) == (here.scheme, here.hostname, here.port)
    except ValueError:
        raise JwksError("redirects to an invalid URL") from None
    if not same:
        # A redirect must not decide whose keys we trust.
        raise JwksError(f"redirects to another host, {there.hostname}; set OIDC_JWKS_URL to the URL of the keys")
    return target


async def _read_body(response: HttpResponse) -> bytes:
    if response.status != _OK:
        raise JwksError(f"responded with status {response.status}")
    if (response.header("content-encoding") or "identity") != "identity":
        raise JwksError("sent a compressed response that was not requested")
    body = bytearray()
    async for chunk in response.chunks():
        body += chunk
        if len(body) > MAX_BYTES:
            raise JwksError(f"responded with more than {MAX_BYTES} bytes")
    return bytes(body)


def parse_jwks(body: bytes) -> Sequence[VerifyingKey]:
    """The usable keys of a JWKS document; raises `JwksError` if there is none."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise JwksError("did not respond with valid JSON") from error
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise JwksError("did not respond with a list of keys")
    if len(entries) > MAX_KEYS:
        raise JwksError(f"responded with more than {MAX_KEYS} keys")
    keys = [key for entry in entries if isinstance(entry, dict) and (key := _verifying_key(entry)) is not None]
    if not keys:
        raise JwksError("did not respond with a key that can verify signatures")
    return keys


def _verifying_key(entry: dict[str, Any]) -> VerifyingKey | None:
    # With a symmetric key (oct), anyone who can verify a token could also create one.
    if entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig":
        return None
    algorithm = entry.get("alg")
    if algorithm is not None and (not isinstance(algorithm, str) or algorithm not in ASYMMETRIC_ALGORITHMS):
        return None
    try:
        key = jwt.PyJWK(entry).key
    except (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError):
        return None
    algorithms = _allowed_algorithms(key) & ({algorithm} if algorithm else ASYMMETRIC_ALGORITHMS)
    kid = entry.get("kid")
    return VerifyingKey(kid if isinstance(kid, str) else None, algorithms, key) if algorithms else None


def _allowed_algorithms(key: object) -> frozenset[str]:
    """Empty for anything but a public key: with a published private key, anyone can sign."""
    if isinstance(key, rsa.RSAPublicKey):
        return RSA_ALGORITHMS if key.key_size in _RSA_BITS else frozenset()
    if isinstance(key, ec.EllipticCurvePublicKey):
        return frozenset({EC_ALGORITHMS[key.curve.name]} if key.curve.name in EC_ALGORITHMS else ())
    return frozenset({"EdDSA"} if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey) else ())
