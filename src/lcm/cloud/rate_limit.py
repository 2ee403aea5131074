"""Token buckets, and the documented rate limits of the EC2 API.

The simulated cloud throttles by these limits, as EC2 does. A client limits itself to a share of them, so that it is
never throttled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

# Tolerance for rounding errors of fractions of a second; far below one token.
_EPSILON: Final = 1e-9


@dataclass(frozen=True, slots=True)
class BucketRate:
    """The size of a bucket and its refill rate."""

    capacity: float
    refill_per_second: float

    def share(self, part: float) -> BucketRate:
        """Return a share of this rate."""
        return BucketRate(self.capacity * part, self.refill_per_second * part)


class TokenBucket:
    """A token bucket on the clock of the running loop. It starts full.

    Waiting callers are served in order: small requests do not overtake a large one at the head of the queue.
    """

    def __init__(self, capacity: float, refill_per_second: float) -> None:
        if capacity <= 0 or refill_per_second <= 0:
            raise ValueError(f"capacity and refill rate must be above 0, not {capacity:g} and {refill_per_second:g}")
        self._rate = BucketRate(capacity, refill_per_second)
        self._level = capacity
        self._at: float | None = None
        self._queue: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """The number of waiting callers."""
        return len(self._queue)

    def try_take(self, tokens: float = 1) -> bool:
        """Take the tokens if they are available and no caller is waiting."""
        if self._queue or self._fill() + _EPSILON < tokens:
            return False
        self._level -= tokens
        return True

    async def take(self, tokens: float = 1) -> None:
        """Take the tokens, waiting until they are available."""
        if tokens > self._rate.capacity + _EPSILON:
            raise ValueError(f"{tokens:g} tokens exceed the capacity of the bucket, {self._rate.capacity:g}")
        if self.try_take(tokens):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (tokens, turn)
        self._queue.append(entry)
        self._set_timer()
        try:
            await turn
        except asyncio.CancelledError:
            self._withdraw(entry)
            raise

    def put_back(self, tokens: float) -> None:
        """Return tokens of a call that was not made."""
        self._level = min(self._rate.capacity, self._fill() + tokens)
        self._serve()

    def _withdraw(self, entry: tuple[float, asyncio.Future[None]]) -> None:
        if entry in self._queue:
            self._queue.remove(entry)
        elif not entry[1].cancelled():
            # It was served and cancelled at the same moment: the tokens go to the next caller.
            self._level += entry[0]
        self._serve()

    def _fill(self) -> float:
        now = asyncio.get_running_loop().time()
        if self._at is not None:
            gained = (now - self._at) * self._rate.refill_per_second
            self._level = min(self._rate.capacity, self._level + gained)
        self._at = now
        return self._level

    def _serve(self) -> None:
        while self._queue and self._fill() + _EPSILON >= self._queue[0][0]:
            tokens, turn = self._queue.popleft()
            if not turn.done():
                self._level -= tokens
                turn.set_result(None)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._queue:
            missing = self._queue[0][0] - self._fill()
            wait = max(0.0, missing / self._rate.refill_per_second)
            self._timer = asyncio.get_running_loop().call_later(wait, self._serve)


DESCRIBE_RATE: Final = BucketRate(100, 20)
MUTATE_RATE: Final = BucketRate(50, 5)
LAUNCH_RATE: Final = BucketRate(5, 2)
TERMINATE_RATE: Final = BucketRate(100, 5)
CREATE_TAGS_RATE: Final = BucketRate(100, 10)
GET_METRIC_DATA_RATE: Final = BucketRate(50, 50)
LAUNCHED_INSTANCES_RATE: Final = BucketRate(1000, 2)
STOPPED_INSTANCES_RATE: Final = BucketRate(1000, 20)

_REQUEST_RATES: Final = {
    "RunInstances": LAUNCH_RATE,
    "StartInstances": LAUNCH_RATE,
    "TerminateInstances": TERMINATE_RATE,
    "CreateTags": CREATE_TAGS_RATE,
    "GetMetricData": GET_METRIC_DATA_RATE,
    # The documentation gives no limit; the call is rare.
    "GetCallerIdentity": DESCRIBE_RATE,
}
_INSTANCE_RATES: Final = {
    "RunInstances": LAUNCHED_INSTANCES_RATE,
    "StartInstances": LAUNCHED_INSTANCES_RATE,
    "StopInstances": STOPPED_INSTANCES_RATE,
    "TerminateInstances": STOPPED_INSTANCES_RATE,
}


def request_rate(operation: str) -> BucketRate:
    """Return the request limit of an EC2 operation, per account and region."""
    if operation.startswith("Describe"):
        return DESCRIBE_RATE
    return _REQUEST_RATES.get(operation, MUTATE_RATE)


def instance_rate(operation: str) -> BucketRate | None:
    """Return the limit on instances that an EC2 operation may change, over all requests; None if there is none."""
    return _INSTANCE_RATES.get(operation)


class OperationBuckets:
    """The buckets of one account in one region, created when an operation is first used."""

    def __init__(self, part: float = 1.0) -> None:
        self._part = part
        self._requests: dict[str, TokenBucket] = {}
        self._instances: dict[str, TokenBucket] = {}

    def try_take(self, operation: str, instances: int = 0) -> bool:
        """Take the tokens for a request that changes this many instances; False if there are not enough."""
        requests, touched = self._buckets(operation)
        if touched is None or instances == 0:
            return requests.try_take()
        if not requests.try_take():
            return False
        # As with EC2, the request counts even if it exceeds the instance limit.
        return touched.try_take(instances)

    async def take(self, operation: str, instances: int = 0) -> None:
        """Take the tokens for a request that changes this many instances, waiting until they are available."""
        requests, touched = self._buckets(operation)
        if touched is None or instances == 0:
            await requests.take()
            return
        await touched.take(instances)
        try:
            await requests.take()
        except asyncio.CancelledError:
            touched.put_back(instances)
            raise

    def _buckets(self, operation: str) -> tuple[TokenBucket, TokenBucket | None]:
        requests = self._requests.get(operation)
        if requests is None:
            requests = self._requests[operation] = self._bucket(request_rate(operation))
            touched = instance_rate(operation)
            if touched is not None:
                self._instances[operation] = self._bucket(touched)
        return requests, self._instances.get(operation)

    def _bucket(self, rate: BucketRate) -> TokenBucket:
        part = rate.share(self._part)
        return TokenBucket(part.capacity, part.refill_per_second)
