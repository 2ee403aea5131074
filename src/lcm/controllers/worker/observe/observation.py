"""What was seen of a worker when it was decided what to do with it, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.cloud.errors import CloudError
    from lcm.cloud.types import Instance, LaunchParameters
    from lcm.cml.licensing import LicenseProgress


class Visibility(Enum):
    """How much is known of an instance. Only GONE allows to conclude that there is none."""

    NO_LOOK = "no look"  # nobody could look since the worker was last changed: nothing is known
    NOT_VISIBLE = "not visible"  # a look did not show it; it may be too new, or hidden
    SEEN = "seen"
    GONE = "gone"  # a complete sweep and then a look by its id, both long after its launch, did not show it


@dataclass(frozen=True, slots=True)
class InstanceObservation:
    """What the cloud shows of a worker's instance. `began_at` is the boot-time clock when the look began."""

    visibility: Visibility
    state: InstanceState | None = None
    public_ip: str | None = None
    private_ip: str | None = None
    instance_type: str | None = None
    image_id: str | None = None
    account_id: str | None = None
    state_reason: str = ""
    trouble: str = ""
    began_at: float = 0.0

    @classmethod
    def of(cls, instance: Instance, *, began_at: float = 0.0, account_id: str | None = None) -> InstanceObservation:
        """An instance that a look showed."""
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
        """Whether the instance certainly is no more."""
        return self.visibility is Visibility.GONE or self.state is InstanceState.TERMINATED

    @property
    def has_address(self) -> bool:
        """Whether it can be reached under an address."""
        return bool(self.public_ip or self.private_ip)

    @property
    def word(self) -> str:
        """In a word, for people."""
        return self.state.value if self.state is not None else self.visibility.value


@dataclass(frozen=True, slots=True)
class CmlObservation:
    """What a worker's CML said last. What it did not say is None."""

    asked_at: datetime | None = None  # when the last attempt to ask began; None: nobody has asked yet
    ready: bool | None = None
    version: str | None = None
    trouble: str = ""
    labs: int | None = None
    nodes: int | None = None
    running_nodes: int | None = None
    license: LicenseProgress | None = None
    product: str = ""
    definitions: tuple[str, ...] | None = None  # the kinds of nodes that it can run


class LicenseTaskState(Enum):
    """What a task that registers or gives back a licence is doing."""

    NONE = "none"
    RUNNING = "running"
    RELEASED = "released"  # given back, and Cisco knows
    LEAKED = "leaked"  # the server forgot it, Cisco still counts it
    FAILED = "failed"
    REFUSED = "refused"  # CML does not take what it was sent; the same again would end the same


@dataclass(frozen=True, slots=True)
class LaunchedInstances:
    """What a look by tag found of earlier launches for a worker; only instances of this installation."""

    complete: bool
    instances: tuple[Instance, ...] = ()
    began_at: float = 0.0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class LaunchResolution:
    """What a launch would be made of, or why that cannot be told. Lasting: it stays so until a person changes it."""

    parameters: LaunchParameters | None = None
    trouble: str = ""
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class LaunchCalls:
    """What this leader knows of the launch calls of the current attempt.

    `deadline` is when the last call that anybody can have made is certainly over, by the boot-time clock.
    """

    deadline: float = 0.0
    unsure: bool = True  # whether a call may have launched without anybody having heard of it
    refusal: CloudError | None = None  # the last definite answer that was no instance


class LossVerdict(Enum):
    """Whether a worker whose instance is gone may be marked as lost now."""

    UNJUDGED = "the sweep has not been compared with all records yet"
    BLOCKED = "too many are missing at once: the breaker is open"
    ALLOWED = "allowed"


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a decision is made from besides the record, the policy and the time."""

    sight: InstanceObservation
    cml: CmlObservation = field(default_factory=CmlObservation)
    lablets: int = 0
    moved: bool = False  # whether its instance was seen pending or running since the worker became STARTING
    loss: LossVerdict = LossVerdict.UNJUDGED
    loss_reason: str = ""
    license_task: LicenseTaskState = LicenseTaskState.NONE
    license_error: str = ""
    license_requested_at: datetime | None = None
    traces: LaunchedInstances | None = None
    resolution: LaunchResolution | None = None
    calls: LaunchCalls = field(default_factory=LaunchCalls)
    boottime: float = 0.0
