"""Authenticated calls to CML: each has a token, is measured, and is repeated once if the session had expired."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from lcm.cml.client.responses import MalformedResponseError, as_object, optional_number, parse_json
from lcm.cml.client.transport import MAX_RESPONSE_BYTES, MAX_SMALL_RESPONSE_BYTES
from lcm.cml.errors import CMLAuthenticationError, CMLError, CMLProtocolError, CMLUnauthorizedError
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lcm.cml.client.bodies import BodyBuffer
    from lcm.cml.client.responses import CMLResponse
    from lcm.cml.client.transport import CMLTransport
    from lcm.cml.types import Credentials

    _SendRequest = Callable[[str | None], Awaitable[CMLResponse]]


_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 90.0)


R = TypeVar("R")
API_PREFIX = "/api/v0"


EXPIRY_MARGIN = timedelta(minutes=1)
DEFAULT_TOKEN_LIFETIME = timedelta(hours=1)
MAX_TOKEN_LIFETIME = timedelta(days=1)
REJECTION_CACHE_TIME = timedelta(minutes=1)

_TOKEN_PATTERN = re.compile(r"[A-Za-z0-9._~+/=-]{1,4096}")


@dataclass(frozen=True, slots=True)
class _CachedToken:
    text: str
    until: datetime


@dataclass(frozen=True, slots=True)
class _CachedRejection:
    cause: str
    until: datetime


class TokenCache:
    """Tokens by server and account. The password is part of the key, so a changed password is tried at once."""

    def __init__(self, log_in: Callable[[str, Credentials], Awaitable[str]]) -> None:
        self._log_in = log_in
        self._cached: dict[tuple[str, Credentials], _CachedToken | _CachedRejection] = {}
        self._logins: dict[tuple[str, Credentials], asyncio.Task[str]] = {}

    async def get(self, address: str, credentials: Credentials) -> str:
        """A token that is valid for a while; logs in if there is none. A rejected login is not retried for a minute."""
        key = (address, credentials)
        cached = self._cached.get(key)
        if cached is not None and clock.now() < cached.until:
            if isinstance(cached, _CachedRejection):
                raise CMLAuthenticationError(address, cached.cause)
            return cached.text
        task = self._logins.get(key)
        if task is None:
            task = asyncio.create_task(self._log_in_once(key), name=f"cml-login:{address}")
            self._logins[key] = task
            task.add_done_callback(lambda ended: self._login_done(key, ended))
        # A caller that stops waiting must not cancel the login for the others.
        return await asyncio.shield(task)

    def reject(self, address: str, credentials: Credentials, token: str) -> None:
        """Drop a token that the server rejected. A newer one that was fetched in the meantime stays."""
        cached = self._cached.get((address, credentials))
        if isinstance(cached, _CachedToken) and cached.text == token:
            del self._cached[(address, credentials)]

    def forget(self, address: str) -> None:
        """Drop all tokens of a server, including those being requested now."""
        for key in [key for key in self._cached if key[0] == address]:
            del self._cached[key]
        for key in [key for key in self._logins if key[0] == address]:
            del self._logins[key]

    async def _log_in_once(self, key: tuple[str, Credentials]) -> str:
        address, credentials = key
        current = asyncio.current_task()
        try:
            token = await self._log_in(address, credentials)
        except CMLAuthenticationError as error:
            if self._logins.get(key) is current:
                self._cached[key] = _CachedRejection(error.cause, clock.now() + REJECTION_CACHE_TIME)
            raise
        if not _TOKEN_PATTERN.fullmatch(token):
            raise CMLProtocolError(address, "the session token contains invalid characters")
        if self._logins.get(key) is current:
            self._cached[key] = _CachedToken(token, clock.now() + token_lifetime(token))
        return token

    def _login_done(self, key: tuple[str, Credentials], task: asyncio.Task[str]) -> None:
        if self._logins.get(key) is task:
            del self._logins[key]
        if not task.cancelled():
            task.exception()  # retrieve it: all waiting callers may have given up


def token_lifetime(token: str) -> timedelta:
    """How long a token may be used: the lifetime in its claims, less a margin.

    The lifetime is the difference of two times of the server's clock, so clock skew does not matter.
    The signature is not checked: we only send the token and grant nothing by it.
    """
    claims = _token_claims(token)
    until, since = optional_number(claims, "exp"), optional_number(claims, "iat")
    if until is None:
        return DEFAULT_TOKEN_LIFETIME
    began = clock.now().timestamp() if since is None else since
    life = timedelta(seconds=min(max(until - began, 0.0), MAX_TOKEN_LIFETIME.total_seconds()))
    return max(life - EXPIRY_MARGIN, life / 2)


def _token_claims(token: str) -> dict[str, object]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        return as_object(parse_json(base64.urlsafe_b64decode(padded)), "claims")
    except (binascii.Error, ValueError, MalformedResponseError):
        return {}


class CMLCallMetrics:
    """The metrics of one registry, shared by all clients that use it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = Counter(
            "lcm_cml_calls_total", "Calls to CML by operation and outcome", ["operation", "outcome"], registry=registry
        )
        self.seconds = Histogram(
            "lcm_cml_call_seconds", "Duration of a call to CML", ["operation"], buckets=_BUCKETS, registry=registry
        )

    def record(self, operation: str, outcome: str, seconds: float) -> None:
        """A call has ended."""
        self.calls.labels(operation, outcome).inc()
        self.seconds.labels(operation).observe(seconds)


class CallRecorder(Protocol):
    """Receives every call when it has ended."""

    def record(self, operation: str, outcome: str, seconds: float) -> None:
        """A call has ended."""


_metrics_by_registry: WeakKeyDictionary[CollectorRegistry, CMLCallMetrics] = WeakKeyDictionary()


def cml_call_metrics(registry: CollectorRegistry = REGISTRY) -> CMLCallMetrics:
    """The metrics of a registry, created on first use."""
    if registry not in _metrics_by_registry:
        _metrics_by_registry[registry] = CMLCallMetrics(registry)
    return _metrics_by_registry[registry]


class CMLSession:
    """What the system client and the labs client share: transport, tokens and metrics."""

    def __init__(
        self, transport: CMLTransport, *, registry: CollectorRegistry = REGISTRY, metrics: CallRecorder | None = None
    ) -> None:
        self._transport = transport
        self._metrics = cml_call_metrics(registry) if metrics is None else metrics
        self._tokens = TokenCache(self._log_in)

    async def call(
        self,
        operation: str,
        address: str,
        credentials: Credentials | None,
        method: str,
        path: str,
        *,
        read: Callable[[CMLResponse], R | Awaitable[R]],
        query: Mapping[str, str] | None = None,
        json: Any = None,
        text: str | None = None,
        timeout: float | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
        make_buffer: Callable[[], BodyBuffer] | None = None,
    ) -> R:
        """Make a call and parse its response; every failure is one of `lcm.cml.errors`.

        Everything but a GET and the login itself is a mutating call: it raises `NotAuthorizedError` if it may not be
        sent any more.
        With `make_buffer` the content of the response is such a buffer, and `read` decodes it.
        """

        async def exchange(token: str | None) -> CMLResponse:
            return await self._transport.exchange(
                address,
                method,
                API_PREFIX + path,
                query=query,
                json=json,
                text=text,
                token=token,
                timeout=timeout,
                max_bytes=max_bytes,
                mutating=method != "GET" and credentials is not None,
                make_buffer=make_buffer,
            )

        began = asyncio.get_running_loop().time()
        outcome = "aborted"
        try:
            response = await (exchange(None) if credentials is None else self._as_user(address, credentials, exchange))
            parsed = read(response)
            result = await parsed if isinstance(parsed, Awaitable) else parsed
            outcome = "ok"
            return result
        except MalformedResponseError as error:
            outcome = CMLProtocolError.outcome
            raise CMLProtocolError(address, f"{operation}: {error}") from None
        except CMLError as error:
            outcome = error.outcome
            raise
        except NotAuthorizedError:
            outcome = "not_sent"
            raise
        finally:
            self._metrics.record(operation, outcome, asyncio.get_running_loop().time() - began)

    def trust(self, address: str, certificate: str) -> None:
        """Accept only the certificate with this SHA-256 fingerprint at an address, where certificates are pinned."""
        self._transport.trust(address, certificate)

    def forget(self, address: str) -> None:
        """Drop the tokens and the pin of an address, and the connections that only it used."""
        self._tokens.forget(address)
        self._transport.forget(address)

    async def _as_user(self, address: str, credentials: Credentials, exchange: _SendRequest) -> CMLResponse:
        token = await self._tokens.get(address, credentials)
        try:
            return await exchange(token)
        except CMLUnauthorizedError:
            self._tokens.reject(address, credentials, token)
        # The request was rejected before it had any effect, so even a mutating one may be sent again.
        token = await self._tokens.get(address, credentials)
        return await exchange(token)

    async def _log_in(self, address: str, credentials: Credentials) -> str:
        account = {"username": credentials.username, "password": credentials.password}

        def read(response: CMLResponse) -> str:
            if not isinstance(response.content, str):
                raise MalformedResponseError("the response to the login is not a token")
            return response.content

        try:
            return await self.call(
                "authenticate",
                address,
                None,
                "POST",
                "/authenticate",
                read=read,
                json=account,
                max_bytes=MAX_SMALL_RESPONSE_BYTES,
            )
        except CMLAuthenticationError:
            raise CMLAuthenticationError(
                address, f"user name or password of {credentials.username!r} rejected"
            ) from None
