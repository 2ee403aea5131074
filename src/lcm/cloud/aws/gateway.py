"""The only way to AWS from the event loop: paced, bounded, counted, and never blocking.

Each region has its own gateway, since AWS counts calls by account and region. A call first pays at our own bucket,
which holds nine tenths of what AWS documents, then waits for a thread, and only then is it made.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from botocore import xform_name

from lcm.cloud.aws.clients import new_client, new_rehearsing_client, new_session
from lcm.cloud.aws.error_mapping import is_throttling, outcome_of, translate
from lcm.cloud.errors import CloudError
from lcm.cloud.rate_limit import OperationBuckets
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import botocore.session

    from lcm.cloud.aws.config import RegionConfig, Tuning
    from lcm.cloud.aws.telemetry import CallMetrics
    from lcm.cloud.aws.threads import Threads

Parameters: TypeAlias = "Mapping[str, Any]"
Answer: TypeAlias = "Mapping[str, Any]"
Invoke: TypeAlias = "Callable[[str, Parameters], Answer]"

OUR_SHARE = 0.9

_SERVICES = {"GetMetricData": "cloudwatch", "GetCallerIdentity": "sts"}
_CHANGES = frozenset({"RunInstances", "StartInstances", "StopInstances", "TerminateInstances"})
# What a client is for: a read is repeated, a change is sent once, and a rehearsal only asks.
_READING, _CHANGING, _REHEARSING = "reading", "changing", "rehearsing"


class Gateway:
    """Calls in one region."""

    def __init__(self, region: RegionConfig, tuning: Tuning, threads: Threads, metrics: CallMetrics) -> None:
        self.region = region
        self.tuning = tuning
        self.metrics = metrics
        # A sweep parses megabytes: two at once in a region would only slow each other down.
        self.sweeping = asyncio.Lock()
        self._threads = threads
        self._buckets = OperationBuckets(OUR_SHARE)
        self._clients = _Clients(region, tuning, metrics)

    async def pay(self, operation: str, instances: int = 0) -> None:
        """Wait until our own bucket allows the call."""
        await self._buckets.take(operation, instances)

    async def call(self, operation: str, parameters: Parameters) -> Answer:
        """Make a call and give its answer."""
        answer = await self.call_prepared(operation, lambda: parameters)
        assert answer is not None
        return answer

    async def call_prepared(
        self, operation: str, prepare: Callable[[], Parameters | None], instances: int = 0
    ) -> Answer | None:
        """Make a call whose parameters are asked for just before it is sent; None from them means not to send it."""
        await self.pay(operation, instances)
        return await self.call_paid(operation, prepare)

    async def call_paid(self, operation: str, prepare: Callable[[], Parameters | None]) -> Answer | None:
        """A call that has been paid for."""

        def work() -> Callable[[], Answer] | None:
            parameters = prepare()
            return None if parameters is None else partial(self._send, operation, parameters)

        return await self._threads.run(work)

    async def rehearse(self, operation: str, parameters: Parameters, instances: int = 0) -> Answer:
        """Ask EC2 whether a call would be allowed. It goes by a client that can do nothing but ask.

        EC2 says yes by an error of the code DryRunOperation: an answer that is none comes from somebody who acted.
        """
        await self.pay(operation, instances)
        answer = await self._threads.run(lambda: partial(self._send, operation, parameters, self._clients.rehearse))
        assert answer is not None
        return answer

    def _send(self, operation: str, parameters: Parameters, invoke: Invoke | None = None) -> Answer:
        """In a thread: one call to its end."""
        began, outcome = clock.boottime(), "ok"
        try:
            return (invoke or self._clients.invoke)(operation, parameters)
        except CloudError as error:
            outcome = outcome_of(error)
            raise
        finally:
            self.metrics.ended(operation, outcome, clock.boottime() - began)

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()


class _Clients:
    """The clients of a region, made in the thread that first needs them; all of it runs in threads."""

    def __init__(self, region: RegionConfig, tuning: Tuning, metrics: CallMetrics) -> None:
        self._region = region
        self._tuning = tuning
        self._metrics = metrics
        self._lock = threading.Lock()
        self._session: botocore.session.Session | None = None
        self._made: dict[tuple[str, str], Any] = {}

    def invoke(self, operation: str, parameters: Parameters) -> Answer:
        mutating = operation in _CHANGES
        kind = _CHANGING if mutating else _READING
        return self._invoke(_SERVICES.get(operation, "ec2"), kind, operation, parameters)

    def rehearse(self, operation: str, parameters: Parameters) -> Answer:
        """Nothing is changed by this, whatever happens to it on the way."""
        return self._invoke("ec2", _REHEARSING, operation, parameters)

    def _invoke(self, service: str, kind: str, operation: str, parameters: Parameters) -> Answer:
        try:
            client = self._client(service, kind)
            answer: Answer = getattr(client, xform_name(operation))(**parameters)
        except Exception as error:  # botocore's parsers and credential sources raise whatever they like
            changing = kind == _CHANGING
            raise translate(error, operation=operation, region=self._region.region, mutating=changing) from error
        return answer

    def _client(self, service: str, kind: str) -> Any:
        key = (service, kind)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(service, kind)
            return self._made[key]

    def _make(self, service: str, kind: str) -> Any:
        if self._session is None:
            self._session = new_session(self._region, self._tuning)
        if kind == _REHEARSING:
            client = new_rehearsing_client(self._session, self._region, self._tuning)
        else:
            client = new_client(self._session, service, self._region, self._tuning, mutating=kind == _CHANGING)
        client.meta.events.register(f"needs-retry.{service}", self._look_for_throttling)
        return client

    def _look_for_throttling(self, response: Any, operation: Any, **_: Any) -> None:
        """Sees each attempt's answer, also of those that are repeated."""
        if response is not None and is_throttling(response[1]):
            self._metrics.was_throttled(operation.name)

    def close(self) -> None:
        with self._lock:
            for client in self._made.values():
                client.close()
            self._made.clear()
