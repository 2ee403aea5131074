"""Calls on behalf of an account: with a token, measured, and with a second try when the session had ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.cml.client.json_values import Misshapen
from lcm.cml.client.session import call_metrics
from lcm.cml.client.tokens import TokenCache
from lcm.cml.client.transport import LARGEST_REPLY, SMALL_REPLY
from lcm.cml.errors import AuthFailed, CMLError, ProtocolError, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lcm.cml.client.responses import Reply
    from lcm.cml.client.transport import Transport
    from lcm.cml.types import Credentials

    _Exchange = Callable[[str | None], Awaitable[Reply]]

R = TypeVar("R")
API = "/api/v0"


class Session:
    """What the system client and the labs client share: the network, the tokens and the metrics."""

    def __init__(self, transport: Transport, *, registry: CollectorRegistry = REGISTRY) -> None:
        self._transport = transport
        self._metrics = call_metrics(registry)
        self._tokens = TokenCache(self._log_in)

    async def call(
        self,
        operation: str,
        address: str,
        credentials: Credentials | None,
        method: str,
        path: str,
        *,
        read: Callable[[Reply], R],
        query: Mapping[str, str] | None = None,
        json: Any = None,
        text: str | None = None,
        seconds: float | None = None,
        largest: int = LARGEST_REPLY,
    ) -> R:
        """Make a call and read its reply; whatever goes wrong is one of `lcm.cml.errors`."""

        async def exchange(token: str | None) -> Reply:
            return await self._transport.exchange(
                address,
                method,
                API + path,
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
        except Misshapen as error:
            outcome = ProtocolError.outcome
            raise ProtocolError(address, f"{operation}: {error}") from None
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

    async def _as_user(self, address: str, credentials: Credentials, exchange: _Exchange) -> Reply:
        token = await self._tokens.get(address, credentials)
        try:
            return await exchange(token)
        except Unauthorized:
            self._tokens.refuse(address, credentials, token)
        # The request was refused before anything came of it, so even one that changes things may be sent again.
        token = await self._tokens.get(address, credentials)
        return await exchange(token)

    async def _log_in(self, address: str, credentials: Credentials) -> str:
        account = {"username": credentials.username, "password": credentials.password}

        def read(reply: Reply) -> str:
            if not isinstance(reply.content, str):
                raise Misshapen("the answer to a login is no token")
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
                largest=SMALL_REPLY,
            )
        except AuthFailed:
            raise AuthFailed(address, f"user name or password of {credentials.username!r} refused") from None
