"""What the mirrors and the stream have counted, read when somebody scrapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from lcm.control_plane.journal.mirror import Mirror
    from lcm.control_plane.journal.sse import EventStream


class ControlPlaneCollector(Collector):
    """Figures of one control plane. Those of several mirrors are one: nobody can do anything about only one of them."""

    def __init__(self, mirrors: Sequence[Mirror], stream: EventStream) -> None:
        self._mirrors = mirrors
        self._stream = stream

    def collect(self) -> Iterator[Metric]:
        """The present figures."""
        lag, pending = max(mirror.lag for mirror in self._mirrors), sum(mirror.pending for mirror in self._mirrors)
        yield GaugeMetricFamily("lcm_mirror_lag_seconds", "How far the mirror is behind", value=lag)
        yield GaugeMetricFamily("lcm_mirror_pending", "Records not yet mirrored", value=pending)
        for name in ("written", "deleted", "mended", "failed", "comparisons"):
            total = sum(getattr(mirror.figures, name) for mirror in self._mirrors)
            yield CounterMetricFamily(f"lcm_mirror_{name}", f"Mirror: {name}", value=total)
        yield GaugeMetricFamily("lcm_stream_clients", "Clients of the event stream", value=self._stream.clients)
        for name in ("opened", "cut_off", "resets", "events"):
            told = getattr(self._stream.figures, name)
            yield CounterMetricFamily(f"lcm_stream_{name}", f"Event stream: {name}", value=told)
