"""One request to the first server that responds, in bounded time and never executed twice by accident."""

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

# A request to one endpoint within so many seconds; the caller classifies an `AioRpcError`.
EndpointCall = Callable[[Endpoint, Connection, Metadata, float], Awaitable[T]]

_AUTH_ATTEMPTS_PER_ENDPOINT = 2


class RetryPolicy(Enum):
    """Whether a request may be sent again when it may already have been executed."""

    SAFE = "safe"
    NEVER = "never"


class EtcdCaller:
    """Sends requests, trying the endpoints in turn."""

    def __init__(self, config: EtcdConfig) -> None:
        self.endpoints = Endpoints(config)
        self.auth = EtcdAuthenticator(config)
        self._config = config
        self._closed = False

    async def unary(self, method: str, request: Any, *, repeat: RetryPolicy, lease_id: int = 0) -> Any:
        """The reply to one request."""

        async def visit(_: Endpoint, connection: Connection, metadata: Metadata, timeout: float) -> Any:
            return await connection.unary(method, request, metadata=metadata, timeout=timeout)

        return await self.visit(visit, repeat=repeat, lease_id=lease_id)

    async def exchange(self, method: str, request: Any, *, lease_id: int) -> Any:
        """The first reply of a streaming method; the request must be safe to repeat."""

        async def visit(_: Endpoint, connection: Connection, metadata: Metadata, timeout: float) -> Any:
            return await connection.exchange(method, request, metadata=metadata, timeout=timeout)

        return await self.visit(visit, repeat=RetryPolicy.SAFE, lease_id=lease_id)

    async def visit(self, visit: EndpointCall[T], *, repeat: RetryPolicy, lease_id: int = 0) -> T:
        """Try the endpoints in turn until one serves; ends within `EtcdConfig.max_call_seconds`.

        A request that must not be repeated goes to the next endpoint only if it certainly had no effect.
        """
        deadline = asyncio.get_running_loop().time() + self._config.max_call_seconds
        failures: list[NotDoneError | MaybeDoneError] = []
        order = self.endpoints.in_order()
        for endpoint in order:
            if self._closed:
                raise CoordinationUnavailableError(endpoint.describe("closed"))
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
        """Accept no more requests, wait for those in flight, end the streams."""
        self._closed = True
        await self.auth.close()
        await self.endpoints.close()

    async def _connect(self, endpoint: Endpoint, deadline: float, *, last: bool) -> Connection:
        left = self._time_left(endpoint, deadline)
        # Half of the time while there are other endpoints: two that drop packets must leave time for a third.
        return await endpoint.connection(left if last else left / 2)

    async def _visit_one(
        self, endpoint: Endpoint, connection: Connection, visit: EndpointCall[T], deadline: float, lease_id: int
    ) -> T:
        for _ in range(_AUTH_ATTEMPTS_PER_ENDPOINT):
            left = self._time_left(endpoint, deadline)
            metadata = await self.auth.metadata(endpoint, connection, wait=left)
            token = self.auth.token
            left = self._time_left(endpoint, deadline)
            started = asyncio.get_running_loop().time()
            try:
                result = await visit(endpoint, connection, metadata, left)
            except AioRpcError as error:
                if classify_error(error) is not FailureKind.SIGN_IN_AGAIN or not self.auth.enabled:
                    raise _to_exception(error, endpoint, connection, started, lease_id) from None
                await self.auth.renew(token, endpoint, connection, wait=self._time_left(endpoint, deadline))
                continue
            endpoint.responded()
            return result
        raise CoordinationDeniedError(endpoint.describe("the token was rejected right after signing in"))

    def _time_left(self, endpoint: Endpoint, deadline: float) -> float:
        left = min(self._config.call_timeout, deadline - asyncio.get_running_loop().time())
        if left <= 0:
            raise NotDoneError(endpoint.describe("not tried, no time left"))
        return left


def _to_exception(
    error: AioRpcError, endpoint: Endpoint, connection: Connection, started: float, lease_id: int
) -> Exception:
    """The exception for an RPC error; also records what the error says about the endpoint."""
    what, why = classify_error(error), describe_error(error)
    if what is FailureKind.NOT_DONE:
        if gave_up_connecting(error):
            endpoint.note_failed_dial(connection, why)
        endpoint.failed(why)
        return NotDoneError(endpoint.describe(why))
    if what is FailureKind.UNKNOWN:
        endpoint.failed(why)
        if error.code() is StatusCode.DEADLINE_EXCEEDED and connection.last_received_at < started:
            # Nothing was received on this connection since the call started: the peer or the path to it is dead.
            endpoint.replace(connection, why)
        return MaybeDoneError(endpoint.describe(why))
    endpoint.responded()
    return _to_definite_error(what, endpoint.describe(why), error.code(), lease_id)


def _to_definite_error(what: FailureKind, text: str, code: StatusCode, lease_id: int) -> CoordinationError:
    if what is FailureKind.DENIED:
        return CoordinationDeniedError(text)
    if what is FailureKind.SIGN_IN_AGAIN:
        return CoordinationDeniedError(f"{text}; etcd requires a user and password")
    if what is FailureKind.COMPACTED:
        # etcd does not report the compacted revision here; only a listing can get this error, and it starts again.
        return CompactedError(0)
    if what is FailureKind.LEASE_NOT_FOUND:
        return LeaseNotFoundError(lease_id)
    if what is FailureKind.TOO_LARGE:
        return MessageTooLargeError(text)
    return CoordinationUnavailableError(text) if code is StatusCode.RESOURCE_EXHAUSTED else CoordinationError(text)
