"""A machine of the simulated cloud. Its state is worked out when somebody looks, from deadlines: no timer a machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from lcm.cloud.types import HealthKind, Instance, InstanceState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random


_NEXT_STATE: Final = {
    InstanceState.PENDING: InstanceState.RUNNING,
    InstanceState.STOPPING: InstanceState.STOPPED,
    InstanceState.SHUTTING_DOWN: InstanceState.TERMINATED,
}
COMPLETED_PREFIX: Final = "[Completed] "


def to_datetime(timestamp: float) -> datetime:
    """A moment of the simulated world as a date."""
    return datetime.fromtimestamp(timestamp, UTC)


@dataclass(slots=True)
class MaintenanceEvent:
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
    events: list[MaintenanceEvent] = field(default_factory=list)
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
        self.enter(_NEXT_STATE[self.state], self.due, None, self.reason)

    def show(self) -> Instance:
        """How it is described; the same object until it changes, so that a sweep over all of them costs little."""
        if self._shown is None:
            self._shown = Instance(
                id=self.id,
                state=self.state,
                instance_type=self.instance_type,
                image_id=self.image_id,
                launched_at=to_datetime(self.launched_at),
                public_ip=self.public_ip,
                private_ip=None if self.state is InstanceState.TERMINATED else self.private_ip,
                subnet_id=self.subnet_id,
                tags=self.tags,
                state_reason=self.reason,
            )
        return self._shown

    def show_as_of(self, to_datetime: float) -> Instance:
        """How a reader sees it who has not heard of anything later; only the last change is remembered."""
        if self._changed_at > to_datetime and self._before is not None:
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
                "events": [MaintenanceEvent(detail, not_before) for detail, not_before in stored["events"]],
            }
        )


DurationRange = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Timing:
    """Ranges in seconds, from which each event draws its own."""

    pending: DurationRange = (8.0, 30.0)
    stopping: DurationRange = (15.0, 60.0)
    shutting_down: DurationRange = (10.0, 45.0)
    metal_factor: float = 8.0
    visible_after: DurationRange = (0.0, 3.0)
    terminated_shown: float = 3600.0
    token_kept: float = 86400.0
    latency: DurationRange = (0.02, 0.2)
    page_latency: DurationRange = (0.05, 0.4)
    read_timeout: float = 30.0

    def of(self, span: DurationRange, instance_type: str, chance: Random) -> float:
        """One duration for a machine of this type: bare metal checks its hardware and takes its time."""
        factor = self.metal_factor if instance_type.partition(".")[2].startswith("metal") else 1.0
        return chance.uniform(*span) * factor
