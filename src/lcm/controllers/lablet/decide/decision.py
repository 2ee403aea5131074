"""What is to be done for a lablet, and why. A decision is data: it is carried out, told and tested alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.lablet.decide.predicates import POLL_SECONDS
from lcm.core.controller.resources import Outcome
from lcm.model.lablet.urgency import HELD_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.model.lablet.status import LabletStatus
    from lcm.model.worker.record import Hold


class LabOperation(Enum):
    """Calls that change a lab."""

    START = "start"
    STOP = "stop"
    WIPE = "wipe"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write a status with fields of the record. The same status again only changes fields."""

    status: LabletStatus
    reason: str
    nature: ActionKind = ActionKind.RECORD
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"record {self.status}"


@dataclass(frozen=True, slots=True)
class ReleaseReservation:
    """Give the reservation back: it ends, or looks for another worker. Its lab is gone, or is left behind."""

    status: LabletStatus
    reason: str
    nature: ActionKind = ActionKind.RECORD
    left_behind: bool = False

    def __str__(self) -> str:
        return f"give the worker back and record {self.status}"


@dataclass(frozen=True, slots=True)
class ImportLab:
    """Make the lab of its topology."""

    nature: ClassVar[ActionKind] = ActionKind.WORLD
    topology: str = field(repr=False)
    title: str
    marker: str

    def __str__(self) -> str:
        return f"import the lab {self.marker}"


@dataclass(frozen=True, slots=True)
class ChangeLab:
    """Start, stop, wipe or delete the lab."""

    nature: ClassVar[ActionKind] = ActionKind.WORLD
    call: LabOperation
    lab_id: str

    def __str__(self) -> str:
        return f"{self.call.value} the lab"


Action: TypeAlias = WriteStatus | ReleaseReservation | ImportLab | ChangeLab


@dataclass(frozen=True, slots=True)
class Decision:
    """The rule that applied, why, what is done, and when to look again.

    `again`: what follows may be decided at once, in the same pass. `message` is what the record says to people of
    what stands in the way; None: what it says stays.
    """

    rule: str
    reason: str
    actions: tuple[Action, ...] = ()
    outcome: Outcome = Outcome.SUCCESS
    after: float | None = None  # seconds until the next look, with REQUEUE
    again: bool = False
    message: str | None = None


def then(rule: str, reason: str, *actions: Action, message: str | None = "") -> Decision:
    """Do this, and decide anew right after it."""
    return Decision(rule, reason, actions, outcome=Outcome.REQUEUE, after=0.0, again=True, message=message)


def wait(rule: str, reason: str, *actions: Action, after: float, message: str | None = None) -> Decision:
    """Not there yet, and that is in order."""
    return Decision(rule, reason, actions, outcome=Outcome.REQUEUE, after=after, message=message)


def retry(rule: str, reason: str, *actions: Action, message: str | None = None) -> Decision:
    """Something failed that may work later."""
    return Decision(rule, reason, actions, outcome=Outcome.RETRY, message=message)


def end(rule: str, reason: str, *actions: Action) -> Decision:
    """Nothing follows: it is not ours any more."""
    return Decision(rule, reason, actions)


def skip(rule: str, reason: str) -> Decision:
    """Nothing here for us to do."""
    return Decision(rule, reason, outcome=Outcome.SKIP)


def apply_hold(decided: Decision, hold: Hold) -> Decision:
    """What is left of a decision while somebody wants everything to stay as it is."""
    allowed = tuple(takewhile(lambda action: action.nature is ActionKind.RECORD, decided.actions))
    if len(allowed) == len(decided.actions):
        return decided
    held = f"{HELD_PREFIX}{hold.by}: {hold.reason}"
    put_off = decided.actions[len(allowed)]
    reason = f"{held}; otherwise: {put_off} ({decided.reason})"
    return wait(f"{decided.rule}.held", reason, *allowed, after=POLL_SECONDS, message=held)
