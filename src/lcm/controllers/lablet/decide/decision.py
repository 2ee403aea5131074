"""A decision about a lablet: what to do and why, as data that is executed, reported and tested."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.common.decision import BaseDecision, BaseWriteStatus
from lcm.controllers.lablet.decide.predicates import POLL_SECONDS
from lcm.model.lablet.urgency import HELD_PREFIX

if TYPE_CHECKING:
    from lcm.model.lablet.status import LabletStatus
    from lcm.model.worker.record import Hold


class LabOperation(Enum):
    """Operations on a lab."""

    START = "start"
    STOP = "stop"
    WIPE = "wipe"
    DELETE = "delete"


class WriteStatus(BaseWriteStatus["LabletStatus"]):
    """Write the status of a lablet."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ReleaseReservation:
    """Release the reservation: the lablet ends or is scheduled again. Its lab is gone or is left behind."""

    status: LabletStatus
    reason: str
    kind: ActionKind = ActionKind.RECORD
    left_behind: bool = False

    def __str__(self) -> str:
        return f"release the worker and record {self.status}"


@dataclass(frozen=True, slots=True)
class ImportLab:
    """Create the lab from its topology."""

    kind: ClassVar[ActionKind] = ActionKind.WORLD
    topology: str = field(repr=False)
    title: str
    marker: str

    def __str__(self) -> str:
        return f"import the lab {self.marker}"


@dataclass(frozen=True, slots=True)
class ChangeLab:
    """Start, stop, wipe or delete the lab."""

    kind: ClassVar[ActionKind] = ActionKind.WORLD
    call: LabOperation
    lab_id: str

    def __str__(self) -> str:
        return f"{self.call.value} the lab"


Action: TypeAlias = WriteStatus | ReleaseReservation | ImportLab | ChangeLab


@dataclass(frozen=True, slots=True)
class Decision(BaseDecision[Action]):
    """A decision about a lablet.

    `again`: the next decision may follow at once, in the same pass. `message` is the text for people in the record;
    None leaves it unchanged.
    """

    again: bool = False
    message: str | None = None


wait, retry, skip = Decision.wait, Decision.retry, Decision.skip
end = Decision.success  # the lablet no longer belongs to this controller


def act_and_continue(rule: str, reason: str, *actions: Action, message: str | None = "") -> Decision:
    """Execute the actions and decide again at once."""
    return wait(rule, reason, *actions, after=0.0, again=True, message=message)


def apply_hold(decided: Decision, hold: Hold) -> Decision:
    """The part of a decision that a hold allows: records of what has happened, but no changes."""
    allowed = tuple(takewhile(lambda action: action.kind is ActionKind.RECORD, decided.actions))
    if len(allowed) == len(decided.actions):
        return decided
    held = f"{HELD_PREFIX}{hold.by}: {hold.reason}"
    put_off = decided.actions[len(allowed)]
    reason = f"{held}; otherwise: {put_off} ({decided.reason})"
    return wait(f"{decided.rule}.held", reason, *allowed, after=POLL_SECONDS, message=held)
