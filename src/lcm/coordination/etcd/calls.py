"""One request to whichever server answers, in bounded time, and never done twice by accident."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from grpc import StatusCode
from grpc.aio import AioRpcError

from lcm.coordination.etcd.auth import SignIn
from lcm.coordination.etcd.connection import Connection, Metadata
from lcm.coordination.etcd.endpoints import Endpoint, Endpoints
from lcm.coordination.etcd.errors import MaybeDone, Meaning, NotDone, TooLarge, all_failed, in_words, meaning
from lcm.coordination.etcd.errors import connect_failed as gave_up_connecting
from lcm.core.coordination import Compacted, CoordinationError, Denied, LeaseNotFound, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from lcm.coordination.etcd.config import EtcdConfig

T = TypeVar("T")

# Something to do at one endpoint within so many seconds; an `AioRpcError` is sorted by whoever calls it.
Visit = Callable[[Endpoint, Connection, Metadata, float], Awaitable[T]]

_SIGN_INS_PER_VISIT = 2


class Repeat(Enum):
    """Whether a request may be sent again when it may already have been carried out."""

    SAFE = "safe"
    NEVER = "never"


class Caller:
    """Sends requests, trying the endpoints in turn."""

    def __init__(self, config: EtcdConfig) -> None:
        self.endpoints = Endpoints(config)
        self.sign_in = SignIn(config)
        self._config = config
        self._closed = False

    async def unary(self, method: str, request: Any, *, repeat: Repeat, lease_id: int = 0) -> Any:
        """The reply to one request."""

        async def visit(_: Endpoint, connection: Connection, metadata: Metadata, timeout: float) -> Any:
            return await connection.unary(method, request, metadata=metadata, timeout=timeout)

        return await self.visit(visit, repeat=repeat, lease_id=lease_id)

    async def exchange(self, method: str, request: Any, *, lease_id: int) -> Any:
        """The first reply of a method that is a stream; the request must be safe to repeat."""

        async def visit(_: Endpoint, connection: Connection, metadata: Metadata, timeout: float) -> Any:
            return await connection.exchange(method, request, metadata=metadata, timeout=timeout)

        return await self.visit(visit, repeat=Repeat.SAFE, lease_id=lease_id)

    async def visit(self, visit: Visit[T], *, repeat: Repeat, lease_id: int = 0) -> T:
        """Visit endpoints until one serves; ends within `EtcdConfig.longest_call` seconds.

        A request that may not be repeated goes on to the next endpoint only if it certainly was not sent.
        """
        deadline = asyncio.get_running_loop().time() + self._config.longest_call
        failures: list[NotDone | MaybeDone] = []
        order = self.endpoints.in_order()
        for endpoint in order:
            if self._closed:
                raise Unavailable(endpoint.says("closed"))
            try:
                connection = await self._connect(endpoint, deadline, last=endpoint is order[-1])
                return await self._visit_one(endpoint, connection, visit, deadline, lease_id)
            except NotDone as failure:
                failures.append(failure)
            except MaybeDone as failure:
                if repeat is Repeat.NEVER:
                    self.endpoints.avoid(endpoint)
                    raise OutcomeUnknown(f"{failure}; the write may have happened") from None
                failures.append(failure)
            self.endpoints.avoid(endpoint)
        raise all_failed(failures)

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
        self, endpoint: Endpoint, connection: Connection, visit: Visit[T], deadline: float, lease_id: int
    ) -> T:
        for _ in range(_SIGN_INS_PER_VISIT):
            left = self._time_left(endpoint, deadline)
            metadata = await self.sign_in.metadata(endpoint, connection, wait=left)
            token = self.sign_in.token
            left = self._time_left(endpoint, deadline)
            started = asyncio.get_running_loop().time()
            try:
                result = await visit(endpoint, connection, metadata, left)
            except AioRpcError as error:
                if meaning(error) is not Meaning.SIGN_IN_AGAIN or not self.sign_in.possible:
                    raise _translated(error, endpoint, connection, started, lease_id) from None
                await self.sign_in.renew(token, endpoint, connection, wait=self._time_left(endpoint, deadline))
                continue
            endpoint.answered()
            return result
        raise Denied(endpoint.says("the token was refused right after signing in"))

    def _time_left(self, endpoint: Endpoint, deadline: float) -> float:
        left = min(self._config.call_timeout, deadline - asyncio.get_running_loop().time())
        if left <= 0:
            raise NotDone(endpoint.says("not tried, the time was used up"))
        return left


def _translated(
    error: AioRpcError, endpoint: Endpoint, connection: Connection, started: float, lease_id: int
) -> Exception:
    """The exception that stands for an RPC's error, with what it tells about the endpoint noted."""
    what, why = meaning(error), in_words(error)
    if what is Meaning.NOT_DONE:
        if gave_up_connecting(error):
            endpoint.dialled_by_call(connection, why)
        endpoint.failed(why)
        return NotDone(endpoint.says(why))
    if what is Meaning.UNKNOWN:
        endpoint.failed(why)
        if error.code() is StatusCode.DEADLINE_EXCEEDED and connection.heard_at < started:
            # Not a word to anyone on this connection all the while: the peer is dead or the way to it is.
            endpoint.replace(connection, why)
        return MaybeDone(endpoint.says(why))
    endpoint.answered()
    return _refusal(what, endpoint.says(why), error.code(), lease_id)


def _refusal(what: Meaning, text: str, code: StatusCode, lease_id: int) -> CoordinationError:
    if what is Meaning.DENIED:
        return Denied(text)
    if what is Meaning.SIGN_IN_AGAIN:
        return Denied(f"{text}; etcd wants a user and password")
    if what is Meaning.COMPACTED:
        # etcd does not say here up to where; only a listing can meet this, and begins again.
        return Compacted(0)
    if what is Meaning.LEASE_NOT_FOUND:
        return LeaseNotFound(lease_id)
    if what is Meaning.TOO_LARGE:
        return TooLarge(text)
    return Unavailable(text) if code is StatusCode.RESOURCE_EXHAUSTED else CoordinationError(text)
