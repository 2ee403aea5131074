"""Metrics of the client: calls by operation and outcome, and their duration, retries included."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Histogram

from lcm.client.errors import ClientError
from lcm.core.controller.metrics import DURATION_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator


class ClientMetrics:
    """The metrics of one registry, shared by all clients that use it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "lcm_client_calls_total",
            "Calls of the control plane by operation and outcome",
            ["operation", "outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "lcm_client_call_seconds",
            "Duration of calls of the control plane, retries included",
            ["operation"],
            buckets=DURATION_BUCKETS,
            registry=registry,
        )

    @contextmanager
    def measured(self, operation: str) -> Iterator[None]:
        """Count the block as one call."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome = "failed"
        try:
            yield
            outcome = "ok"
        except ClientError as error:
            outcome = error.outcome
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self._calls.labels(operation, outcome).inc()
            self._seconds.labels(operation).observe(loop.time() - began)


_metrics_by_registry: WeakKeyDictionary[CollectorRegistry, ClientMetrics] = WeakKeyDictionary()


def client_metrics(registry: CollectorRegistry) -> ClientMetrics:
    """The metrics of a registry, created on first use."""
    if registry not in _metrics_by_registry:
        _metrics_by_registry[registry] = ClientMetrics(registry)
    return _metrics_by_registry[registry]
