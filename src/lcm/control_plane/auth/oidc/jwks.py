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

import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from lcm.control_plane.auth.oidc.fetch import ProviderResponseError, fetch_document
from lcm.http.transport import HttpTransportError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lcm.control_plane.auth.oidc.fetch import ProviderConnection

log = structlog.get_logger(__name__)

MIN_REFRESH_INTERVAL = 30.0
MIN_FIRST_REFRESH_INTERVAL = 5.0  # while there is no key at all, no one can sign in
BACKGROUND_REFRESH_AGE = 600.0  # in the background
BLOCKING_REFRESH_AGE = 3600.0  # a token waits for this refresh, or a key withdrawn long ago would be accepted
TIMEOUT = 5.0
MAX_KEYS = 100
_RSA_BITS = range(2048, 8193)

RSA_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
EC_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ASYMMETRIC_ALGORITHMS = RSA_ALGORITHMS | set(EC_ALGORITHMS.values()) | {"EdDSA"}


class JwksError(ProviderResponseError):
    """The keys could not be read; the message says why."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key, and the algorithms it may be used with."""

    kid: str | None
    algorithms: frozenset[str]
    key: Any


class JwksCache:
    """The keys of one provider. `find_url` is asked for their URL before each fetch; discovery may change it."""

    def __init__(self, find_url: Callable[[], Awaitable[str]], connection: ProviderConnection) -> None:
        self._find_url = find_url
        self._connection = connection
        self._keys: Sequence[VerifyingKey] = ()
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._refresh_task: asyncio.Task[None] | None = None

    @property
    def has_keys(self) -> bool:
        """Whether keys were read at least once."""
        return self._read_at is not None

    async def candidates(
        self, kid: str | None, algorithm: str, *, refresh: bool = False, from_provider: bool = False
    ) -> Sequence[VerifyingKey]:
        """The keys that a token may be signed with; fetched again if none is known, or if `refresh` is set.

        A token that came from the provider itself (`from_provider`) cannot be forged to cause fetches: the first
        sign-in after the provider has changed its keys works at once.
        """
        age = self._age()
        if age > BLOCKING_REFRESH_AGE:
            await self._refresh_keys()
        elif age > BACKGROUND_REFRESH_AGE:
            self._start_refresh()
        matches = self._matching(kid, algorithm)
        if refresh or not matches:
            await self._refresh_keys(at_once=from_provider)
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

    async def _refresh_keys(self, *, at_once: bool = False) -> None:
        self._start_refresh(at_once=at_once)
        if self._refresh_task is not None:
            # The task itself is not awaited: one cancelled request must not cancel the refresh for all.
            await asyncio.wait({self._refresh_task})

    def _start_refresh(self, *, at_once: bool = False) -> None:
        """Start a refresh unless one is in progress or, except `at_once`, was made recently."""
        now = asyncio.get_running_loop().time()
        pause = MIN_REFRESH_INTERVAL if self.has_keys else MIN_FIRST_REFRESH_INTERVAL
        pause = 0.0 if at_once else pause
        if self._refresh_task is not None or (self._tried_at is not None and now - self._tried_at < pause):
            return
        self._tried_at = now
        self._refresh_task = asyncio.get_running_loop().create_task(self._fetch_keys())

    async def _fetch_keys(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT):
                keys = parse_jwks(await fetch_document(self._connection, await self._find_url()))
        except (ProviderResponseError, HttpTransportError, OSError) as error:
            reason = str(error) or f"no response within {TIMEOUT:g} s"
            log.warning("identity provider keys could not be read", reason=reason)
        else:
            self._keys = keys
            self._read_at = asyncio.get_running_loop().time()
        finally:
            self._refresh_task = None


def fixed_url(url: str) -> Callable[[], Awaitable[str]]:
    """For a provider whose keys are at a configured URL."""

    async def find_url() -> str:
        return url

    return find_url


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
