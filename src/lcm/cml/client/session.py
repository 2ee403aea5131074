"""What calls to CML servers cost and how they end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from lcm.cml.client.json_values import MalformedResponseError
from lcm.cml.client.tokens import TokenCache
from lcm.cml.client.transport import MAX_RESPONSE_BYTES, MAX_SMALL_RESPONSE_BYTES
from lcm.cml.errors import CMLAuthenticationError, CMLError, CMLProtocolError, CMLUnauthorizedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lcm.cml.client.responses import CMLResponse
    from lcm.cml.client.transport import CMLTransport
    from lcm.cml.types import Credentials

    _SendRequest = Callable[[str | None], Awaitable[CMLResponse]]


_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 90.0)


class CMLCallMetrics:
    """The families of one registry, shared by all clients that use it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = Counter(
            "lcm_cml_calls_total", "Calls to CML by operation and outcome", ["operation", "outcome"], registry=registry
        )
        self.seconds = Histogram(
            "lcm_cml_call_seconds", "Duration of a call to CML", ["operation"], buckets=_BUCKETS, registry=registry
        )


_metrics_by_registry: WeakKeyDictionary[CollectorRegistry, CMLCallMetrics] = WeakKeyDictionary()


def cml_call_metrics(registry: CollectorRegistry = REGISTRY) -> CMLCallMetrics:
    """The families of a registry, made on first use."""
    if registry not in _metrics_by_registry:
        _metrics_by_registry[registry] = CMLCallMetrics(registry)
    return _metrics_by_registry[registry]


R = TypeVar("R")
API_PREFIX = "/api/v0"


class CMLSession:
    """What the system client and the labs client share: the network, the tokens and the metrics."""

    def __init__(self, transport: CMLTransport, *, registry: CollectorRegistry = REGISTRY) -> None:
        self._transport = transport
        self._metrics = cml_call_metrics(registry)
        self._tokens = TokenCache(self._log_in)

    async def call(
        self,
        operation: str,
        address: str,
        credentials: Credentials | None,
        method: str,
        path: str,
        *,
        read: Callable[[CMLResponse], R],
        query: Mapping[str, str] | None = None,
        json: Any = None,
        text: str | None = None,
        seconds: float | None = None,
        largest: int = MAX_RESPONSE_BYTES,
    ) -> R:
        """Make a call and read its reply; whatever goes wrong is one of `lcm.cml.errors`."""

        async def exchange(token: str | None) -> CMLResponse:
            return await self._transport.exchange(
                address,
                method,
                API_PREFIX + path,
                query=query,
                json=json,
                text=text,
                token=token,
                seconds=seconds,
                largest=largest,
            )

        began = asyncio.get_running_loop().time()
        outcome = "aborted"
        try:
            reply = await (exchange(None) if credentials is None else self._as_user(address, credentials, exchange))
            result = read(reply)
            outcome = "ok"
            return result
        except MalformedResponseError as error:
            outcome = CMLProtocolError.outcome
            raise CMLProtocolError(address, f"{operation}: {error}") from None
        except CMLError as error:
            outcome = error.outcome
            raise
        finally:
            self._metrics.calls.labels(operation, outcome).inc()
            self._metrics.seconds.labels(operation).observe(asyncio.get_running_loop().time() - began)

    def forget(self, address: str) -> None:
        """Drop the tokens of an address, and connections that only it used."""
        self._tokens.forget(address)
        self._transport.forget(address)

    async def _as_user(self, address: str, credentials: Credentials, exchange: _SendRequest) -> CMLResponse:
        token = await self._tokens.get(address, credentials)
        try:
            return await exchange(token)
        except CMLUnauthorizedError:
            self._tokens.refuse(address, credentials, token)
        # The request was refused before anything came of it, so even one that changes things may be sent again.
        token = await self._tokens.get(address, credentials)
        return await exchange(token)

    async def _log_in(self, address: str, credentials: Credentials) -> str:
        account = {"username": credentials.username, "password": credentials.password}

        def read(reply: CMLResponse) -> str:
            if not isinstance(reply.content, str):
                raise MalformedResponseError("the answer to a login is no token")
            return reply.content

        try:
            return await self.call(
                "authenticate",
                address,
                None,
                "POST",
                "/authenticate",
                read=read,
                json=account,
                largest=MAX_SMALL_RESPONSE_BYTES,
            )
        except CMLAuthenticationError:
            raise CMLAuthenticationError(
                address, f"user name or password of {credentials.username!r} refused"
            ) from None
