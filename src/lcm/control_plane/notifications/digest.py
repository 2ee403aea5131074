"""What a subscription sends next: one alert, a digest of many, or nothing yet. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from lcm.control_plane.notifications.messages import Notification

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.model.notification.alert import Alert
    from lcm.model.notification.subscription import DeliveryState

MAX_DIGEST_ALERTS = 1000
MAX_DIGEST_BYTES = 900_000
"""What a digest may take: many proxies refuse bodies above 1 MB."""
LINKS_BYTES = 400
"""What the links of an alert take in a message, at most."""
MESSAGES_PER_WINDOW = 10
"""How many messages a target gets within a window before the rest waits for a digest."""


@dataclass(frozen=True, slots=True)
class PendingAlert:
    """An alert to deliver, with its cursor in the journal and its size there."""

    cursor: str
    alert: Alert
    size: int = 0


@dataclass(frozen=True, slots=True)
class Send:
    """Send this notification now. `through`: all alerts up to this cursor are delivered with it."""

    notification: Notification
    through: str
    starts_window: bool
    is_digest: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Send nothing for so many seconds: a digest is being gathered."""

    seconds: float


Choice: TypeAlias = "Send | Wait"


def choose(state: DeliveryState, pending: Sequence[PendingAlert], now: datetime, window_seconds: float) -> Choice:
    """What to do with alerts that wait, oldest first; there is at least one.

    The first messages of a window are sent at once. If there are more, they wait for its end and go as one digest, and
    a new window starts, so that a storm that goes on becomes one digest per window.
    """
    if state.digest_through is not None:
        return _digest([each for each in pending if each.cursor <= state.digest_through] or [pending[0]])
    window = timedelta(seconds=window_seconds)
    age = None if state.window_started_at is None else now - state.window_started_at
    if not window or age is None or not timedelta() <= age < 2 * window:
        return _single(pending[0], starts_window=True)
    full = state.window_count >= MESSAGES_PER_WINDOW
    if age < window:
        return Wait((window - age).total_seconds()) if full else _single(pending[0], starts_window=False)
    if full and len(pending) > 1:
        return _digest(fit_in_message(pending[:MAX_DIGEST_ALERTS]))
    return _single(pending[0], starts_window=True)


def fit_in_message(pending: Sequence[PendingAlert]) -> Sequence[PendingAlert]:
    """The first of them that fit in one message, at least one. The others wait for the next digest."""
    total = 0
    for number, each in enumerate(pending):
        total += each.size + LINKS_BYTES
        if total > MAX_DIGEST_BYTES and number:
            return pending[:number]
    return pending


def _single(pending: PendingAlert, *, starts_window: bool) -> Send:
    return Send(Notification(pending.alert.id, (pending.alert,)), pending.cursor, starts_window)


def _digest(pending: Sequence[PendingAlert]) -> Send:
    alerts = tuple(each.alert for each in pending)
    first, last = pending[0].cursor.lstrip("0") or "0", pending[-1].cursor.lstrip("0") or "0"
    notification_id = f"digest-{first}-{last}" if len(alerts) > 1 else alerts[0].id
    return Send(Notification(notification_id, alerts), pending[-1].cursor, starts_window=True, is_digest=True)
