"""Whether a call may still be sent, in virtual time and with a process that is suspended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.core import clock
from lcm.core.authorization import (
    NotAuthorizedError,
    SendAuthorization,
    authorized,
    check_may_send,
    wait_while_authorized,
)

if TYPE_CHECKING:
    from tests.support.virtual.time import VirtualClock


def granted(limit: float = 10.0, lease: float = 100.0) -> SendAuthorization:
    return SendAuthorization(clock.boottime(), limit, lambda: lease)


async def test_a_call_may_be_sent_for_four_fifths_of_its_time() -> None:
    """controllers.md#authorization: the rest is for the response."""
    authorization = granted(10.0)
    await asyncio.sleep(7.9)
    authorization.check()
    await asyncio.sleep(0.2)
    with pytest.raises(NotAuthorizedError, match=r"8\.1 s ago"):
        authorization.check()
    assert authorization.response_seconds() == pytest.approx(1.9)


async def test_time_in_suspension_counts(virtual_clock: VirtualClock) -> None:
    with authorized(granted()):
        check_may_send()
        virtual_clock.suspended += 60
        with pytest.raises(NotAuthorizedError):
            check_may_send()


async def test_a_lease_that_ends_early_ends_the_authorization() -> None:
    """For example handed over, or unknown to the server."""
    lease = [5.0]
    authorization = SendAuthorization(clock.boottime(), 10.0, lambda: lease[0])
    authorization.check()
    lease[0] = 0.0
    with pytest.raises(NotAuthorizedError):
        authorization.check()


async def test_nothing_waits_for_its_turn_longer_than_it_may_be_sent() -> None:
    began = clock.boottime()
    with authorized(granted(10.0)), pytest.raises(NotAuthorizedError):
        await wait_while_authorized(asyncio.Event().wait())
    assert clock.boottime() - began == pytest.approx(8.0)


async def test_a_turn_that_comes_in_time_is_taken() -> None:
    with authorized(granted()):
        assert await wait_while_authorized(asyncio.sleep(3, "turn")) == "turn"


async def test_outside_of_effects_nothing_is_checked() -> None:
    check_may_send()
    assert await wait_while_authorized(asyncio.sleep(1000, "turn")) == "turn"


async def test_tasks_inherit_the_authorization_of_their_creator(virtual_clock: VirtualClock) -> None:
    async def later() -> None:
        await asyncio.sleep(1)
        check_may_send()

    with authorized(granted()):
        task = asyncio.create_task(later())
    virtual_clock.suspended += 60
    with pytest.raises(NotAuthorizedError):
        await task
