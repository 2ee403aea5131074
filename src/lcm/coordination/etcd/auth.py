"""Signing in to etcd: one token for all servers, fetched by one caller for all."""

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

# A server cut off from its quorum refuses at once, instead of holding a call or a watch that cannot be served.
_REQUIRE_LEADER = ("hasleader", "true")


class EtcdAuthenticator:
    """Keeps the token; a restarted server forgets it, so it may have to be fetched anew at any time."""

    def __init__(self, config: EtcdConfig) -> None:
        self._user = config.user
        self._password = config.password
        self._timeout = config.call_timeout
        self.token: str | None = None
        self._fetching: asyncio.Task[Exception | None] | None = None

    @property
    def possible(self) -> bool:
        """Whether there is a user to sign in as."""
        return self._user is not None

    async def metadata(self, endpoint: Endpoint, connection: Connection, *, wait: float) -> Metadata:
        """What goes with a call; signs in first if that has not been done."""
        if self.possible and self.token is None:
            await self.renew(None, endpoint, connection, wait=wait)
        return (_REQUIRE_LEADER, ("token", self.token)) if self.token else (_REQUIRE_LEADER,)

    async def renew(self, refused: str | None, endpoint: Endpoint, connection: Connection, *, wait: float) -> None:
        """Replace the token `refused`, unless another caller already has."""
        if self.token != refused:
            return
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(endpoint, connection))
        fetching = self._fetching
        await asyncio.wait({fetching}, timeout=wait)
        if not fetching.done():
            raise NotDoneError(endpoint.says("signing in took too long"))
        failure = NotDoneError("closed") if fetching.cancelled() else fetching.result()
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Stop a sign-in under way."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})

    async def _fetch(self, endpoint: Endpoint, connection: Connection) -> Exception | None:
        """Fetch a token; a failure is returned, since everyone who waits must get it and perhaps no one does."""
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
            # Not yet: calls work without a token, and once it is enabled they are refused and come back here.
            self.token = ""
            return None
        if classify_error(error) in (FailureKind.DENIED, FailureKind.REFUSED):
            return CoordinationDeniedError(endpoint.says(f"sign-in as {self._user} refused: {describe_error(error)}"))
        # No effect worth the name: at worst a token that nobody uses.
        return NotDoneError(endpoint.says(f"sign-in failed: {describe_error(error)}"))
