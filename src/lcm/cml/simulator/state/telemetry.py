"""What happened: the list that CML keeps, and the messages to whoever listens on `/ws/ui`."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.cml.simulator.state.clock import SimulatedClock
    from lcm.cml.simulator.state.versions import VersionProfile

MAX_TELEMETRY_EVENTS = 5_000
MAX_QUEUED_MESSAGES = 1_000


class Telemetry:
    """Events of the simulated world, all from the same transitions."""

    def __init__(self, time: SimulatedClock, profile: VersionProfile) -> None:
        self._time = time
        self._profile = profile
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_TELEMETRY_EVENTS)
        self._mailboxes: list[deque[dict[str, Any]]] = []

    @property
    def events(self) -> list[dict[str, Any]]:
        """The list, oldest first."""
        return list(self._events)

    def note(self, category: str, **data: object) -> None:
        """Something happened now."""
        self._events.append({"category": category, "timestamp": self._stamp(), "data": data})

    def put_back(self, events: Iterable[dict[str, Any]]) -> None:
        """Have had these events, and only these."""
        self._events.clear()
        self._events.extend(events)

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message to all listeners."""
        for mailbox in self._mailboxes:
            mailbox.append(message)

    def node_changed(self, lab_id: str, node_id: str, state: str) -> None:
        """Tell listeners of a node's new state."""
        self.tell(
            {
                "event_type": "state_change",
                "event": state,
                "element_type": "node",
                "element_id": node_id,
                "lab_id": lab_id,
            }
        )

    def lab_changed(self, lab_id: str, event: str, state: str) -> None:
        """Tell listeners of a lab."""
        self.tell(
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
        """A mailbox for a listener; the oldest messages are lost when nobody empties it."""
        mailbox: deque[dict[str, Any]] = deque(maxlen=MAX_QUEUED_MESSAGES)
        self._mailboxes.append(mailbox)
        return mailbox

    def leave(self, mailbox: deque[dict[str, Any]]) -> None:
        """The listener has gone."""
        self._mailboxes = [other for other in self._mailboxes if other is not mailbox]

    def _stamp(self) -> str:
        moment = self._time.stamp().replace(tzinfo=None)
        text = moment.isoformat(timespec="microseconds" if self._profile.stamp_fraction else "seconds")
        return text + ("Z" if self._profile.stamp_zone else "")
