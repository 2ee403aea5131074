"""Events: the list that CML keeps, and the messages to clients of `/ws/ui`."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.cml.simulator.state.clock import SimulatedClock
    from lcm.cml.simulator.state.world import VersionProfile

MAX_TELEMETRY_EVENTS = 5_000
MAX_QUEUED_MESSAGES = 1_000


class Telemetry:
    """The events of a simulated server."""

    def __init__(self, time: SimulatedClock, profile: VersionProfile) -> None:
        self._time = time
        self._profile = profile
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_TELEMETRY_EVENTS)
        self._queues: list[deque[dict[str, Any]]] = []

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events, oldest first."""
        return list(self._events)

    def record(self, category: str, **data: object) -> None:
        """Record an event at the current time."""
        self._events.append({"category": category, "timestamp": self._stamp(), "data": data})

    def restore(self, events: Iterable[dict[str, Any]]) -> None:
        """Replace all events by stored ones."""
        self._events.clear()
        self._events.extend(events)

    def publish(self, message: dict[str, Any]) -> None:
        """Send a message to all listeners."""
        for queue in self._queues:
            queue.append(message)

    def node_changed(self, lab_id: str, node_id: str, state: str) -> None:
        """Notify listeners of a node's new state."""
        self.publish(
            {
                "event_type": "state_change",
                "event": state,
                "element_type": "node",
                "element_id": node_id,
                "lab_id": lab_id,
            }
        )

    def lab_changed(self, lab_id: str, event: str, state: str) -> None:
        """Notify listeners of a change of a lab."""
        self.publish(
            {
                "event_type": "lab_event",
                "event": event,
                "element_type": "lab",
                "element_id": lab_id,
                "lab_id": lab_id,
                "data": {"state": state},
            }
        )

    def listen(self) -> deque[dict[str, Any]]:
        """A queue of messages for a listener. The oldest messages are dropped when it is full."""
        queue: deque[dict[str, Any]] = deque(maxlen=MAX_QUEUED_MESSAGES)
        self._queues.append(queue)
        return queue

    def leave(self, queue: deque[dict[str, Any]]) -> None:
        """Remove a listener."""
        self._queues = [other for other in self._queues if other is not queue]

    def _stamp(self) -> str:
        moment = self._time.wall_time().replace(tzinfo=None)
        text = moment.isoformat(timespec="microseconds" if self._profile.stamp_fraction else "seconds")
        return text + ("Z" if self._profile.stamp_zone else "")
