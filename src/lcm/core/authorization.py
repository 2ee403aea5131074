"""Authorization to send one call with an external effect, and until when.

A call is authorized while this process provably leads. Between that moment and its first byte it may wait: to be
gathered with others, for a rate limit, for a thread, for credentials, for a connection; or the process is suspended. So
the authorization travels with the call and is checked after every wait, the last time right before the bytes are
handed to the kernel. A call whose authorization has expired is dropped: the next pass reads the record and decides
again.

The authorization is a context variable: tasks inherit it from their creator. A thread gets it with a copied context.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, TypeVar

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

T = TypeVar("T")

SEND_SHARE = 0.8
"""The share of a call's time in which it must be sent. The rest is for its response, and a margin before the lease
ends."""


class NotAuthorizedError(Exception):
    """The call was not sent, so it has certainly no effect: this process may not act, or no longer."""

    condition_reason = "NotAuthorized"


@dataclass(frozen=True, slots=True)
class SendAuthorization:
    """A call may be sent for `SEND_SHARE` of `limit` seconds from `granted_at`, if the lease is provable until then.

    All times are boot time, which goes on while the machine is suspended.
    """

    granted_at: float
    limit: float
    lease_remaining: Callable[[], float] = lambda: inf

    def send_seconds(self) -> float:
        """Seconds for which the call may still be sent; not positive once it may not."""
        if self.lease_remaining() <= 0.0:
            return 0.0
        return self.limit * SEND_SHARE - self._age()

    def response_seconds(self) -> float:
        """Seconds for which to wait for its response."""
        return max(0.0, self.limit - self._age())

    def check(self) -> None:
        """Raise unless the call may be sent now."""
        if self.send_seconds() <= 0.0:
            raise NotAuthorizedError(f"not sent: it was authorized {self._age():.1f} s ago and had to be sent by now")

    def _age(self) -> float:
        return clock.boottime() - self.granted_at


_current: ContextVar[SendAuthorization | None] = ContextVar("lcm_send_authorization", default=None)


def current_authorization() -> SendAuthorization | None:
    """The authorization of the calls made in this context; None outside of effects."""
    return _current.get()


@contextmanager
def authorized(authorization: SendAuthorization | None) -> Iterator[None]:
    """Make calls under this authorization, also those of tasks started from here."""
    token = _current.set(authorization)
    try:
        yield
    finally:
        _current.reset(token)


def check_may_send() -> None:
    """Raise unless calls of this context may be sent now. Call it after each wait, and right before the bytes."""
    authorization = _current.get()
    if authorization is not None:
        authorization.check()


async def wait_while_authorized(turn: Awaitable[T]) -> T:
    """Wait for a turn to send, but not longer than the call may be sent; a turn that comes too late is the caller's."""
    authorization = _current.get()
    if authorization is None:
        return await turn
    try:
        async with asyncio.timeout(max(0.0, authorization.send_seconds())):
            return await turn
    except TimeoutError:
        authorization.check()
        raise NotAuthorizedError("not sent: its turn did not come in time") from None
