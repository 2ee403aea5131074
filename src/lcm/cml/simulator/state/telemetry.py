"""Events: the list that CML keeps, and the messages to clients of `/ws/ui`."""

from __future__ import annotations

import json
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lcm.cml.simulator.state.clock import SimulatedClock
    from lcm.cml.simulator.state.world import VersionProfile

MAX_TELEMETRY_EVENTS = 5_000
MAX_QUEUED_MESSAGES = 1_000
_EVENTS_PER_CHUNK = 500


class Telemetry:
    """The events of a simulated server."""

    def __init__(self, time: SimulatedClock, profile: VersionProfile) -> None:
        self._time = time
        self._profile = profile
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_TELEMETRY_EVENTS)
        self._queues: list[deque[dict[str, Any]]] = []
        self.older_events = 0  # events of the past, which are listed first and are not kept in memory
        self.utc_offset = timedelta(0)  # of the server's local time

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events, oldest first."""
        return list(self._events)

    def stream(self) -> Iterator[bytes]:
        """The JSON list of all events in pieces, however long it is."""
        yield b"["
        if self.older_events:
            past = (self._time.wall_time() - timedelta(days=1000)).replace(tzinfo=None).isoformat(timespec="seconds")
            older = json.dumps({"category": "system_stats", "timestamp": past, "data": {"cpu_percent": 2.0}}).encode()
            for begin in range(0, self.older_events, _EVENTS_PER_CHUNK):
                count = min(_EVENTS_PER_CHUNK, self.older_events - begin)
                is_last = begin + count == self.older_events and not self._events
                yield b", ".join([older] * count) + (b"" if is_last else b", ")
        events = self.events
        for begin in range(0, len(events), _EVENTS_PER_CHUNK):
            part = events[begin : begin + _EVENTS_PER_CHUNK]
            yield json.dumps(part)[1:-1].encode() + (b", " if begin + len(part) < len(events) else b"")
        yield b"]"

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
        precision = "microseconds" if self._profile.stamp_fraction else "seconds"
        moment = self._time.wall_time().replace(tzinfo=None)
        if self._profile.stamp_zone:
            return moment.isoformat(timespec=precision) + "Z"
        return (moment + self.utc_offset).isoformat(timespec=precision)
