"""Behaviour of EC2 over time that moto lacks: held states, hidden instances, spent tokens, failed checks.

moto lives once in a process, and so does this; a bed begins with `RULES.reset()`.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}

_TRANSITION_SECONDS = 0.25


@dataclass(slots=True)
class Token:
    """A client token that was used."""

    parameters: Any
    reservation: Any


class Rules:
    """The state that moto lacks."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        self.held = False
        self._frozen: float | None = None
        self.hide_seconds = 0.0
        self.image_page = 1000
        self.ignore_owners = False
        self.instances: dict[str, Any] = {}
        self.tokens: dict[tuple[str, ...], Token] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.impaired: dict[str, set[str]] = {}
        self._transitions: dict[str, tuple[str, float]] = {}
        self._hidden: dict[str, float] = {}
        self._serials: dict[str, int] = {}

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Let no time pass while a request is served: its response shows the state that it began, however slow."""
        with self.lock:
            self._frozen = time.monotonic()
            try:
                yield
            finally:
                self._frozen = None

    def _now(self) -> float:
        return time.monotonic() if self._frozen is None else self._frozen

    # Instances

    def born(self, instance: Any) -> None:
        """Called when moto has created an instance."""
        self._serials[instance.id] = len(self._serials) + 1
        self.instances[instance.id] = instance

    def launched(self, instance: Any) -> None:
        """An instance was launched and is pending."""
        self.enter(instance.id, "pending")
        if self.hide_seconds > 0:
            self._hidden[instance.id] = self._now() + self.hide_seconds

    def serial(self, instance: Any) -> int:
        """Instances are listed in the order of their launch."""
        return self._serials[instance.id]

    def visible(self, backend: Any) -> Iterator[Any]:
        """Return the visible instances of a region, in order."""
        now = self._now()
        for instance in list(self.instances.values()):
            if instance.ec2_backend is backend and self._hidden.get(instance.id, 0.0) <= now:
                yield instance

    def reveal(self) -> None:
        self.hide_seconds = 0.0
        self._hidden.clear()

    def forget_terminated(self) -> None:
        for instance in list(self.instances.values()):
            if instance.state == "terminated":
                del self.instances[instance.id]

    # States

    def enter(self, instance_id: str, state: str) -> None:
        """Begin a transition to the state that moto has set already."""
        self._transitions[instance_id] = (state, self._now() + _TRANSITION_SECONDS)

    def transition(self, instance_id: str) -> str | None:
        """Return the transitional state, while it lasts."""
        under_way = self._transitions.get(instance_id)
        if under_way is None:
            return None
        state, until = under_way
        if self.held or self._now() < until:
            return state
        del self._transitions[instance_id]
        return None

    # Health

    def announce(self, instance_id: str, detail: str, not_before: datetime) -> None:
        event = {"InstanceEventId": "instance-event-0", "Code": "system-reboot", "Description": detail}
        self.events.setdefault(instance_id, []).append({**event, "NotBefore": not_before})

    def move_events(self, instance_id: str, not_before: datetime) -> None:
        for event in self.events.get(instance_id, ()):
            event["NotBefore"] = not_before

    def end_events(self, instance_id: str, prefix: str) -> None:
        for event in self.events.get(instance_id, ()):
            event["Description"] = f"{prefix} {event['Description']}"

    def heal(self, instance_id: str) -> None:
        self.events.pop(instance_id, None)
        self.impaired.pop(instance_id, None)


RULES = Rules()
