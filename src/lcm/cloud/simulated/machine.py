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


EVENT_LAG: Final = 240.0
"""How long an event is listed as if nothing had happened after the instance has left its host."""
CHECK_SECONDS: Final = 120.0
"""How long the status checks of an instance have no result after it has begun to run."""
_STOPPING_CODES: Final = ("instance-stop", "instance-retirement")
_STOP_SECONDS: Final = 30.0
_EARLIER_SHOWN: Final = 3


@dataclass(slots=True)
class MaintenanceEvent:
    """Maintenance scheduled by the provider. EC2 still lists it for a week after it is completed or canceled."""

    detail: str
    not_before: float
    completed: bool = False
    code: str = "system-reboot"
    canceled: bool = False
    left_host_at: float | None = None  # when the instance was started on another host

    def is_listed_as_open(self, now: float) -> bool:
        """Whether EC2 lists it without saying that it is over: some minutes longer than the instance is on its host."""
        if self.completed or self.canceled:
            return False
        return self.left_host_at is None or now < self.left_host_at + EVENT_LAG


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
    _earlier: tuple[tuple[float, Instance], ...] = ()  # what it showed until which time, the last few
    _changed_at: float = 0.0

    @property
    def has_kvm(self) -> bool:
        """Whether what runs on it can run virtual machines."""
        return self.nested_virtualization or _is_metal(self.instance_type)

    def enter(self, state: InstanceState, now: float, due: float | None, reason: str = "") -> None:
        """Enter a state, which lasts until `due` if it is transitional."""
        self._earlier = (*self._earlier[-_EARLIER_SHOWN:], (now, self.show()))
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

    @property
    def next_event_at(self) -> float | None:
        """When the next scheduled event begins."""
        times = [each.not_before for each in self.events if not (each.completed or each.canceled or each.left_host_at)]
        return min(times, default=None)

    def begin_events(self, now: float) -> None:
        """Carry out the events that are due: a stop, or a reboot, which is over before anything notices it."""
        for event in self.events:
            if event.completed or event.canceled or event.left_host_at is not None or now < event.not_before:
                continue
            event.completed = True
            if event.code in _STOPPING_CODES and self.state is InstanceState.RUNNING:
                reason = f"Server.ScheduledStop ({to_datetime(event.not_before):%Y-%m-%d %H:%M:%S} UTC)"
                self.enter(InstanceState.STOPPING, event.not_before, event.not_before + _STOP_SECONDS, reason)

    def leave_host(self, now: float) -> None:
        """It is started on another host: the events of the old one no longer concern it."""
        for event in self.events:
            if event.left_host_at is None:
                event.left_host_at = now

    def are_checks_pending(self, now: float) -> bool:
        """Whether its status checks have no result yet."""
        return self.state is InstanceState.RUNNING and now < self._changed_at + CHECK_SECONDS

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
        """Return its description as of an earlier time; only the last few changes are remembered."""
        if self._changed_at > to_datetime:
            for until, shown in self._earlier:
                if until > to_datetime:
                    return shown
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
            "events": [
                [each.detail, each.not_before, each.completed, each.code, each.canceled, each.left_host_at]
                for each in self.events
            ],
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


def _event_from_json(detail: str, not_before: float, completed: bool | None = None, *newer: Any) -> MaintenanceEvent:
    # Files of version 0.1.0 have no third value: there, a completed event begins with "[Completed]", as in EC2.
    if completed is None:
        completed, detail = detail.startswith("["), detail.removeprefix("[Completed] ")
    return MaintenanceEvent(detail, not_before, completed, *newer)


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
