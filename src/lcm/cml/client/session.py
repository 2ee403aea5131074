"""What calls to CML servers cost and how they end."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 90.0)


class CallMetrics:
    """The families of one registry, shared by all clients that use it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = Counter(
            "lcm_cml_calls_total", "Calls to CML by operation and outcome", ["operation", "outcome"], registry=registry
        )
        self.seconds = Histogram(
            "lcm_cml_call_seconds", "Duration of a call to CML", ["operation"], buckets=_BUCKETS, registry=registry
        )


_known: WeakKeyDictionary[CollectorRegistry, CallMetrics] = WeakKeyDictionary()


def call_metrics(registry: CollectorRegistry = REGISTRY) -> CallMetrics:
    """The families of a registry, made on first use."""
    if registry not in _known:
        _known[registry] = CallMetrics(registry)
    return _known[registry]
