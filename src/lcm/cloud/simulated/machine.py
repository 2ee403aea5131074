"""A machine of the simulated cloud. Its state is worked out when somebody looks, from deadlines: no timer a machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from lcm.cloud.types import HealthKind, Instance, InstanceState

if TYPE_CHECKING:
    from collections.abc import Mapping

_AFTER: Final = {
    InstanceState.PENDING: InstanceState.RUNNING,
    InstanceState.STOPPING: InstanceState.STOPPED,
    InstanceState.SHUTTING_DOWN: InstanceState.TERMINATED,
}
COMPLETED: Final = "[Completed] "


def moment(timestamp: float) -> datetime:
    """A moment of the simulated world as a date."""
    return datetime.fromtimestamp(timestamp, UTC)


@dataclass(slots=True)
class Event:
    """Maintenance that the provider announced."""

    detail: str
    not_before: float

    @property
    def completed(self) -> bool:
        """It has happened, or was called off; it is shown for a week still."""
        return self.detail.startswith("[")


@dataclass(slots=True)
class Machine:
    """One machine. Times are seconds since 1970."""

    id: str
    serial: int
    instance_type: str
    image_id: str
    subnet_id: str | None
    tags: Mapping[str, str]
    launched_at: float
    visible_at: float
    private_ip: str
    public_ip: str | None
    state: InstanceState = InstanceState.PENDING
    due: float | None = None
    ended_at: float | None = None
    reason: str = ""
    impaired: set[HealthKind] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    _shown: Instance | None = None
    _before: Instance | None = None
    _changed_at: float = 0.0

    def enter(self, state: InstanceState, now: float, due: float | None, reason: str = "") -> None:
        """Go into a state, on the way to the next one until `due`."""
        self._before = self.show()
        self._changed_at = now
        self.state = state
        self.due = due
        self.reason = reason
        self._shown = None
        if state is not InstanceState.RUNNING:
            self.impaired.clear()
        if state in (InstanceState.STOPPED, InstanceState.TERMINATED):
            self.public_ip = None

    def settle(self, now: float) -> None:
        """Catch up with what has become of it by itself."""
        if self.due is None or now < self.due:
            return
        if self.state is InstanceState.SHUTTING_DOWN:
            self.ended_at = self.due
        self.enter(_AFTER[self.state], self.due, None, self.reason)

    def show(self) -> Instance:
        """How it is described; the same object until it changes, so that a sweep over all of them costs little."""
        if self._shown is None:
            self._shown = Instance(
                id=self.id,
                state=self.state,
                instance_type=self.instance_type,
                image_id=self.image_id,
                launched_at=moment(self.launched_at),
                public_ip=self.public_ip,
                private_ip=None if self.state is InstanceState.TERMINATED else self.private_ip,
                subnet_id=self.subnet_id,
                tags=self.tags,
                state_reason=self.reason,
            )
        return self._shown

    def show_as_of(self, moment: float) -> Instance:
        """How a reader sees it who has not heard of anything later; only the last change is remembered."""
        if self._changed_at > moment and self._before is not None:
            return self._before
        return self.show()

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "id": self.id,
            "serial": self.serial,
            "instance_type": self.instance_type,
            "image_id": self.image_id,
            "subnet_id": self.subnet_id,
            "tags": dict(self.tags),
            "launched_at": self.launched_at,
            "visible_at": self.visible_at,
            "private_ip": self.private_ip,
            "public_ip": self.public_ip,
            "state": self.state.value,
            "due": self.due,
            "ended_at": self.ended_at,
            "reason": self.reason,
            "impaired": sorted(kind.value for kind in self.impaired),
            "events": [[event.detail, event.not_before] for event in self.events],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Machine:
        """What `to_json` made."""
        return cls(
            **{
                **stored,
                "state": InstanceState(stored["state"]),
                "impaired": {HealthKind(kind) for kind in stored["impaired"]},
                "events": [Event(detail, not_before) for detail, not_before in stored["events"]],
            }
        )
