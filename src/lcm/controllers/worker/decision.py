"""What is to be done with a worker, and why. A decision is data: it is carried out, told and tested alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from lcm.controllers.common.actions import ActionKind
from lcm.core.controller.resources import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lcm.cloud.types import LaunchParameters
    from lcm.model.worker.conditions import ConditionStatus, ConditionType
    from lcm.model.worker.status import LicenseStatus, WorkerStatus


class CloudCall(Enum):
    """Calls that change an instance."""

    START = "start"
    STOP = "stop"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write a status with fields of the record. The same status again only changes fields."""

    status: WorkerStatus
    reason: str
    nature: ActionKind = ActionKind.RECORD
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"record {self.status}"


@dataclass(frozen=True, slots=True)
class ChangeInstance:
    """Start, stop or terminate the worker's instance."""

    nature: ClassVar[ActionKind] = ActionKind.WORLD
    call: CloudCall

    def __str__(self) -> str:
        return f"{self.call.value} the instance"


@dataclass(frozen=True, slots=True)
class StoreLaunchIntent:
    """Keep what is about to be launched, before the call."""

    nature: ClassVar[ActionKind] = ActionKind.INTENT
    attempt: int
    parameters: LaunchParameters

    def __str__(self) -> str:
        return f"store the intent of launch attempt {self.attempt}"


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch with exactly the stored parameters."""

    nature: ClassVar[ActionKind] = ActionKind.WORLD
    attempt: int
    parameters: LaunchParameters

    def __str__(self) -> str:
        return f"launch {self.parameters.instance_type} in {self.parameters.region} (attempt {self.attempt})"


@dataclass(frozen=True, slots=True)
class RegisterLicense:
    """Ask CML to register with the stored token."""

    nature: ClassVar[ActionKind] = ActionKind.WORLD

    def __str__(self) -> str:
        return "register the licence"


@dataclass(frozen=True, slots=True)
class DeregisterLicense:
    """Give the licence back."""

    nature: ClassVar[ActionKind] = ActionKind.WORLD

    def __str__(self) -> str:
        return "give the licence back"


@dataclass(frozen=True, slots=True)
class WriteLicenseStatus:
    """Write down where the licence stands."""

    status: LicenseStatus
    message: str = ""
    clear_pending: bool = False
    leaked: bool = False
    nature: ActionKind = ActionKind.RECORD

    def __str__(self) -> str:
        return f"record licence {self.status}"


@dataclass(frozen=True, slots=True)
class CheckIdle:
    """Send the activity of the worker, and let the control plane judge it."""

    nature: ClassVar[ActionKind] = ActionKind.RECORD

    def __str__(self) -> str:
        return "check for idleness"


@dataclass(frozen=True, slots=True)
class Drain:
    """Scale-down takes the worker out of service."""

    nature: ClassVar[ActionKind] = ActionKind.WORLD
    reason: str

    def __str__(self) -> str:
        return "drain it"


@dataclass(frozen=True, slots=True)
class WriteAuditEntry:
    """Keep a decision that changes no record."""

    nature: ClassVar[ActionKind] = ActionKind.RECORD
    label: str
    reason: str = ""

    def __str__(self) -> str:
        return f"note {self.label}"


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
    | WriteAuditEntry
)


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """What is to be said of a worker; no status: nothing any more."""

    type: ConditionType
    status: ConditionStatus | None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The rule that applied, why, what is done, and when to look again."""

    rule: str
    reason: str
    actions: tuple[Action, ...] = ()
    conditions: tuple[ConditionUpdate, ...] = ()
    outcome: Outcome = Outcome.SUCCESS
    after: float | None = None  # seconds until the next look, with REQUEUE
    inputs: Mapping[str, Any] = field(default_factory=dict)
    drift: str = ""  # how reality differs from the record: an EC2 state, or "missing"

    def adding(self, *actions: Action, conditions: Iterable[ConditionUpdate] = ()) -> Decision:
        """The same with more to do or to say; what is said later of a condition counts."""
        said = {condition.type: condition for condition in (*self.conditions, *conditions)}
        return replace(self, actions=(*self.actions, *actions), conditions=tuple(said.values()))

    def without(self, done: Action) -> Decision:
        """What is left after one action was done on its own."""
        return replace(self, actions=tuple(action for action in self.actions if action is not done), conditions=())


def success(rule: str, reason: str, *actions: Action, **more: Any) -> Decision:
    """It is as it should be, or will be by these actions."""
    return Decision(rule, reason, actions, **more)


def wait(rule: str, reason: str, *actions: Action, after: float | None = None, **more: Any) -> Decision:
    """Not there yet, and that is in order."""
    return Decision(rule, reason, actions, outcome=Outcome.REQUEUE, after=after, **more)


def retry(rule: str, reason: str, *actions: Action, **more: Any) -> Decision:
    """Something failed that may work later."""
    return Decision(rule, reason, actions, outcome=Outcome.RETRY, **more)


def skip(rule: str, reason: str) -> Decision:
    """Nothing here for us to do."""
    return Decision(rule, reason, outcome=Outcome.SKIP)
