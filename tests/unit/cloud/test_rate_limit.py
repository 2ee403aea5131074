"""Token buckets, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.cloud.errors import CloudThrottledError
from lcm.cloud.rate_limit import LAUNCH_RATE, BucketRate, OperationBuckets, TokenBucket, instance_rate, request_rate
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider
from lcm.core import clock
from tests.support.aws.conformance_simulated import launch_of
from tests.support.virtual.time import VirtualTimeLoop


@dataclass(frozen=True)
class Ask:
    after: float
    tokens: int


ASKS = st.lists(
    st.builds(Ask, after=st.sampled_from([0.0, 0.0, 0.1, 0.5, 3.0]), tokens=st.integers(1, 4)), min_size=1, max_size=30
)


def served(capacity: float, refill: float, asks: list[Ask]) -> list[tuple[int, float, int]]:
    """Return who was served when, in order: number, time, tokens."""
    record: list[tuple[int, float, int]] = []

    async def all_of_them() -> None:
        bucket = TokenBucket(capacity, refill)
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def one(number: int, ask: Ask) -> None:
            await bucket.take(ask.tokens)
            record.append((number, loop.time() - began, ask.tokens))

        async with asyncio.TaskGroup() as group:
            for number, ask in enumerate(asks):
                await asyncio.sleep(ask.after)
                group.create_task(one(number, ask))

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(all_of_them())
    return record


@settings(max_examples=150, deadline=None)
@given(capacity=st.integers(4, 12), refill=st.sampled_from([0.5, 2.0, 20.0]), asks=ASKS)
def test_all_are_served_in_order_and_no_window_gets_too_much(capacity: int, refill: float, asks: list[Ask]) -> None:
    record = served(capacity, refill, asks)
    assert [number for number, _, _ in record] == list(range(len(asks)))
    for first in range(len(record)):
        taken = 0
        for _, moment, tokens in record[first:]:
            taken += tokens
            assert taken <= capacity + refill * (moment - record[first][1]) + 1e-6


@settings(max_examples=100, deadline=None)
@given(capacity=st.integers(4, 12), refill=st.sampled_from([0.5, 2.0, 20.0]), asks=ASKS)
def test_callers_wait_no_longer_than_necessary(capacity: int, refill: float, asks: list[Ask]) -> None:
    level, clock_now, arrival, expected = float(capacity), 0.0, 0.0, []
    for ask in asks:
        arrival += ask.after
        begin = max(arrival, clock_now)
        level = min(capacity, level + (begin - clock_now) * refill)
        wait = max(0.0, (ask.tokens - level) / refill)
        clock_now, level = begin + wait, level + wait * refill - ask.tokens
        expected.append(clock_now)
    assert [moment for _, moment, _ in served(capacity, refill, asks)] == pytest.approx(expected, abs=1e-6)


async def test_trying_takes_all_or_nothing() -> None:
    bucket = TokenBucket(3, 1)
    assert bucket.try_take(2)
    assert not bucket.try_take(2)
    assert bucket.try_take(1)
    await asyncio.sleep(2)
    assert bucket.try_take(2)


async def test_no_caller_overtakes_waiting_ones() -> None:
    bucket = TokenBucket(5, 1)
    await bucket.take(5)
    large = asyncio.create_task(bucket.take(4))
    await asyncio.sleep(2)
    assert not bucket.try_take(1)
    assert bucket.waiting == 1
    await large


async def test_a_cancelled_caller_takes_no_tokens() -> None:
    loop = asyncio.get_running_loop()
    bucket = TokenBucket(1, 1)
    await bucket.take()
    impatient = asyncio.create_task(bucket.take())
    patient = asyncio.create_task(bucket.take())
    await asyncio.sleep(0.5)
    impatient.cancel()
    began = loop.time()
    await patient
    assert loop.time() - began == pytest.approx(0.5)


async def test_cancelling_while_being_served_returns_the_tokens() -> None:
    bucket = TokenBucket(1, 1)
    await bucket.take()
    waiter = asyncio.create_task(bucket.take())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(1, waiter.cancel)
    await asyncio.wait({waiter})
    assert waiter.cancelled() != (not bucket.try_take())


async def test_more_tokens_than_the_capacity_are_rejected_at_once() -> None:
    with pytest.raises(ValueError, match="exceed the capacity"):
        await TokenBucket(5, 1).take(6)
    with pytest.raises(ValueError, match="above 0"):
        TokenBucket(0, 1)


async def test_the_documented_limits() -> None:
    assert request_rate("DescribeInstances") == request_rate("DescribeImages") == BucketRate(100, 20)
    assert request_rate("StopInstances") == BucketRate(50, 5)
    assert request_rate("RunInstances") == request_rate("StartInstances") == BucketRate(5, 2)
    assert request_rate("TerminateInstances") == BucketRate(100, 5)
    assert instance_rate("RunInstances") == instance_rate("StartInstances") == BucketRate(1000, 2)
    assert instance_rate("TerminateInstances") == instance_rate("StopInstances") == BucketRate(1000, 20)
    assert instance_rate("DescribeInstances") is None


async def test_an_operation_has_buckets_of_its_own() -> None:
    buckets = OperationBuckets()
    for _ in range(5):
        assert buckets.try_take("RunInstances", 1)
    assert not buckets.try_take("RunInstances", 1)
    assert buckets.try_take("StartInstances", 1)
    assert buckets.try_take("StopInstances", 1000)
    assert not buckets.try_take("StopInstances", 1)


async def test_a_cancelled_caller_returns_its_instance_tokens() -> None:
    buckets = OperationBuckets()
    for _ in range(5):
        await buckets.take("RunInstances", 199)
    waiting = asyncio.create_task(buckets.take("RunInstances", 5))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await asyncio.sleep(1)
    assert buckets.try_take("RunInstances", 7)


async def test_500_launches_at_once_are_never_throttled_and_nearly_as_fast_as_allowed() -> None:
    world = SimulatedCloud(seed=3)
    world.add_region("eu-central-1")
    image = world.add_image("eu-central-1", "cml", created_at=clock.now() - timedelta(days=1))
    provider = SimulatedProvider(world)
    loop = asyncio.get_running_loop()
    began = loop.time()
    throttled = 0

    async def launch(number: int) -> None:
        nonlocal throttled
        try:
            await provider.launch_instance(
                launch_of(f"w{number}", 1, region="eu-central-1", image_id=image, subnet_id=None)
            )
        except CloudThrottledError:
            throttled += 1

    await asyncio.gather(*(launch(number) for number in range(500)))
    optimum = (500 - LAUNCH_RATE.capacity) / LAUNCH_RATE.refill_per_second
    assert throttled == 0
    assert len(world.live_instances()) == 500
    assert world.calls()["RunInstances"] == 500
    assert loop.time() - began <= 1.15 * optimum
