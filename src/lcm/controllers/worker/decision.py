"""A decision about a worker: what to do and why, as data that is executed, reported and tested."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.common.decision import BaseDecision, BaseWriteStatus
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lcm.cloud.types import LaunchParameters
    from lcm.model.worker.conditions import ConditionStatus, ConditionType
    from lcm.model.worker.status import LicenseStatus


class CloudCall(Enum):
    """Calls that change an instance."""

    START = "start"
    STOP = "stop"
    TERMINATE = "terminate"


class WriteStatus(BaseWriteStatus[WorkerStatus]):
    """Write the status of a worker."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ChangeInstance:
    """Start, stop or terminate the worker's instance."""

    kind: ClassVar[ActionKind] = ActionKind.WORLD
    call: CloudCall

    def __str__(self) -> str:
        return f"{self.call.value} the instance"


@dataclass(frozen=True, slots=True)
class StoreLaunchIntent:
    """Store the launch parameters before the call."""

    kind: ClassVar[ActionKind] = ActionKind.INTENT
    attempt: int
    parameters: LaunchParameters

    def __str__(self) -> str:
        return f"store the intent of launch attempt {self.attempt}"


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch with exactly the stored parameters, so that a replay has the same effect."""

    kind: ClassVar[ActionKind] = ActionKind.WORLD
    attempt: int
    parameters: LaunchParameters

    def __str__(self) -> str:
        return f"launch {self.parameters.instance_type} in {self.parameters.region} (attempt {self.attempt})"


@dataclass(frozen=True, slots=True)
class RegisterLicense:
    """Register CML with the stored license token."""

    kind: ClassVar[ActionKind] = ActionKind.WORLD

    def __str__(self) -> str:
        return "register the license"


@dataclass(frozen=True, slots=True)
class DeregisterLicense:
    """Deregister CML from Cisco's license server."""

    kind: ClassVar[ActionKind] = ActionKind.WORLD

    def __str__(self) -> str:
        return "deregister the license"


@dataclass(frozen=True, slots=True)
class WriteLicenseStatus:
    """Record the license status."""

    status: LicenseStatus
    message: str = ""
    clear_pending: bool = False
    leaked: bool = False
    deregistered: bool = False  # the registration with the former token has ended; the new one follows
    kind: ActionKind = ActionKind.RECORD

    def __str__(self) -> str:
        return f"record license {self.status}"


@dataclass(frozen=True, slots=True)
class CheckIdle:
    """Send the worker's activity to the control plane, which decides whether it is idle."""

    kind: ClassVar[ActionKind] = ActionKind.RECORD

    def __str__(self) -> str:
        return "check for idleness"


@dataclass(frozen=True, slots=True)
class Drain:
    """Drain the worker for scale-down."""

    kind: ClassVar[ActionKind] = ActionKind.WORLD
    reason: str

    def __str__(self) -> str:
        return "drain the worker"


class MaintenanceStep(Enum):
    """The two steps by which a worker moves to another host."""

    STOP = "stop"
    START = "start"


@dataclass(frozen=True, slots=True)
class ChangeHost:
    """Let the worker be stopped for maintenance, or started again after it."""

    kind: ClassVar[ActionKind] = ActionKind.WORLD
    step: MaintenanceStep
    reason: str

    def __str__(self) -> str:
        if self.step is MaintenanceStep.STOP:
            return "stop the worker, to start it on another host"
        return "start the worker again, on another host"


@dataclass(frozen=True, slots=True)
class FollowSchedule:
    """Let the worker be stopped outside the windows of its schedules, or started when one opens."""

    kind: ClassVar[ActionKind] = ActionKind.WORLD
    desired: DesiredStatus
    reason: str

    def __str__(self) -> str:
        verb = "start" if self.desired is DesiredStatus.RUNNING else "stop"
        return f"{verb} the worker by schedule"


@dataclass(frozen=True, slots=True)
class WriteAuditEntry:
    """Write a decision that changes no record to the audit log."""

    kind: ClassVar[ActionKind] = ActionKind.RECORD
    label: str
    reason: str = ""

    def __str__(self) -> str:
        return f"record {self.label}"


Action: TypeAlias = (
    WriteStatus
    | ChangeInstance
    | StoreLaunchIntent
    | Launch
    | RegisterLicense
    | DeregisterLicense
    | WriteLicenseStatus
    | CheckIdle
    | Drain
    | ChangeHost
    | FollowSchedule
    | WriteAuditEntry
)


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """Set a condition of a worker; without a status the condition is removed.

    `exact`: another message alone is written too. It must not count minutes.
    """

    type: ConditionType
    status: ConditionStatus | None
    reason: str = ""
    message: str = ""
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Decision(BaseDecision[Action]):
    """A decision about a worker, with the conditions that it sets and the inputs that it was made from."""

    conditions: tuple[ConditionUpdate, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    held: tuple[Action, ...] = ()  # what waits for the end of a hold
    drift: str = ""  # how the instance differs from the record: an EC2 state, or "missing"

    def with_added(self, *actions: Action, conditions: Iterable[ConditionUpdate] = ()) -> Decision:
        """A copy with more actions and conditions. A later condition replaces an earlier one of the same type."""
        added = tuple(conditions)
        if not actions and not added:
            return self
        by_type = {condition.type: condition for condition in (*self.conditions, *added)}
        return replace(self, actions=(*self.actions, *actions), conditions=tuple(by_type.values()))

    def without(self, done: Action) -> Decision:
        """The rest, after one action was executed separately."""
        return replace(self, actions=tuple(action for action in self.actions if action is not done), conditions=())


success, wait, retry, skip = Decision.success, Decision.wait, Decision.retry, Decision.skip
