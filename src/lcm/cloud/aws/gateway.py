"""All calls to AWS go through a gateway: rate limited, bounded, counted, and never blocking the event loop.

Each region has its own gateway and threads, because AWS limits calls by account and region, and because a region that
does not respond must not delay the others. A call first takes a token from our own bucket, which has 90 % of the
documented limit, then waits for a thread, and is sent only then. A mutating call that may no longer be sent after one
of these waits is dropped.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from botocore import xform_name
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from lcm.cloud.aws.clients import new_client, new_dry_run_client, new_session, reading_within
from lcm.cloud.aws.error_mapping import is_throttling, outcome_label, translate_error
from lcm.cloud.errors import CloudAuthenticationError, CloudError, CloudUnreachableError
from lcm.cloud.rate_limit import OperationBuckets
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError, check_may_send, wait_while_authorized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    import botocore.session

    from lcm.cloud.aws.config import RegionConfig, Tuning


Parameters: TypeAlias = "Mapping[str, Any]"
Response: TypeAlias = "Mapping[str, Any]"
Invoke: TypeAlias = "Callable[[str, Parameters], Response]"

BUCKET_SHARE = 0.9
NOT_SENT = "not_sent"
REFUSED_CLIENT_SECONDS = 30.0
"""Clients whose credentials were refused are used so long before others are made: making one takes CPU time."""

_SERVICE_BY_OPERATION = {"GetMetricData": "cloudwatch", "GetCallerIdentity": "sts"}
_MUTATING_OPERATIONS = frozenset({"RunInstances", "StartInstances", "StopInstances", "TerminateInstances"})
OPERATIONS = (
    *sorted(_MUTATING_OPERATIONS),
    *("DescribeInstances", "DescribeInstanceStatus", "DescribeInstanceTypes", "DescribeImages"),
    *("GetMetricData", "GetCallerIdentity"),
)
"""Every operation that LCM calls. deploy/iam-policy.json allows these."""
_ALERTED_OUTCOMES = ("denied", "quota", "unauthenticated")
# The purpose of a client: reads are retried, mutations are sent once, and dry runs change nothing.
_READING, _CHANGING, _REHEARSING = "reading", "changing", "rehearsing"


class AwsGateway:
    """Calls to AWS in one region."""

    def __init__(
        self, region: RegionConfig, tuning: Tuning, threads: BoundedThreadPool, metrics: AwsCallMetrics
    ) -> None:
        self.region = region
        self.tuning = tuning
        self.metrics = metrics
        # A sweep parses megabytes: two concurrent sweeps of a region would only slow each other down.
        self.sweeping = asyncio.Lock()
        self._threads = threads
        self._buckets = OperationBuckets(BUCKET_SHARE)
        self._clients = _ClientCache(region, tuning, metrics)

    async def wait_for_token(self, operation: str, instances: int = 0) -> None:
        """Wait until our own rate limit allows the call."""
        await wait_while_authorized(self._buckets.take(operation, instances))

    async def call(self, operation: str, parameters: Parameters) -> Response:
        """Make a call and return its response."""
        response = await self.call_prepared(operation, lambda: parameters)
        assert response is not None
        return response

    async def call_prepared(
        self, operation: str, prepare: Callable[[], Parameters | None], instances: int = 0
    ) -> Response | None:
        """Make a call whose parameters are requested just before it is sent; if they are None, it is not sent."""
        try:
            await self.wait_for_token(operation, instances)
            return await self.call_without_wait(operation, prepare)
        except NotAuthorizedError:
            self.metrics.calls.labels(operation, NOT_SENT).inc()
            raise

    async def call_without_wait(self, operation: str, prepare: Callable[[], Parameters | None]) -> Response | None:
        """Make a call that has already waited for the rate limit."""

        def work() -> Callable[[], Response] | None:
            check_may_send()
            parameters = prepare()
            return None if parameters is None else partial(self._send, operation, parameters)

        return await self._threads.run(work)

    async def dry_run(self, operation: str, parameters: Parameters, instances: int = 0) -> Response:
        """Ask EC2 whether a call would be allowed, through a client that sends nothing but dry runs.

        EC2 confirms with the error code DryRunOperation: a normal response means that the endpoint executed the call.
        """
        await self.wait_for_token(operation, instances)
        response = await self._threads.run(lambda: partial(self._send, operation, parameters, self._clients.dry_run))
        assert response is not None
        return response

    def _send(self, operation: str, parameters: Parameters, invoke: Invoke | None = None) -> Response:
        """Run one call in a thread."""
        began, outcome = clock.boottime(), "ok"
        mutating = operation in _MUTATING_OPERATIONS and invoke is None
        try:
            with nullcontext() if mutating else reading_within(self.tuning.read_deadline):
                return (invoke or self._clients.invoke)(operation, parameters)
        except NotAuthorizedError:
            outcome = ""  # it was not sent and is counted as such
            raise
        except CloudError as error:
            outcome = outcome_label(error)
            raise
        finally:
            if outcome:
                self.metrics.ended(operation, outcome, clock.boottime() - began)

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()


class _ClientCache:
    """The clients of a region, created by the thread that first needs them. All methods run in threads."""

    def __init__(self, region: RegionConfig, tuning: Tuning, metrics: AwsCallMetrics) -> None:
        self._region = region
        self._tuning = tuning
        self._metrics = metrics
        self._lock = threading.Lock()
        self._session: botocore.session.Session | None = None
        self._session_made_at = 0.0
        self._made: dict[tuple[str, str], Any] = {}

    def invoke(self, operation: str, parameters: Parameters) -> Response:
        mutating = operation in _MUTATING_OPERATIONS
        kind = _CHANGING if mutating else _READING
        return self._invoke(_SERVICE_BY_OPERATION.get(operation, "ec2"), kind, operation, parameters)

    def dry_run(self, operation: str, parameters: Parameters) -> Response:
        """A dry run changes nothing, so a lost response does not leave the outcome unknown."""
        return self._invoke("ec2", _REHEARSING, operation, parameters)

    def _invoke(self, service: str, kind: str, operation: str, parameters: Parameters) -> Response:
        try:
            client = self._client(service, kind)
            response: Response = getattr(client, xform_name(operation))(**parameters)
        except Exception as error:  # botocore's parsers and credential providers may raise anything
            kept_back = error if isinstance(error, NotAuthorizedError) else getattr(error, "kwargs", {}).get("error")
            if isinstance(kept_back, NotAuthorizedError):
                raise kept_back from None
            changing = kind == _CHANGING
            failure = translate_error(error, operation=operation, region=self._region.region, mutating=changing)
            if isinstance(failure, CloudAuthenticationError):
                self._forget_refused()
            raise failure from error
        return response

    def _client(self, service: str, kind: str) -> Any:
        key = (service, kind)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(service, kind)
            return self._made[key]

    def _make(self, service: str, kind: str) -> Any:
        if self._session is None:
            self._session = new_session(self._region, self._tuning)
            self._session_made_at = clock.boottime()
        if kind == _REHEARSING:
            client = new_dry_run_client(self._session, self._region, self._tuning)
        else:
            client = new_client(self._session, service, self._region, self._tuning, mutating=kind == _CHANGING)
        client.meta.events.register(f"needs-retry.{service}", self._count_throttling)
        return client

    def _forget_refused(self) -> None:
        """Let the next call read the credentials again: they may have been renewed at their source.

        The clients are not closed, because other threads may be using them.
        """
        with self._lock:
            if clock.boottime() - self._session_made_at >= REFUSED_CLIENT_SECONDS:
                self._session = None
                self._made.clear()

    def _count_throttling(self, response: Any, operation: Any, **_: Any) -> None:
        """Called with the response of each attempt, including those that are retried."""
        if response is not None and is_throttling(response[1]):
            self._metrics.was_throttled(operation.name)

    def close(self) -> None:
        with self._lock:
            for client in self._made.values():
                client.close()
            self._made.clear()


R = TypeVar("R")


class BoundedThreadPool:
    """Runs at most `size` blocking calls of a region at once.

    A thread cannot be cancelled. So a call waits for its turn on the event loop, where cancelling is free, and a call
    that a thread has begun occupies that thread until it ends, even if its caller was cancelled.
    """

    def __init__(self, size: int, region: str, metrics: AwsCallMetrics) -> None:
        self._size = size
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=f"lcm-aws-{region}")
        self._free = asyncio.Semaphore(size)
        self._busy = metrics.threads_busy.labels(region)
        self._waiting = metrics.calls_waiting.labels(region)
        self._busy.set(0)
        self._waiting.set(0)

    async def run(self, prepare: Callable[[], Callable[[], R] | None]) -> R | None:
        """Wait for a thread, ask `prepare` for the work, and run it. None: there is nothing left to do."""
        with self._waiting.track_inprogress():
            await wait_while_authorized(self._free.acquire())
        try:
            work = prepare()
            if work is None:
                self._free.release()
                return None
            future = self._submit(work)
            self._busy.inc()
        except BaseException:
            self._free.release()
            raise
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda ended: self._ended(loop, ended))
        return await asyncio.wrap_future(future)

    def _submit(self, work: Callable[[], R]) -> Future[R]:
        try:
            return self._pool.submit(copy_context().run, work)
        except RuntimeError as error:
            raise CloudUnreachableError("not sent: the AWS provider is closed") from error

    def _ended(self, loop: asyncio.AbstractEventLoop, _: Future[R]) -> None:
        self._busy.dec()
        # The loop may be closed by the time the last call ends.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._free.release)

    async def close(self, patience: float) -> None:
        """Accept no more calls, and wait up to `patience` seconds for those in progress."""
        taken = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while taken < self._size:
                    await self._free.acquire()
                    taken += 1
        self._pool.shutdown(wait=False, cancel_futures=True)
        # Waiting and later callers get a turn, in which they learn that the pool is closed.
        for _ in range(taken):
            self._free.release()


_DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class AwsCallMetrics:
    """The metrics of calls to AWS in one registry, shared by all providers that use it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = Counter("lcm_aws_calls_total", "Calls by outcome", ["operation", "outcome"], registry=registry)
        self.threads_busy = Gauge(
            "lcm_aws_threads_busy", "Threads that wait for a response of AWS", ["region"], registry=registry
        )
        self.calls_waiting = Gauge(
            "lcm_aws_calls_waiting", "Calls that wait for a free thread", ["region"], registry=registry
        )
        self.throttled = Counter("lcm_aws_throttled_total", "Throttled responses", ["operation"], registry=registry)
        self.seconds = Histogram(
            "lcm_aws_call_seconds",
            "Duration of a call with its retries, without the wait for the rate limit",
            ["operation"],
            buckets=_DURATION_BUCKETS,
            registry=registry,
        )

        # A counter that is first seen at 1 has not increased for Prometheus: alerts would miss the first event.
        for operation in OPERATIONS:
            self.throttled.labels(operation)
            for outcome in _ALERTED_OUTCOMES:
                self.calls.labels(operation, outcome)

    def ended(self, operation: str, outcome: str, seconds: float) -> None:
        """Count a finished call."""
        self.calls.labels(operation, outcome).inc()
        self.seconds.labels(operation).observe(seconds)

    def was_throttled(self, operation: str, times: int = 1) -> None:
        """Count throttled responses, including those that were retried."""
        self.throttled.labels(operation).inc(times)


_METRICS_BY_REGISTRY: MutableMapping[CollectorRegistry, AwsCallMetrics] = WeakKeyDictionary()


def aws_call_metrics(registry: CollectorRegistry = REGISTRY) -> AwsCallMetrics:
    """Return the metrics of a registry, created on first use."""
    found = _METRICS_BY_REGISTRY.get(registry)
    if found is None:
        found = _METRICS_BY_REGISTRY[registry] = AwsCallMetrics(registry)
    return found
