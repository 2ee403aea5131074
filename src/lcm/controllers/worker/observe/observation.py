"""What was observed of a worker before a decision, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING

from lcm.cloud.instance_cache import GONE_AFTER_SECONDS
from lcm.cloud.types import HealthKind, InstanceState
from lcm.core.text import single_line
from lcm.model.worker.maintenance import AnnouncedMaintenance

if TYPE_CHECKING:
    from lcm.cloud.errors import CloudError
    from lcm.cloud.types import HealthNotice, Instance, LaunchParameters
    from lcm.cml.types import LicenseProgress


NO_EVENTS = "CML reports no events at all"


class Visibility(Enum):
    """How much is known of an instance. Only GONE proves that it does not exist."""

    NOT_OBSERVED = "no look"  # not read since the last change to the worker: nothing is known
    NOT_VISIBLE = "not visible"  # a read did not return it; it may be too new, or hidden
    SEEN = "seen"
    GONE = "gone"  # several complete sweeps over minutes, long after its launch, and reads by id did not return it


@dataclass(frozen=True, slots=True)
class InstanceObservation:
    """A worker's instance as the cloud reports it. `began_at` is the boot-time clock when the read began."""

    visibility: Visibility
    state: InstanceState | None = None
    public_ip: str | None = None
    private_ip: str | None = None
    instance_type: str | None = None
    image_id: str | None = None
    account_id: str | None = None
    state_reason: str = ""
    error: str = ""
    began_at: float = 0.0
    absent_sweeps: int = 0  # how many sweeps in a row did not return it, unless it is too new to say
    gone_after: float = GONE_AFTER_SECONDS  # seconds of absence after which it counts as gone

    @classmethod
    def of(cls, instance: Instance, *, began_at: float = 0.0, account_id: str | None = None) -> InstanceObservation:
        """The observation of an instance that was read."""
        return cls(
            Visibility.SEEN,
            instance.state,
            instance.public_ip,
            instance.private_ip,
            instance.instance_type,
            instance.image_id,
            account_id,
            instance.state_reason,
            began_at=began_at,
        )

    @property
    def gone(self) -> bool:
        """Whether the instance certainly no longer exists."""
        return self.visibility is Visibility.GONE or self.state is InstanceState.TERMINATED

    @property
    def has_address(self) -> bool:
        """Whether the instance has an address."""
        return bool(self.public_ip or self.private_ip)

    @property
    def summary(self) -> str:
        """The state in one word, for people."""
        return self.state.value if self.state is not None else self.visibility.value


@dataclass(frozen=True, slots=True)
class CmlObservation:
    """The last response of a worker's CML. What it did not report is None."""

    queried_at: datetime | None = None  # when the last query began; None before the first query
    ready: bool | None = None
    version: str | None = None
    error: str = ""
    refusal: str = ""  # why it does not accept our account; empty if it does, or if that is unknown
    account_withheld: bool = False  # whether LCM does not sign in to it, because nobody has adopted the worker
    certificate: str | None = None  # the SHA-256 fingerprint of the pinned certificate
    presented: str | None = None  # that of another one, which the server presents instead
    activity_error: str = ""  # why its activity could not be read last time
    labs: int | None = None
    nodes: int | None = None
    running_nodes: int | None = None
    last_running_nodes: int | None = None  # as it last reported, also before it stopped responding
    license: LicenseProgress | None = None
    product: str = ""
    kvm_enabled: bool | None = None  # whether it can run virtual machines; kept until it says otherwise
    definitions: tuple[str, ...] | None = None  # the node definitions that it can run


_MAX_CODE, _MAX_DETAIL = 64, 500
_AT_ONCE = datetime.min.replace(tzinfo=UTC)
_IMPAIRMENTS = {
    HealthKind.INSTANCE_IMPAIRED: "the instance status check fails",
    HealthKind.SYSTEM_IMPAIRED: "the system status check fails",
}


@dataclass(frozen=True, slots=True)
class HealthObservation:
    """What EC2 reported about the health of an instance, since the last change to it."""

    notices: tuple[HealthNotice, ...] = ()

    @property
    def maintenance(self) -> AnnouncedMaintenance | None:
        """The announced event that begins first; one without a time may begin at once."""
        events = [notice for notice in self.notices if notice.kind is HealthKind.MAINTENANCE]
        if not events:
            return None
        first = min(events, key=lambda each: (each.not_before or _AT_ONCE, each.code))
        return AnnouncedMaintenance(
            code=single_line(first.code or "event", _MAX_CODE),
            detail=single_line(first.detail, _MAX_DETAIL),
            not_before=first.not_before,
        )

    @property
    def impairment(self) -> str:
        """Which status checks fail; empty if none does."""
        failed = (notice for notice in self.notices if notice.kind in _IMPAIRMENTS)
        return "; ".join(f"{_IMPAIRMENTS[each.kind]} ({each.detail})" for each in failed)

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is announced, and all checks pass."""
        return not self.notices


class LicenseTaskState(Enum):
    """The state of the task that registers or deregisters a license."""

    NONE = "none"
    RUNNING = "running"
    RELEASED = "released"  # deregistered, also at Cisco
    LEAKED = "leaked"  # deregistered locally only; Cisco still counts it
    FAILED = "failed"
    REFUSED = "refused"  # CML rejected the request; a retry would fail in the same way


@dataclass(frozen=True, slots=True)
class LaunchedInstances:
    """Instances that were launched earlier for a worker, found by tag; only those of this installation."""

    complete: bool
    instances: tuple[Instance, ...] = ()
    began_at: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class LaunchResolution:
    """The parameters of a launch, or why there are none. A permanent error remains until a person changes something."""

    parameters: LaunchParameters | None = None
    error: str = ""
    permanent: bool = False
    condition_reason: str = "NotLaunched"


@dataclass(frozen=True, slots=True)
class LaunchCalls:
    """What this leader knows about the launch calls of the current attempt.

    `deadline` is the boot-time clock at which the last call, of whichever leader, has certainly ended.
    """

    deadline: float = 0.0
    uncertain: bool = True  # whether a call may have launched an instance although no response arrived
    refusal: CloudError | None = None  # the last definite response without an instance


class LossVerdict(Enum):
    """Whether a worker whose instance is gone may be marked as lost now."""

    UNJUDGED = "the sweep has not been compared with all records yet"
    BLOCKED = "too many are missing at once: the breaker is open"
    ALLOWED = "allowed"


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that a decision is made from besides the record, the policy and the time."""

    instance: InstanceObservation
    cml: CmlObservation = field(default_factory=CmlObservation)
    health: HealthObservation | None = None  # None: not read since the last change to the worker
    lablets: int = 0
    in_service: int = 0  # workers of the whole fleet that run and should run
    moving: str = ""  # another worker of its region that is on its way to another host
    has_started: bool = False  # whether this leader saw its instance pending or running since it entered its status
    loss_verdict: LossVerdict = LossVerdict.UNJUDGED
    loss_reason: str = ""
    license_task: LicenseTaskState = LicenseTaskState.NONE
    license_error: str = ""
    license_requested_at: float | None = None  # boot time
    license_releases: int = 0  # other instances of its region that are started to deregister their licenses
    launched_instances: LaunchedInstances | None = None
    resolution: LaunchResolution | None = None
    calls: LaunchCalls = field(default_factory=LaunchCalls)
    no_capacity_at: float | None = None  # the boot-time clock when a start or launch found none
    boottime: float = 0.0
