"""Authentication with etcd: one token for all servers, fetched once for all callers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from grpc.aio import AioRpcError

from lcm.coordination.etcd.errors import FailureKind, NotDoneError, classify_error, describe_error
from lcm.coordination.etcd.messages import new_message
from lcm.core.coordination import CoordinationDeniedError

if TYPE_CHECKING:
    from lcm.coordination.etcd.config import EtcdConfig
    from lcm.coordination.etcd.connection import Connection, Metadata
    from lcm.coordination.etcd.endpoints import Endpoint

# A server without quorum rejects the request at once, instead of holding a call or a watch that it cannot serve.
_REQUIRE_LEADER = ("hasleader", "true")


class EtcdAuthenticator:
    """Holds the token. A restarted server forgets it, so it may have to be renewed at any time."""

    def __init__(self, config: EtcdConfig) -> None:
        self._user = config.user
        self._password = config.password
        self._timeout = config.call_timeout
        self.token: str | None = None
        self._fetching: asyncio.Task[Exception | None] | None = None

    @property
    def enabled(self) -> bool:
        """Whether a user is configured."""
        return self._user is not None

    async def metadata(self, endpoint: Endpoint, connection: Connection, *, wait: float) -> Metadata:
        """The metadata of a call; signs in first if there is no token yet."""
        if self.enabled and self.token is None:
            await self.renew(None, endpoint, connection, wait=wait)
        return (_REQUIRE_LEADER, ("token", self.token)) if self.token else (_REQUIRE_LEADER,)

    async def renew(self, rejected: str | None, endpoint: Endpoint, connection: Connection, *, wait: float) -> None:
        """Replace the rejected token, unless another caller already has."""
        if self.token != rejected:
            return
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(endpoint, connection))
        fetching = self._fetching
        await asyncio.wait({fetching}, timeout=wait)
        if not fetching.done():
            raise NotDoneError(endpoint.describe("sign-in timed out"))
        failure = NotDoneError("closed") if fetching.cancelled() else fetching.result()
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Stop a sign-in in progress."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})

    async def _fetch(self, endpoint: Endpoint, connection: Connection) -> Exception | None:
        """Fetch a token. A failure is returned, not raised: all waiting callers must get it, and there may be none."""
        request = new_message("AuthenticateRequest", name=self._user, password=self._password)
        try:
            reply = await connection.unary("Authenticate", request, metadata=(_REQUIRE_LEADER,), timeout=self._timeout)
        except NotDoneError as failure:
            return failure
        except AioRpcError as error:
            return self._failure(endpoint, error)
        finally:
            self._fetching = None
        self.token = reply.token
        return None

    def _failure(self, endpoint: Endpoint, error: AioRpcError) -> Exception | None:
        if "authentication is not enabled" in (error.details() or ""):
            # Calls work without a token; once authentication is enabled they are rejected and come back here.
            self.token = ""
            return None
        if classify_error(error) in (FailureKind.DENIED, FailureKind.REJECTED):
            return CoordinationDeniedError(
                endpoint.describe(f"sign-in as {self._user} denied: {describe_error(error)}")
            )
        # Safe to repeat: at worst etcd issued a token that is never used.
        return NotDoneError(endpoint.describe(f"sign-in failed: {describe_error(error)}"))
