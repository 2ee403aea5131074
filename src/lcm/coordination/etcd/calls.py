"""One request to whichever server answers, in bounded time, and never done twice by accident."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from grpc import StatusCode
from grpc.aio import AioRpcError

from lcm.coordination.etcd.auth import EtcdAuthenticator
from lcm.coordination.etcd.connection import Connection, Metadata
from lcm.coordination.etcd.endpoints import Endpoint, Endpoints
from lcm.coordination.etcd.errors import (
    FailureKind,
    MaybeDoneError,
    MessageTooLargeError,
    NotDoneError,
    classify_error,
    combine_failures,
    describe_error,
)
from lcm.coordination.etcd.errors import is_connect_failure as gave_up_connecting
from lcm.core.coordination import (
    CompactedError,
    CoordinationDeniedError,
    CoordinationError,
    CoordinationOutcomeUnknownError,
    CoordinationUnavailableError,
    LeaseNotFoundError,
)

if TYPE_CHECKING:
    from lcm.coordination.etcd.config import EtcdConfig

T = TypeVar("T")

# Something to do at one endpoint within so many seconds; an `AioRpcError` is sorted by whoever calls it.
EndpointCall = Callable[[Endpoint, Connection, Metadata, float], Awaitable[T]]

_AUTH_ATTEMPTS_PER_ENDPOINT = 2


class RetryPolicy(Enum):
    """Whether a request may be sent again when it may already have been carried out."""

    SAFE = "safe"
    NEVER = "never"


class EtcdCaller:
    """Sends requests, trying the endpoints in turn."""

    def __init__(self, config: EtcdConfig) -> None:
        self.endpoints = Endpoints(config)
        self.sign_in = EtcdAuthenticator(config)
        self._config = config
        self._closed = False

    async def unary(self, method: str, request: Any, *, repeat: RetryPolicy, lease_id: int = 0) -> Any:
        """The reply to one request."""

        async def visit(_: Endpoint, connection: Connection, metadata: Metadata, timeout: float) -> Any:
            return await connection.unary(method, request, metadata=metadata, timeout=timeout)

        return await self.visit(visit, repeat=repeat, lease_id=lease_id)

    async def exchange(self, method: str, request: Any, *, lease_id: int) -> Any:
        """The first reply of a method that is a stream; the request must be safe to repeat."""

        async def visit(_: Endpoint, connection: Connection, metadata: Metadata, timeout: float) -> Any:
            return await connection.exchange(method, request, metadata=metadata, timeout=timeout)

        return await self.visit(visit, repeat=RetryPolicy.SAFE, lease_id=lease_id)

    async def visit(self, visit: EndpointCall[T], *, repeat: RetryPolicy, lease_id: int = 0) -> T:
        """Visit endpoints until one serves; ends within `EtcdConfig.longest_call` seconds.

        A request that may not be repeated goes on to the next endpoint only if it certainly was not sent.
        """
        deadline = asyncio.get_running_loop().time() + self._config.longest_call
        failures: list[NotDoneError | MaybeDoneError] = []
        order = self.endpoints.in_order()
        for endpoint in order:
            if self._closed:
                raise CoordinationUnavailableError(endpoint.says("closed"))
            try:
                connection = await self._connect(endpoint, deadline, last=endpoint is order[-1])
                return await self._visit_one(endpoint, connection, visit, deadline, lease_id)
            except NotDoneError as failure:
                failures.append(failure)
            except MaybeDoneError as failure:
                if repeat is RetryPolicy.NEVER:
                    self.endpoints.avoid(endpoint)
                    raise CoordinationOutcomeUnknownError(f"{failure}; the write may have happened") from None
                failures.append(failure)
            self.endpoints.avoid(endpoint)
        raise combine_failures(failures)

    async def close(self) -> None:
        """Take no more requests, wait for those under way, end the streams."""
        self._closed = True
        await self.sign_in.close()
        await self.endpoints.close()

    async def _connect(self, endpoint: Endpoint, deadline: float, *, last: bool) -> Connection:
        left = self._time_left(endpoint, deadline)
        # Half a call's time while there are others: two that swallow packets must leave time for a third.
        return await endpoint.connection(left if last else left / 2)

    async def _visit_one(
        self, endpoint: Endpoint, connection: Connection, visit: EndpointCall[T], deadline: float, lease_id: int
    ) -> T:
        for _ in range(_AUTH_ATTEMPTS_PER_ENDPOINT):
            left = self._time_left(endpoint, deadline)
            metadata = await self.sign_in.metadata(endpoint, connection, wait=left)
            token = self.sign_in.token
            left = self._time_left(endpoint, deadline)
            started = asyncio.get_running_loop().time()
            try:
                result = await visit(endpoint, connection, metadata, left)
            except AioRpcError as error:
                if classify_error(error) is not FailureKind.SIGN_IN_AGAIN or not self.sign_in.possible:
                    raise _to_exception(error, endpoint, connection, started, lease_id) from None
                await self.sign_in.renew(token, endpoint, connection, wait=self._time_left(endpoint, deadline))
                continue
            endpoint.answered()
            return result
        raise CoordinationDeniedError(endpoint.says("the token was refused right after signing in"))

    def _time_left(self, endpoint: Endpoint, deadline: float) -> float:
        left = min(self._config.call_timeout, deadline - asyncio.get_running_loop().time())
        if left <= 0:
            raise NotDoneError(endpoint.says("not tried, the time was used up"))
        return left


def _to_exception(
    error: AioRpcError, endpoint: Endpoint, connection: Connection, started: float, lease_id: int
) -> Exception:
    """The exception that stands for an RPC's error, with what it tells about the endpoint noted."""
    what, why = classify_error(error), describe_error(error)
    if what is FailureKind.NOT_DONE:
        if gave_up_connecting(error):
            endpoint.note_failed_dial(connection, why)
        endpoint.failed(why)
        return NotDoneError(endpoint.says(why))
    if what is FailureKind.UNKNOWN:
        endpoint.failed(why)
        if error.code() is StatusCode.DEADLINE_EXCEEDED and connection.last_heard_at < started:
            # Not a word to anyone on this connection all the while: the peer is dead or the way to it is.
            endpoint.replace(connection, why)
        return MaybeDoneError(endpoint.says(why))
    endpoint.answered()
    return _to_definite_error(what, endpoint.says(why), error.code(), lease_id)


def _to_definite_error(what: FailureKind, text: str, code: StatusCode, lease_id: int) -> CoordinationError:
    if what is FailureKind.DENIED:
        return CoordinationDeniedError(text)
    if what is FailureKind.SIGN_IN_AGAIN:
        return CoordinationDeniedError(f"{text}; etcd wants a user and password")
    if what is FailureKind.COMPACTED:
        # etcd does not say here up to where; only a listing can meet this, and begins again.
        return CompactedError(0)
    if what is FailureKind.LEASE_NOT_FOUND:
        return LeaseNotFoundError(lease_id)
    if what is FailureKind.TOO_LARGE:
        return MessageTooLargeError(text)
    return CoordinationUnavailableError(text) if code is StatusCode.RESOURCE_EXHAUSTED else CoordinationError(text)
