"""HTTP calls to one control plane: bounded in time, size and number of attempts, and without redirects."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from lcm.client.base import bearer_header
from lcm.client.errors import (
    ApiError,
    ClientError,
    ClientTimeoutError,
    InvalidAddressError,
    OutcomeUnknownError,
    ProtocolError,
    UnreachableError,
    UntrustedCertificateError,
)
from lcm.client.responses import (
    ApiRequest,
    ApiResponse,
    M,
    decode_body,
    is_retryable,
    raise_for_problem,
    rules_out_earlier_attempts,
    unreadable_response,
)
from lcm.core import clock
from lcm.core.backoff import Backoff
from lcm.http.network import NetworkTransport
from lcm.http.transport import ConnectionFailedError, HttpRequest, HttpTransportError, ResponseTimeoutError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    from prometheus_client import CollectorRegistry

    from lcm.http.transport import HttpResponse, HttpTransport

# Shorter than the servers' keep-alive: a write on a connection that is just being closed would be lost.
_KEEPALIVE_SECONDS = 3.0
# More would only share the CPU.
_MAX_CONCURRENT = 8
_MAX_CLOCK_DELAY = 5.0  # a slower response says little about the clock of its sender


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of every call; times in seconds. All attempts together stay below the timeout of a reconcile."""

    connect: float = 3.0
    attempt: float = 10.0
    attempts: int = 3
    max_retry_after: float = 5.0  # a longer Retry-After is not waited for
    max_response_bytes: int = 16 * 1024 * 1024
    backoff: Backoff = field(default_factory=lambda: Backoff(0.2, max_delay=2.0))

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.connect, self.attempt) <= 0:
            raise ValueError("limits of the client: at least one attempt, and times above 0")


class Transport:
    """Sends calls to one control plane over kept connections. `wire` replaces the network.

    `tls` verifies the server of an https address; without it, the system's CAs do.
    Calls are counted in `registry`, by default that of the process; `with_metrics=False` disables counting.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        limits: Limits | None = None,
        wire: HttpTransport | None = None,
        tls: ssl.SSLContext | None = None,
        registry: CollectorRegistry | None = None,
        with_metrics: bool = True,
    ) -> None:
        self.limits = limits or Limits()
        self._base = _checked_url(url)
        self._authorization = {} if token is None else bearer_header(token)
        self._measured = _measure_in(registry) if with_metrics else _no_measure
        self._wire = wire or NetworkTransport(idle_seconds=_KEEPALIVE_SECONDS, max_idle=_MAX_CONCURRENT)
        self._tls = tls
        self._turns = asyncio.Semaphore(_MAX_CONCURRENT)
        self._closed = False

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        await self._wire.aclose()

    async def send(self, call: ApiRequest, model: type[M]) -> M:
        """The data of the response; the call is retried where that is safe and may help."""
        with self._measured(call.operation):
            return decode_body(call, (await self._send_with_retries(call)).body, model)

    async def send_raw(self, call: ApiRequest) -> bytes:
        """The raw body of the response."""
        with self._measured(call.operation):
            return (await self._send_with_retries(call)).body

    @asynccontextmanager
    async def stream(self, call: ApiRequest, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The chunks of an endless response. It counts as lost after `silence` seconds without data."""
        request = self._request(call, accept="text/event-stream", timeout=silence)
        with self._measured(call.operation):
            response = await self._open_stream(call, request)
        try:
            yield self._chunks(call, response, silence)
        finally:
            await response.aclose()

    async def _send_with_retries(self, call: ApiRequest) -> ApiResponse:
        unknown: OutcomeUnknownError | None = None
        attempt = 0
        while True:
            try:
                return raise_for_problem(call, await self._exchange(call))
            except ClientError as error:
                unknown = error if isinstance(error, OutcomeUnknownError) else unknown
                pause = self._pause(call, error, attempt)
                if (
                    pause is None
                    and unknown is not None
                    and unknown is not error
                    and not rules_out_earlier_attempts(error)
                ):
                    raise unknown from error  # an earlier attempt may have been executed
                if pause is None:
                    raise
                _log_retry(call, error)
            await asyncio.sleep(pause)
            attempt += 1

    def _pause(self, call: ApiRequest, error: ClientError, attempt: int) -> float | None:
        """How long to wait before the next attempt; None: do not retry."""
        if not call.is_idempotent or attempt + 1 >= self.limits.attempts or not is_retryable(error):
            return None
        cause = error.server_error if isinstance(error, OutcomeUnknownError) else error
        retry_after = cause.retry_after if isinstance(cause, ApiError) else None
        if retry_after is not None and retry_after > self.limits.max_retry_after:
            return None
        return max(retry_after or 0.0, self.limits.backoff.delay(attempt))

    async def _exchange(self, call: ApiRequest) -> ApiResponse:
        limit = self.limits.attempt
        try:
            async with self._turns, asyncio.timeout(limit):
                sent_at = clock.boottime()
                response = await self._transmit(self._request(call))
                try:
                    if call.is_internal and clock.boottime() - sent_at < _MAX_CLOCK_DELAY:
                        _compare_clock(response)
                    return await self._read_response(call, response)
                finally:
                    await response.aclose()
        except (TimeoutError, HttpTransportError) as error:
            raise self._to_lost_error(call, error) from error

    async def _open_stream(self, call: ApiRequest, request: HttpRequest) -> HttpResponse:
        try:
            async with asyncio.timeout(self.limits.attempt):
                response = await self._transmit(request)
                kind = response.header("content-type") or ""
                if response.status == 200 and kind.startswith("text/event-stream"):
                    return response
                try:
                    raise_for_problem(call, await self._read_response(call, response))
                finally:
                    await response.aclose()
        except (TimeoutError, HttpTransportError) as error:
            raise self._to_lost_error(call, error) from error
        raise ProtocolError(
            f"{call.operation}: {self._base} returned {kind or 'no content type'} instead of an event stream"
        )

    async def _read_response(self, call: ApiRequest, response: HttpResponse) -> ApiResponse:
        largest = self.limits.max_response_bytes
        if (response.header("content-encoding") or "identity") != "identity":
            raise unreadable_response(call, f"{call.operation}: the response is compressed, which was not requested")
        body = bytearray()
        async for chunk in response.chunks():
            body += chunk
            if len(body) > largest:
                raise unreadable_response(call, f"{call.operation}: the response is larger than {largest} bytes")
        return ApiResponse(
            response.status,
            response.header("content-type") or "",
            bytes(body),
            _retry_after_seconds(response.header("retry-after")),
        )

    async def _chunks(self, call: ApiRequest, response: HttpResponse, silence: float) -> AsyncIterator[bytes]:
        chunks = response.chunks()
        while True:
            try:
                async with asyncio.timeout(silence):
                    chunk = await anext(chunks, None)
            except (TimeoutError, HttpTransportError) as error:
                raise self._to_lost_error(call, error) from error
            if chunk is None:
                return
            yield chunk

    def _request(
        self,
        call: ApiRequest,
        *,
        accept: str = "application/json, application/problem+json",
        timeout: float | None = None,
    ) -> HttpRequest:
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
        query = tuple((name, value) for name, values in call.query.items() for value in values)
        return HttpRequest(
            call.method,
            _cached_url(self._base + call.path, query),
            headers,
            call.body,
            connect_seconds=limits.connect,
            read_seconds=limits.attempt if timeout is None else timeout,
            tls=self._tls,
        )

    async def _transmit(self, request: HttpRequest) -> HttpResponse:
        if self._closed:
            raise RuntimeError("this client is closed")
        return await self._wire.send(request)

    def _to_lost_error(self, call: ApiRequest, error: Exception) -> ClientError:
        """The error for a call without a complete response."""
        where = f"{call.operation}: {self._base}"
        if (certificate := _certificate_error(error)) is not None:
            return UntrustedCertificateError(
                f"the certificate of {self._base} is not accepted: {certificate.verify_message}. If it is of a private"
                " CA, set LCM_CA_FILE to the file of that CA"
            )
        if isinstance(error, ConnectionFailedError):
            return UnreachableError(f"{where} cannot be reached: {_error_text(error)}")
        late = isinstance(error, TimeoutError | ResponseTimeoutError)
        message = f"{where} sent no complete response " + ("in time" if late else f"({_error_text(error)})")
        if call.is_read:
            return ClientTimeoutError(message) if late else UnreachableError(message)
        return OutcomeUnknownError(f"{message}; it may have happened", idempotency_key=call.idempotency_key)


def _compare_clock(response: HttpResponse) -> None:
    """Compare our clock with the control plane's, whose moments are in all records."""
    with suppress(ValueError):  # an older control plane does not say, another server says anything
        shown = datetime.fromisoformat(response.header("x-lcm-time") or "")
        earliest = datetime.fromisoformat(response.header("x-lcm-earliest-time") or "")
        clock.compare("the clock of the control plane", shown, authority=True)
        clock.record_earliest("the earliest time of the control plane", earliest)


@lru_cache(maxsize=1024)
def _cached_url(url: str, query: tuple[tuple[str, str], ...]) -> str:
    """Encoding a query takes longer than sending a small request, so frequent URLs are cached."""
    return f"{url}?{urlencode(query)}" if query else url


def _measure_in(registry: CollectorRegistry | None) -> Callable[[str], AbstractContextManager[None]]:
    from prometheus_client import REGISTRY

    from lcm.client.metrics import client_metrics

    return client_metrics(registry or REGISTRY).measured


def _no_measure(_: str) -> AbstractContextManager[None]:
    return nullcontext()


def _log_retry(call: ApiRequest, error: ClientError) -> None:
    import structlog  # imported here: a command that needs no retry should not wait for it

    log = structlog.get_logger(__name__)
    log.info("retrying a call to the control plane", operation=call.operation, error=str(error))


def _certificate_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    import ssl  # plain HTTP needs none

    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__
    return error


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _checked_url(url: str) -> str:
    try:
        parsed = urlsplit(url)
        _ = parsed.port  # raises ValueError if it is not a number
    except ValueError as error:
        raise InvalidAddressError(f"the address of the control plane is not a valid URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.hostname:
        raise InvalidAddressError(
            "the address of the control plane must begin with http:// or https:// and name a host"
        )
    if "@" in parsed.netloc or parsed.query or parsed.fragment:
        raise InvalidAddressError("the address of the control plane must not contain a user, query or fragment")
    if not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        raise InvalidAddressError("the address of the control plane is not a valid URL: it must be encoded")
    return parsed.geturl().rstrip("/")


def _retry_after_seconds(retry_after: str | None) -> float | None:
    """The seconds of a Retry-After header; our servers send no dates."""
    return float(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else None
