"""Faults that can be injected into a region of the simulated cloud, at once or by a script."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.cloud.types import HealthKind


class ExternalAction(Enum):
    """A change of an instance outside LCM."""

    STOP = "stop"
    START = "start"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class ThrottleCalls:
    """The next calls of the operation are throttled."""

    operation: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class RefuseCalls:
    """The next calls of the operation fail with an EC2 error code."""

    operation: str
    code: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class RejectCredentials:
    """All calls fail with this EC2 error code for so long, as with expired credentials or a clock that is off."""

    code: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LackCapacity:
    """There is no capacity to launch or start instances for so long; without a type, of any type; without a subnet, in
    no zone.
    """

    seconds: float
    instance_type: str | None = None
    subnet_id: str | None = None


@dataclass(frozen=True, slots=True)
class OmitInstanceType:
    """The zone of this subnet does not offer the type; without a subnet, no zone does."""

    instance_type: str
    subnet_id: str | None = None


@dataclass(frozen=True, slots=True)
class LoseResponses:
    """The next mutating calls are executed, but their responses are lost.

    `silent`: the client waits until its read times out, instead of getting a broken connection.
    """

    times: int = 1
    silent: bool = False


@dataclass(frozen=True, slots=True)
class HideNewInstances:
    """Instances launched from now on are invisible for so long; 0 ends that for later launches."""

    seconds: float


@dataclass(frozen=True, slots=True)
class FailPage:
    """Page `number` (from 1) of the next DescribeInstances calls fails."""

    number: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Outage:
    """The region accepts no connections for so long; if `silent`, it accepts them and never responds."""

    seconds: float
    silent: bool = False


@dataclass(frozen=True, slots=True)
class ExternalChange:
    """An instance is stopped, started or terminated outside LCM; without an id, a random one."""

    action: ExternalAction
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class FailStatusCheck:
    """A status check of a running instance fails; without an id, of a random one."""

    kind: HealthKind
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class AnnounceMaintenance:
    """Maintenance is scheduled for an instance; without an id, for a random one."""

    detail: str
    after_seconds: float
    instance_id: str | None = None
    code: str = "system-reboot"


@dataclass(frozen=True, slots=True)
class RescheduleMaintenance:
    """Maintenance of an instance that has not begun is moved to another time, which may be earlier."""

    instance_id: str
    after_seconds: float


@dataclass(frozen=True, slots=True)
class CancelMaintenance:
    """Maintenance of an instance that has not begun is canceled."""

    instance_id: str


@dataclass(frozen=True, slots=True)
class LagReads:
    """DescribeInstances returns the state of so many seconds ago; 0 ends that.

    With a `share` below 1 only so many of the pages do, so that one sweep mixes old and new states.
    """

    seconds: float
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class HideInstances:
    """DescribeInstances does not return these instances, however old, for so long; without ids, none of the region."""

    seconds: float
    instance_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DropFromReads:
    """Each DescribeInstances leaves out a random share of the instances, also of those that it is asked for by id."""

    share: float
    seconds: float


@dataclass(frozen=True, slots=True)
class HalvePages:
    """The next pages of DescribeInstances contain only half of their instances, and nothing says so.

    `listings_only`: pages of instances that are asked for by id are whole, and so is one with a single instance.
    """

    times: int = 1
    listings_only: bool = False


Fault = (
    ThrottleCalls
    | RefuseCalls
    | RejectCredentials
    | LackCapacity
    | OmitInstanceType
    | LoseResponses
    | HideNewInstances
    | LagReads
    | HideInstances
    | DropFromReads
    | HalvePages
    | FailPage
    | Outage
    | ExternalChange
    | FailStatusCheck
    | AnnounceMaintenance
    | RescheduleMaintenance
    | CancelMaintenance
)


@dataclass(frozen=True, slots=True)
class ScriptedFault:
    """A fault and its trigger: a number of seconds after the start of the script, or the nth call of an operation."""

    fault: Fault
    region: str
    at: float | None = None
    operation: str | None = None
    nth: int = 1

    def __post_init__(self) -> None:
        if (self.at is None) == (self.operation is None):
            raise ValueError("a scripted fault needs either a time or an operation")


class FaultScript:
    """Scripted faults, each of which is triggered once."""

    def __init__(self, steps: Iterable[ScriptedFault], began_at: float) -> None:
        everything = list(steps)
        self._timed = [(began_at + step.at, step) for step in everything if step.at is not None]
        self._timed.sort(key=lambda entry: entry[0], reverse=True)
        self._called = [step for step in everything if step.operation is not None]
        self._calls: Counter[tuple[str, str]] = Counter()

    @property
    def remaining(self) -> int:
        """The number of faults that were not triggered yet."""
        return len(self._timed) + len(self._called)

    def due(self, now: float) -> list[tuple[float, ScriptedFault]]:
        """Return the faults that are due, each with its time."""
        found = []
        while self._timed and self._timed[-1][0] <= now:
            found.append(self._timed.pop())
        return found

    def at_call(self, region: str, operation: str) -> list[ScriptedFault]:
        """Return the faults that this call triggers."""
        if not self._called:
            return []
        self._calls[region, operation] += 1
        number = self._calls[region, operation]
        found = [s for s in self._called if (s.region, s.operation, s.nth) == (region, operation, number)]
        self._called = [step for step in self._called if step not in found]
        return found


@dataclass(slots=True)
class ActiveFaults:
    """The active faults of a region."""

    refusals: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    lost_replies: int = 0
    silent: bool = False
    hide_seconds: float | None = None
    read_lag: float = 0.0
    lagging_share: float = 1.0
    hidden_until: dict[str, float] = field(default_factory=dict)  # by instance id; "" is the whole region
    dropped_share: float = 0.0
    drops_until: float = float("-inf")
    halved_pages: int = 0
    halves_listings_only: bool = False
    failing_pages: dict[int, int] = field(default_factory=dict)
    outage_until: float = float("-inf")
    outage_is_silent: bool = False
    credential_code: str = ""
    credentials_rejected_until: float = float("-inf")
    lacking_capacity: list[LackCapacity] = field(default_factory=list)  # `seconds` is the time of its end
    omitted_types: set[tuple[str, str | None]] = field(default_factory=set)  # by type and subnet
    hold_transitions: bool = False

    def refuse(self, operation: str, code: str, times: int) -> None:
        """Fail the next calls with the code, after those that are already set to fail."""
        self.refusals.setdefault(operation, []).append((code, times))

    def next_refusal_code(self, operation: str) -> str | None:
        """Return the error code of this call, if it fails."""
        waiting = self.refusals.get(operation)
        if not waiting:
            return None
        code, times = waiting.pop(0)
        if times > 1:
            waiting.insert(0, (code, times - 1))
        return code

    def rejected_credentials_code(self, now: float) -> str | None:
        """Return the error code of all calls, if credentials are rejected now."""
        return self.credential_code if now < self.credentials_rejected_until else None

    def lacks_capacity(self, instance_type: str, subnet_id: str | None, now: float) -> bool:
        """Whether no instance of this type can be launched or started in the zone of this subnet now."""
        return any(
            lack.instance_type in (None, instance_type) and lack.subnet_id in (None, subnet_id) and now < lack.seconds
            for lack in self.lacking_capacity
        )

    def omits_type(self, instance_type: str, subnet_id: str | None) -> bool:
        """Whether the zone of the subnet does not offer the type."""
        return not self.omitted_types.isdisjoint({(instance_type, subnet_id), (instance_type, None)})

    def page_fails(self, number: int) -> bool:
        """Whether this page fails."""
        times = self.failing_pages.get(number, 0)
        if times:
            self.failing_pages[number] = times - 1
        return times > 0

    def hides(self, instance_id: str, now: float) -> bool:
        """Whether reads do not return this instance now."""
        return any(now < self.hidden_until.get(hidden, float("-inf")) for hidden in ("", instance_id))

    def halves_page(self, found: int, *, by_id: bool) -> bool:
        """Whether this page contains only half of the instances that were found."""
        if not self.halved_pages or not found or (self.halves_listings_only and (by_id or found == 1)):
            return False
        self.halved_pages -= 1
        return True

    def loses_response(self) -> bool:
        """Whether the response to this call is lost."""
        if self.lost_replies:
            self.lost_replies -= 1
            return True
        return False
