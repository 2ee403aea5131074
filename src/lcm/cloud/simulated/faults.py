"""What can be made to go wrong in a region of the simulated cloud, at once or by a script."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.cloud.types import HealthKind


class ExternalAction(Enum):
    """What somebody else may do with an instance."""

    STOP = "stop"
    START = "start"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class ThrottleCalls:
    """The next calls of the operation are refused as too many."""

    operation: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class RefuseCalls:
    """The next calls of the operation are refused with a code of EC2."""

    operation: str
    code: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class LoseResponses:
    """The next calls that change something are done, and their answers are lost.

    `silent`: nothing comes until the caller's read times out, instead of a connection that breaks.
    """

    times: int = 1
    silent: bool = False


@dataclass(frozen=True, slots=True)
class HideNewInstances:
    """Instances launched from now on are not to be seen for so long; 0 ends it for later ones."""

    seconds: float


@dataclass(frozen=True, slots=True)
class FailPage:
    """Page `number`, from 1, of the next descriptions fails."""

    number: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Outage:
    """The region accepts no connection for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ExternalChange:
    """Somebody else stops, starts or terminates an instance; without an id, one that chance picks."""

    action: ExternalAction
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class FailStatusCheck:
    """A status check of a running instance fails; without an id, of one that chance picks."""

    kind: HealthKind
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class AnnounceMaintenance:
    """Maintenance is announced for an instance; without an id, for one that chance picks."""

    detail: str
    after_seconds: float
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LagReads:
    """Descriptions show what was so many seconds ago; 0 ends it."""

    seconds: float


Fault = (
    ThrottleCalls
    | RefuseCalls
    | LoseResponses
    | HideNewInstances
    | LagReads
    | FailPage
    | Outage
    | ExternalChange
    | FailStatusCheck
    | AnnounceMaintenance
)


@dataclass(frozen=True, slots=True)
class ScriptedFault:
    """A fault and when it strikes: so many seconds after the script began, or at the nth call of an operation."""

    fault: Fault
    region: str
    at: float | None = None
    operation: str | None = None
    nth: int = 1

    def __post_init__(self) -> None:
        if (self.at is None) == (self.operation is None):
            raise ValueError("a step of a fault script has either a moment or an operation")


class FaultScript:
    """Steps that strike once each."""

    def __init__(self, steps: Iterable[ScriptedFault], began_at: float) -> None:
        everything = list(steps)
        self._timed = [(began_at + step.at, step) for step in everything if step.at is not None]
        self._timed.sort(key=lambda entry: entry[0], reverse=True)
        self._called = [step for step in everything if step.operation is not None]
        self._calls: Counter[tuple[str, str]] = Counter()

    @property
    def left(self) -> int:
        """How many steps have not struck yet."""
        return len(self._timed) + len(self._called)

    def due(self, now: float) -> list[tuple[float, ScriptedFault]]:
        """The timed steps whose moment has come, each with its moment."""
        found = []
        while self._timed and self._timed[-1][0] <= now:
            found.append(self._timed.pop())
        return found

    def at_call(self, region: str, operation: str) -> list[ScriptedFault]:
        """The steps for this call."""
        if not self._called:
            return []
        self._calls[region, operation] += 1
        number = self._calls[region, operation]
        found = [s for s in self._called if (s.region, s.operation, s.nth) == (region, operation, number)]
        self._called = [step for step in self._called if step not in found]
        return found


@dataclass(slots=True)
class ActiveFaults:
    """The faults that are on in a region."""

    refusals: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    lost_replies: int = 0
    silent: bool = False
    hide_seconds: float | None = None
    read_lag: float = 0.0
    failing_pages: dict[int, int] = field(default_factory=dict)
    outage_until: float = float("-inf")
    hold_transitions: bool = False

    def refuse(self, operation: str, code: str, times: int) -> None:
        """Refuse the next calls with the code, after those that are to be refused already."""
        self.refusals.setdefault(operation, []).append((code, times))

    def next_refusal_code(self, operation: str) -> str | None:
        """The code that this call is refused with, if it is."""
        waiting = self.refusals.get(operation)
        if not waiting:
            return None
        code, times = waiting.pop(0)
        if times > 1:
            waiting.insert(0, (code, times - 1))
        return code

    def page_fails(self, number: int) -> bool:
        """Whether this page fails."""
        times = self.failing_pages.get(number, 0)
        if times:
            self.failing_pages[number] = times - 1
        return times > 0

    def loses_reply(self) -> bool:
        """Whether the answer to this call is lost."""
        if self.lost_replies:
            self.lost_replies -= 1
            return True
        return False
