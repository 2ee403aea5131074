"""A machine of the simulated cloud. Its state is computed from deadlines on each read, without a timer per machine."""

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


def to_datetime(timestamp: float) -> datetime:
    """Convert a timestamp of the simulation to a datetime."""
    return datetime.fromtimestamp(timestamp, UTC)


def _is_metal(instance_type: str) -> bool:
    return instance_type.partition(".")[2].startswith("metal")


@dataclass(slots=True)
class MaintenanceEvent:
    """Maintenance scheduled by the provider."""

    detail: str
    not_before: float
    completed: bool = False  # EC2 still lists it for a week


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
    nested_virtualization: bool = False
    _shown: Instance | None = None
    _before: Instance | None = None
    _changed_at: float = 0.0

    @property
    def has_kvm(self) -> bool:
        """Whether what runs on it can run virtual machines."""
        return self.nested_virtualization or _is_metal(self.instance_type)

    def enter(self, state: InstanceState, now: float, due: float | None, reason: str = "") -> None:
        """Enter a state, which lasts until `due` if it is transitional."""
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
        """Apply the transition that is due."""
        if self.due is None or now < self.due:
            return
        if self.state is InstanceState.SHUTTING_DOWN:
            self.ended_at = self.due
        self.enter(_NEXT_STATE[self.state], self.due, None, self.reason)

    def show(self) -> Instance:
        """Return its description; the same object until it changes, which makes sweeps cheap."""
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
        """Return its description as of an earlier time; only the last change is remembered."""
        if self._changed_at > to_datetime and self._before is not None:
            return self._before
        return self.show()

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
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
            "events": [[event.detail, event.not_before, event.completed] for event in self.events],
            "nested_virtualization": self.nested_virtualization,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Machine:
        """Restore a machine from `to_json`."""
        return cls(
            **{
                **stored,
                "state": InstanceState(stored["state"]),
                "impaired": {HealthKind(kind) for kind in stored["impaired"]},
                "events": [_event_from_json(*event) for event in stored["events"]],
            }
        )


def _event_from_json(detail: str, not_before: float, completed: bool | None = None) -> MaintenanceEvent:
    # Files of version 0.1.0 have no third value: there, a completed event begins with "[Completed]", as in EC2.
    if completed is None:
        completed, detail = detail.startswith("["), detail.removeprefix("[Completed] ")
    return MaintenanceEvent(detail, not_before, completed)


DurationRange = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in the simulated cloud: ranges in seconds, from which each event gets a random value."""

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
    read_deadline: float = 60.0

    def of(self, span: DurationRange, instance_type: str, chance: Random) -> float:
        """Return a random duration for a machine of this type: bare metal takes longer to check its hardware."""
        factor = self.metal_factor if _is_metal(instance_type) else 1.0
        return chance.uniform(*span) * factor
