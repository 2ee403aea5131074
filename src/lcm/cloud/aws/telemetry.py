"""What is counted of calls to AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class CallMetrics:
    """The families of one registry, shared by all providers that use it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = Counter("lcm_aws_calls_total", "Calls by outcome", ["operation", "outcome"], registry=registry)
        self.throttled = Counter(
            "lcm_aws_throttled_total", "Replies that said too many calls", ["operation"], registry=registry
        )
        self.seconds = Histogram(
            "lcm_aws_call_seconds",
            "Duration of a call with its retries, without waiting for its turn",
            ["operation"],
            buckets=_SECONDS,
            registry=registry,
        )

    def ended(self, operation: str, outcome: str, seconds: float) -> None:
        """A call has ended."""
        self.calls.labels(operation, outcome).inc()
        self.seconds.labels(operation).observe(seconds)

    def was_throttled(self, operation: str, times: int = 1) -> None:
        """Replies said that there were too many calls, whether or not they were repeated."""
        self.throttled.labels(operation).inc(times)


_families: MutableMapping[CollectorRegistry, CallMetrics] = WeakKeyDictionary()


def call_metrics(registry: CollectorRegistry = REGISTRY) -> CallMetrics:
    """The families of a registry, made at the first asking."""
    found = _families.get(registry)
    if found is None:
        found = _families[registry] = CallMetrics(registry)
    return found
