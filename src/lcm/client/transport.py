"""Exchanges with one control plane: bounded in time, size and number of attempts, and never led elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import httpx

from lcm.client.base import bearer_header
from lcm.client.errors import (
    ApiError,
    ClientError,
    ClientTimeoutError,
    OutcomeUnknownError,
    ProtocolError,
    UnreachableError,
)
from lcm.client.responses import (
    ApiRequest,
    ApiResponse,
    M,
    decode_response,
    is_retryable,
    raise_for_problem,
    rules_out_earlier_attempts,
    unreadable_response,
)
from lcm.core.backoff import Backoff

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    from prometheus_client import CollectorRegistry

# Shorter than servers keep idle connections: a write on one that is just being closed would be lost.
_KEEPALIVE_SECONDS = 3.0
# More at once would only take turns at the processor. Those beyond what is kept would each cost a new connection, and
# the more are kept the longer the pool looks for one at each request.
_MAX_CONCURRENT = 8
_POOL_LIMITS = httpx.Limits(
    max_connections=100, max_keepalive_connections=_MAX_CONCURRENT, keepalive_expiry=_KEEPALIVE_SECONDS
)
_NOT_SENT_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of every call; times in seconds. All attempts together stay below the timeout of a reconcile."""

    connect: float = 3.0
    attempt: float = 10.0
    attempts: int = 3
    max_retry_after: float = 5.0  # a server that asks for more is not waited for
    max_response_bytes: int = 16 * 1024 * 1024
    backoff: Backoff = field(default_factory=lambda: Backoff(0.2, longest=2.0))

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.connect, self.attempt) <= 0:
            raise ValueError("limits of the client: at least one attempt, and times above 0")


class Transport:
    """Sends calls to one control plane over one pool of connections. `wire` replaces the network.

    Calls are counted in `registry`, or in the one of the process; not at all where nobody would read it.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        limits: Limits | None = None,
        wire: httpx.AsyncBaseTransport | None = None,
        verify: ssl.SSLContext | bool = True,
        registry: CollectorRegistry | None = None,
        counted: bool = True,
    ) -> None:
        self.limits = limits or Limits()
        self._base = _checked_url(url)
        self._authorization = {} if token is None else bearer_header(token)
        self._measured = _measure_in(registry) if counted else _no_measure
        # Without a client around it, which would look for cookies, redirects and proxies that there must not be.
        self._wire = wire or httpx.AsyncHTTPTransport(verify=verify, limits=_POOL_LIMITS, trust_env=False)
        self._turns = asyncio.Semaphore(_MAX_CONCURRENT)
        self._closed = False

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        await self._wire.aclose()

    async def ask(self, call: ApiRequest, answer: type[M]) -> M:
        """The answer to a call, tried again where that is safe and may help."""
        with self._measured(call.operation):
            return decode_response(call, await self._send_with_retries(call), answer)

    async def read(self, call: ApiRequest) -> bytes:
        """The answer as it came, for what is not data of the contract."""
        with self._measured(call.operation):
            return (await self._send_with_retries(call)).body

    @asynccontextmanager
    async def listen(self, call: ApiRequest, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of an answer without end. It is lost when nothing came for `silence` seconds."""
        request = self._request(call, accept="text/event-stream", timeout=silence)
        with self._measured(call.operation):
            response = await self._opened(call, request)
        try:
            yield self._chunks(call, response, silence)
        finally:
            await response.aclose()

    async def _send_with_retries(self, call: ApiRequest) -> ApiResponse:
        doubt: OutcomeUnknownError | None = None
        attempt = 0
        while True:
            try:
                return raise_for_problem(call, await self._exchange(call))
            except ClientError as error:
                doubt = error if isinstance(error, OutcomeUnknownError) else doubt
                pause = self._pause(call, error, attempt)
                if pause is None and doubt is not None and doubt is not error and not rules_out_earlier_attempts(error):
                    raise doubt from error  # what was not heard now may have been heard before
                if pause is None:
                    raise
                _log_retry(call, error)
            await asyncio.sleep(pause)
            attempt += 1

    def _pause(self, call: ApiRequest, error: ClientError, attempt: int) -> float | None:
        """How long to wait before the next attempt; None: there is none, or no point in one."""
        if not call.repeatable or attempt + 1 >= self.limits.attempts or not is_retryable(error):
            return None
        told = error.told if isinstance(error, OutcomeUnknownError) else error
        asked = told.retry_after if isinstance(told, ApiError) else None
        if asked is not None and asked > self.limits.max_retry_after:
            return None
        return max(asked or 0.0, self.limits.backoff.delay(attempt))

    async def _exchange(self, call: ApiRequest) -> ApiResponse:
        limit = self.limits.attempt
        try:
            async with self._turns, asyncio.timeout(limit):
                response = await self._send(self._request(call))
                try:
                    return await self._whole(call, response)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.HTTPError) as error:
            raise self._lost(call, error) from error

    async def _opened(self, call: ApiRequest, request: httpx.Request) -> httpx.Response:
        try:
            async with asyncio.timeout(self.limits.attempt):
                response = await self._send(request)
                kind = response.headers.get("content-type", "")
                if response.status_code == 200 and kind.startswith("text/event-stream"):
                    return response
                try:
                    raise_for_problem(call, await self._whole(call, response))
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.HTTPError) as error:
            raise self._lost(call, error) from error
        raise ProtocolError(f"{call.operation}: {self._base} answered with {kind or 'nothing'}, not with events")

    async def _whole(self, call: ApiRequest, response: httpx.Response) -> ApiResponse:
        largest = self.limits.max_response_bytes
        headers = {name.lower(): value.decode("latin-1") for name, value in response.headers.raw}
        if headers.get(b"content-encoding", "identity") != "identity":
            raise unreadable_response(call, f"{call.operation}: the answer is packed, which was not asked for")
        body = bytearray()
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for chunk in response.stream:  # as it came: nothing is packed
            body += chunk
            if len(body) > largest:
                raise unreadable_response(call, f"{call.operation}: the answer is longer than {largest} bytes")
        return ApiResponse(
            response.status_code,
            headers.get(b"content-type", ""),
            bytes(body),
            _retry_after_seconds(headers.get(b"retry-after")),
        )

    async def _chunks(self, call: ApiRequest, response: httpx.Response, silence: float) -> AsyncIterator[bytes]:
        chunks = response.aiter_bytes()
        while True:
            try:
                async with asyncio.timeout(silence):
                    chunk = await anext(chunks, None)
            except (TimeoutError, httpx.HTTPError) as error:
                raise self._lost(call, error) from error
            if chunk is None:
                return
            yield chunk

    def _request(
        self,
        call: ApiRequest,
        *,
        accept: str = "application/json, application/problem+json",
        timeout: float | None = None,
    ) -> httpx.Request:
        headers = {
            **self._authorization,
            **call.headers,
            "Accept": accept,
            "Accept-Encoding": "identity",
            "User-Agent": "lcm",
        }
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        if call.idempotency_key is not None:
            headers["Idempotency-Key"] = call.idempotency_key
        limits = self.limits
        times = {
            "connect": limits.connect,
            "pool": limits.connect,
            "read": limits.attempt if timeout is None else timeout,
            "write": limits.attempt,
        }
        query = tuple((name, value) for name, values in call.query.items() for value in values)
        return httpx.Request(
            call.method,
            _cached_url(self._base + call.path, query),
            content=call.body,
            headers=headers,
            extensions={"timeout": times},
        )

    async def _send(self, request: httpx.Request) -> httpx.Response:
        if self._closed:
            raise RuntimeError("this client is closed")
        return await self._wire.handle_async_request(request)

    def _lost(self, call: ApiRequest, error: Exception) -> ClientError:
        """What it means that no whole answer came."""
        where = f"{call.operation}: {self._base}"
        if isinstance(error, _NOT_SENT_ERRORS):
            return UnreachableError(f"{where} cannot be reached: {_error_text(error)}")
        late = isinstance(error, TimeoutError | httpx.TimeoutException)
        words = f"{where} gave no whole answer " + ("in time" if late else f"({_error_text(error)})")
        if call.reads:
            return ClientTimeoutError(words) if late else UnreachableError(words)
        return OutcomeUnknownError(f"{words}; it may have happened", idempotency_key=call.idempotency_key)


@lru_cache(maxsize=1024)
def _cached_url(url: str, query: tuple[tuple[str, str], ...]) -> httpx.URL:
    """To parse and check an address takes longer than to send a small request: those asked for often are kept."""
    return httpx.URL(url, params=query) if query else httpx.URL(url)


def _measure_in(registry: CollectorRegistry | None) -> Callable[[str], AbstractContextManager[None]]:
    from prometheus_client import REGISTRY

    from lcm.client.metrics import client_metrics

    return client_metrics(registry or REGISTRY).measured


def _no_measure(_: str) -> AbstractContextManager[None]:
    return nullcontext()


def _log_retry(call: ApiRequest, error: ClientError) -> None:
    import structlog  # here, as a command that is answered at once should not wait for it

    log = structlog.get_logger(__name__)
    log.info("asking the control plane again", operation=call.operation, error=str(error))


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _checked_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"the address of the control plane is no URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("the address of the control plane must begin with http:// or https:// and name a host")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise ValueError("the address of the control plane must have no user, question mark or hash sign")
    return str(parsed).rstrip("/")


def _retry_after_seconds(retry_after: str | None) -> float | None:
    """Seconds of a Retry-After; our servers send no dates."""
    return float(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else None
