"""Metrics of notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from lcm.control_plane.notifications.sender import NotificationSender

NOTIFICATIONS = Counter("lcm_notifications", "Attempts to deliver notifications", ["target", "outcome"])


class NotificationCollector(Collector):
    """What waits, read at scrape time."""

    def __init__(self, sender: NotificationSender) -> None:
        self._sender = sender

    def collect(self) -> Iterator[Metric]:
        """The metrics of this process: those of a control plane that does not send are 0."""
        status = self._sender.status()
        yield GaugeMetricFamily("lcm_notification_sender", "1 in the control plane that sends", value=status.sending)
        yield GaugeMetricFamily(
            "lcm_notification_lag_seconds", "Age of the oldest alert that waits for its delivery", value=status.lag
        )
        yield GaugeMetricFamily(
            "lcm_notification_targets_failing",
            "Subscriptions whose last delivery failed or was rejected, or whose record or secrets cannot be read",
            value=len(status.failing),
        )
