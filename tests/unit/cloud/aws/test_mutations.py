"""Mutations batched into calls, and a rejected call halved until the instance that causes the error is alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.aws.config import Tuning
from lcm.cloud.aws.mutations import BatchedMutation
from lcm.cloud.errors import (
    CloudError,
    CloudOutcomeUnknownError,
    CloudThrottledError,
    CloudUnreachableError,
    IncorrectInstanceStateError,
    InstanceNotFoundError,
)
from lcm.cloud.types import InstanceState
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError, SendAuthorization, authorized, check_may_send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.support.virtual.time import VirtualClock

BAD = "i-bad"


class FakeGateway:
    """Responds like EC2: all or nothing. Records the requests and their times."""

    def __init__(self, bad: Iterable[str] = (), whole: CloudError | None = None) -> None:
        self.tuning = Tuning()
        self.sent: list[list[str]] = []
        self.at: list[float] = []
        self.turn = asyncio.Event()
        self.turn.set()
        self.silent_on: set[str] = set()
        self._bad = set(bad)
        self._whole = whole

    async def call_prepared(self, operation: str, prepare: Callable[[], Any], instances: int = 0) -> Any:
        await self.turn.wait()
        parameters = prepare()
        if parameters is None:
            return None
        ids = list(parameters["InstanceIds"])
        assert 0 < len(ids) <= instances <= 100
        self.sent.append(ids)
        self.at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.1)
        if self._whole is not None:
            raise self._whole
        if self._bad & set(ids):
            raise InstanceNotFoundError("one of them", code="InvalidInstanceID.NotFound", operation=operation)
        told = [one for one in ids if one not in self.silent_on]
        return {"StoppingInstances": [{"InstanceId": one, "CurrentState": {"Name": "stopping"}} for one in told]}


def mutation(gateway: FakeGateway) -> BatchedMutation:
    return BatchedMutation(gateway, "StopInstances", "StoppingInstances")  # type: ignore[arg-type]


def ids(count: int) -> list[str]:
    return [f"i-{number:03}" for number in range(count)]


async def ask_all(stop: BatchedMutation, wanted: Iterable[str]) -> list[Any]:
    return await asyncio.gather(*(stop.submit(one) for one in wanted), return_exceptions=True)


async def test_requests_within_a_short_time_are_sent_together() -> None:
    gateway = FakeGateway()
    began = asyncio.get_running_loop().time()
    states = await ask_all(mutation(gateway), ids(50))
    assert states == [InstanceState.STOPPING] * 50
    assert gateway.sent == [ids(50)]
    assert gateway.at[0] - began == pytest.approx(0.2)


async def test_a_full_call_does_not_wait() -> None:
    gateway = FakeGateway()
    began = asyncio.get_running_loop().time()
    await ask_all(mutation(gateway), ids(250))
    assert [len(sent) for sent in gateway.sent] == [100, 100, 50]
    assert gateway.at[0] == gateway.at[1] == began


async def test_an_instance_requested_twice_is_sent_once() -> None:
    gateway = FakeGateway()
    assert await ask_all(mutation(gateway), ["i-1", "i-1", "i-1"]) == [InstanceState.STOPPING] * 3
    assert gateway.sent == [["i-1"]]


async def test_a_bad_one_does_not_fail_the_others() -> None:
    gateway = FakeGateway(bad=[BAD])
    *states, refused = await ask_all(mutation(gateway), [*ids(99), BAD])
    assert states == [InstanceState.STOPPING] * 99
    assert isinstance(refused, InstanceNotFoundError)
    assert refused.code == "InvalidInstanceID.NotFound"
    # Two calls for each halving, and the first.
    assert len(gateway.sent) <= 15


async def test_several_bad_ones_each_fail_alone() -> None:
    bad = ids(64)[::9]
    gateway = FakeGateway(bad=bad)
    outcomes = dict(zip(ids(64), await ask_all(mutation(gateway), ids(64)), strict=True))
    assert [one for one, outcome in outcomes.items() if isinstance(outcome, InstanceNotFoundError)] == bad
    assert sum(outcome is InstanceState.STOPPING for outcome in outcomes.values()) == 64 - len(bad)
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, Exception)]
    assert len({id(error) for error in errors}) == len(bad)


@pytest.mark.parametrize("kind", [CloudThrottledError, CloudUnreachableError, CloudOutcomeUnknownError])
async def test_a_failure_of_the_whole_call_fails_all_and_is_not_repeated(kind: type[CloudError]) -> None:
    gateway = FakeGateway(whole=kind("x", code="c", operation="StopInstances"))
    outcomes = await ask_all(mutation(gateway), ids(10))
    assert {type(outcome) for outcome in outcomes} == {kind}
    assert len(gateway.sent) == 1


async def test_one_alone_gets_its_refusal_at_once() -> None:
    gateway = FakeGateway(whole=IncorrectInstanceStateError("terminated", code="IncorrectInstanceState"))
    with pytest.raises(IncorrectInstanceStateError, match="terminated"):
        await mutation(gateway).submit("i-1")
    assert len(gateway.sent) == 1


async def test_an_instance_that_the_reply_does_not_name_is_unknown() -> None:
    gateway = FakeGateway()
    gateway.silent_on = {"i-001"}
    outcomes = await ask_all(mutation(gateway), ids(3))
    assert [type(outcome) for outcome in outcomes] == [InstanceState, CloudOutcomeUnknownError, InstanceState]


async def test_a_caller_cancelled_before_the_call_is_not_sent() -> None:
    gateway = FakeGateway()
    gateway.turn.clear()
    stop = mutation(gateway)
    asked = [asyncio.create_task(stop.submit(one)) for one in ("i-1", "i-1", "i-2", "i-3")]
    await asyncio.sleep(1)
    for index in (0, 2):
        asked[index].cancel()
    await asyncio.sleep(1)
    gateway.turn.set()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert gateway.sent == [["i-1", "i-3"]], "of i-1 one waiter is left"
    assert [type(outcome) for outcome in outcomes] == [
        asyncio.CancelledError,
        InstanceState,
        asyncio.CancelledError,
        InstanceState,
    ]


async def test_nothing_is_sent_if_all_callers_are_cancelled() -> None:
    gateway = FakeGateway()
    stop = mutation(gateway)
    asked = asyncio.create_task(stop.submit("i-1"))
    await asyncio.sleep(0.1)
    asked.cancel()
    await asyncio.sleep(1)
    assert gateway.sent == []
    assert await stop.submit("i-1") is InstanceState.STOPPING


async def submit_authorized(stop: BatchedMutation, instance_id: str, limit: float = 7.5) -> InstanceState:
    with authorized(SendAuthorization(clock.boottime(), limit)):
        return await stop.submit(instance_id)


class CheckingGateway(FakeGateway):
    """Checks, after its wait, whether the call may be sent, as the real one does."""

    async def call_prepared(self, operation: str, prepare: Callable[[], Any], instances: int = 0) -> Any:
        await self.turn.wait()
        check_may_send()
        return await super().call_prepared(operation, prepare, instances)


async def test_nothing_is_sent_after_a_suspension_while_calls_were_gathered(virtual_clock: VirtualClock) -> None:
    gateway = CheckingGateway()
    stop = mutation(gateway)
    asked = [asyncio.create_task(submit_authorized(stop, one)) for one in ids(3)]
    await asyncio.sleep(0.1)
    virtual_clock.suspended += 30
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {NotAuthorizedError}
    assert gateway.sent == []
    assert await submit_authorized(stop, "i-000") is InstanceState.STOPPING, "a new pass asks again"


async def test_a_call_may_be_sent_only_while_all_its_instances_may_be_changed() -> None:
    gateway = CheckingGateway()
    gateway.turn.clear()
    stop = mutation(gateway)
    asked = [asyncio.create_task(submit_authorized(stop, one, limit)) for one, limit in (("i-1", 5.0), ("i-2", 50.0))]
    await asyncio.sleep(4.5)
    gateway.turn.set()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NotAuthorizedError, NotAuthorizedError]
    assert gateway.sent == []


async def test_the_halves_of_a_rejected_call_are_not_sent_either(virtual_clock: VirtualClock) -> None:
    gateway = CheckingGateway(bad=[BAD])
    stop = mutation(gateway)
    asked = [asyncio.create_task(submit_authorized(stop, one)) for one in ("i-1", BAD)]
    await asyncio.sleep(0.25)  # the call is under way
    virtual_clock.suspended += 30
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {NotAuthorizedError}
    assert gateway.sent == [["i-1", BAD]]


async def test_close_fails_all_waiting_callers() -> None:
    gateway = FakeGateway()
    stop = mutation(gateway)
    sent = asyncio.create_task(stop.submit("i-1"))
    await asyncio.sleep(0.25)
    gathering = asyncio.create_task(stop.submit("i-2"))
    await asyncio.sleep(0)
    await stop.close()
    outcomes = await asyncio.gather(sent, gathering, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [CloudOutcomeUnknownError, CloudUnreachableError]
    assert gateway.sent == [["i-1"]]
