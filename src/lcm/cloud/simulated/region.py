"""A region of the simulated cloud: its machines, and the EC2 operations on them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

from lcm.cloud.rate_limit import OperationBuckets
from lcm.cloud.simulated import error_codes
from lcm.cloud.simulated.faults import ActiveFaults
from lcm.cloud.simulated.machine import Machine, to_datetime
from lcm.cloud.types import Image, InstanceState, InstanceTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from random import Random

    from lcm.cloud.errors import CloudError
    from lcm.cloud.simulated.machine import Timing
    from lcm.cloud.types import Instance, InstanceMetrics, LaunchParameters

MAX_FILTER_VALUES: Final = 200
_REAP_INTERVAL: Final = 60.0
_ID_BITS: Final = 68

INSTANCE_TYPES = {
    "t3.micro": (2, 1.0),
    "t3.small": (2, 2.0),
    "t3.medium": (2, 4.0),
    "t3.large": (2, 8.0),
    "m5.large": (2, 8.0),
    "m5.2xlarge": (8, 32.0),
    "c7a.large": (2, 4.0),
    "m5zn.metal": (48, 192.0),
    "m8i.2xlarge": (8, 32.0),
    "m8i.8xlarge": (32, 128.0),
}
"""CPU cores and memory of the instance types that this cloud offers."""
_NESTED_FAMILIES = ("c8i", "m8i", "r8i")


def supports_nested_virtualization(instance_type: str) -> bool:
    """Whether the virtual instances of this type can have KVM."""
    family, _, size = instance_type.partition(".")
    return family in _NESTED_FAMILIES and not size.startswith("metal")


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """An image in the catalog."""

    id: str
    name: str
    owner_id: str
    created_at: float
    state: str = "available"


@dataclass(slots=True)
class LaunchTokenRecord:
    """The launch for which a client token was used."""

    parameters: Mapping[str, object]
    instance_id: str
    forgotten_at: float | None = None


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """Filters of DescribeInstances: an instance must match all of them; an empty filter matches everything."""

    tag_keys: tuple[str, ...] = ()
    tag: tuple[str, str] | None = None
    image_ids: tuple[str, ...] = ()
    instance_ids: tuple[str, ...] = ()

    def allow(self, machine: Machine) -> bool:
        """Whether the machine matches; `instance_ids` are checked by the caller."""
        if self.tag_keys and machine.tags.keys().isdisjoint(self.tag_keys):
            return False
        if self.tag is not None and machine.tags.get(self.tag[0]) != self.tag[1]:
            return False
        return not self.image_ids or machine.image_id in self.image_ids


class DescribePage(NamedTuple):
    """A page of instances, the serial after which the next page begins, and the account id."""

    instances: list[Instance]
    following: int | None
    account_id: str


@dataclass(slots=True)
class SimulatedRegion:
    """The state of a region."""

    name: str
    account_id: str
    timing: Timing
    rng: Random
    subnets: dict[str, str]
    address: Callable[[], str]
    page_size: int = 1000
    machines: dict[str, Machine] = field(default_factory=dict)
    images: dict[str, ImageRecord] = field(default_factory=dict)
    tokens: dict[tuple[str, str], LaunchTokenRecord] = field(default_factory=dict)
    metrics: dict[str, InstanceMetrics] = field(default_factory=dict)
    serials: int = 0
    faults: ActiveFaults = field(default_factory=ActiveFaults)
    buckets: OperationBuckets = field(default_factory=OperationBuckets)
    calls: Counter[str] = field(default_factory=Counter)
    _in_order: list[Machine] = field(default_factory=list)
    _reap_at: float = 0.0

    # Machines

    def add(self, machine: Machine) -> None:
        """Add a machine; serials only grow."""
        self.machines[machine.id] = machine
        self._in_order.append(machine)

    def settle(self, machine: Machine, now: float) -> Machine:
        """Return the machine after applying transitions that are due."""
        if not self.faults.hold_transitions:
            begins = machine.next_event_at if machine.events else None
            if begins is not None and now >= begins:
                machine.settle(begins)
                machine.begin_events(now)
            if machine.due is not None:
                machine.settle(now)
        return machine

    def shown(self, machine: Machine, now: float) -> bool:
        """Whether reads return it: not before it is visible, and not long after its termination."""
        self.settle(machine, now)
        return now >= machine.visible_at and (machine.ended_at is None or not self._past(machine, now))

    def live(self, now: float) -> list[Machine]:
        """Return all machines that are not terminated or shutting down, visible or not."""
        return [machine for machine in self._in_order if self.settle(machine, now).state.live]

    def reap(self, now: float) -> None:
        """Remove machines that reads no longer return; runs at most once a minute."""
        if now < self._reap_at:
            return
        self._reap_at = now + _REAP_INTERVAL
        ended = [machine for machine in self._in_order if self._past(self.settle(machine, now), now)]
        for machine in ended:
            del self.machines[machine.id]
            self.metrics.pop(machine.id, None)
        if ended:
            self._in_order = list(self.machines.values())
            gone = {machine.id for machine in ended}
            for record in self.tokens.values():
                if record.instance_id in gone:
                    record.forgotten_at = now + self.timing.token_kept
        self.tokens = {k: r for k, r in self.tokens.items() if r.forgotten_at is None or now < r.forgotten_at}

    # Operations

    def run_instance(self, parameters: LaunchParameters, now: float) -> Instance:
        """RunInstances for one instance."""
        zone = self._zone(parameters.subnet_id)
        stored = parameters.to_json()
        record = self.tokens.get((parameters.client_token, zone))
        if record is not None:
            return self._replay(record, stored, now)
        image = self.images.get(parameters.image_id)
        if image is None or image.state != "available":
            raise self._error(error_codes.BAD_IMAGE, "RunInstances", f"image {parameters.image_id} does not exist")
        if self.faults.omits_type(parameters.instance_type, parameters.subnet_id):
            message = f"{parameters.instance_type} is not offered in the zone of {parameters.subnet_id}"
            raise self._error(error_codes.UNSUPPORTED, "RunInstances", message)
        if parameters.nested_virtualization and not supports_nested_virtualization(parameters.instance_type):
            message = f"{parameters.instance_type} does not support nested virtualization"
            raise self._error(error_codes.BAD_COMBINATION, "RunInstances", message)
        self._require_capacity(parameters.instance_type, parameters.subnet_id, "RunInstances", now)
        machine = self._new_machine(parameters, now)
        self.tokens[parameters.client_token, zone] = LaunchTokenRecord(stored, machine.id)
        self.add(machine)
        return machine.show()

    def start_instance(self, instance_id: str, now: float) -> InstanceState:
        """StartInstances."""
        machine = self._find(instance_id, "StartInstances", now)
        if machine.state in (InstanceState.PENDING, InstanceState.RUNNING):
            return machine.state
        if machine.state is not InstanceState.STOPPED:
            raise self._wrong_state(machine, "StartInstances")
        self._require_capacity(machine.instance_type, machine.subnet_id, "StartInstances", now)
        state = self._enter(machine, InstanceState.PENDING, self.timing.pending, now)
        machine.launched_at = now  # not earlier: what was shown before the start keeps its launch time
        machine.public_ip = self.address()
        machine.leave_host(now)
        return state

    def stop_instance(self, instance_id: str, now: float, reason: str = "User initiated") -> InstanceState:
        """StopInstances."""
        machine = self._find(instance_id, "StopInstances", now)
        if machine.state in (InstanceState.STOPPING, InstanceState.STOPPED):
            return machine.state
        if machine.state is not InstanceState.RUNNING:
            raise self._wrong_state(machine, "StopInstances")
        return self._enter(machine, InstanceState.STOPPING, self.timing.stopping, now, reason)

    def terminate_instance(self, instance_id: str, now: float, reason: str = "User initiated") -> InstanceState:
        """TerminateInstances."""
        machine = self._find(instance_id, "TerminateInstances", now)
        if not machine.state.live:
            return machine.state
        return self._enter(machine, InstanceState.SHUTTING_DOWN, self.timing.shutting_down, now, reason)

    def describe_page(self, filters: InstanceFilter, after: int, number: int, now: float) -> DescribePage:
        """DescribeInstances: the page of instances with serials above `after`."""
        self.reap(now)
        if self.faults.page_fails(number):
            raise self._error(error_codes.INTERNAL, "DescribeInstances", f"page {number} failed")
        if len(filters.instance_ids) > MAX_FILTER_VALUES:
            raise self._error(
                "FilterLimitExceeded", "DescribeInstances", f"more than {MAX_FILTER_VALUES} filter values"
            )
        found: list[Instance] = []
        last, following = after, None
        seen_at = now - self._page_lag()
        for machine in self._candidates(filters, after):
            if filters.allow(machine) and self.shown(machine, now) and not self._left_out(machine, now):
                if len(found) == self.page_size:
                    following = last
                    break
                found.append(machine.show_as_of(seen_at))
                last = machine.serial
        if self.faults.halves_page(len(found), by_id=bool(filters.instance_ids)):
            del found[len(found) // 2 :]
        return DescribePage(found, following, self.account_id)

    def find_images(self, name_pattern: str, owners: Sequence[str]) -> list[Image]:
        """DescribeImages by name and owner, available images only, in no particular order."""
        # EC2 supports the wildcards * and ?, but no character sets.
        pattern = name_pattern.replace("[", "[[]")
        accounts = {self.account_id if owner == "self" else owner for owner in owners}
        return [
            Image(image.id, image.name, image.owner_id, to_datetime(image.created_at))
            for image in self.images.values()
            if image.owner_id in accounts and image.state == "available" and fnmatchcase(image.name, pattern)
        ]

    def instance_types(self, names: Collection[str]) -> dict[str, InstanceTypeInfo]:
        """DescribeInstanceTypes by filter: unknown types are left out."""
        return {
            name: InstanceTypeInfo(name, *INSTANCE_TYPES[name], supports_nested_virtualization(name))
            for name in sorted(set(names))
            if name in INSTANCE_TYPES
        }

    def new_id(self, prefix: str) -> str:
        """Return a new id in the format of EC2."""
        return f"{prefix}-{self.rng.getrandbits(_ID_BITS):017x}"

    # Helpers

    def _past(self, machine: Machine, now: float) -> bool:
        return machine.ended_at is not None and now >= machine.ended_at + self.timing.terminated_shown

    def _page_lag(self) -> float:
        lag, share = self.faults.read_lag, self.faults.lagging_share
        return lag if not lag or share >= 1 or self.rng.random() < share else 0.0

    def _left_out(self, machine: Machine, now: float) -> bool:
        if self.faults.hides(machine.id, now):
            return True
        return now < self.faults.drops_until and self.rng.random() < self.faults.dropped_share

    def _candidates(self, filters: InstanceFilter, after: int) -> Iterable[Machine]:
        if filters.instance_ids:
            found = [self.machines[i] for i in dict.fromkeys(filters.instance_ids) if i in self.machines]
            return sorted((m for m in found if m.serial > after), key=lambda m: m.serial)
        begin = bisect_right(self._in_order, after, key=lambda m: m.serial)
        return self._in_order[begin:] if begin else self._in_order

    def _replay(self, record: LaunchTokenRecord, stored: Mapping[str, object], now: float) -> Instance:
        if record.parameters != stored:
            raise self._error(error_codes.TOKEN_MISMATCH, "RunInstances", "the token was used with other parameters")
        machine = self.machines.get(record.instance_id)
        if machine is None or self.settle(machine, now).state is InstanceState.TERMINATED:
            raise self._error(error_codes.TOKEN_SPENT, "RunInstances", f"{record.instance_id} has terminated")
        return machine.show()

    def _new_machine(self, parameters: LaunchParameters, now: float) -> Machine:
        self.serials += 1
        number = self.serials
        hidden = self.faults.hide_seconds
        delay = self.rng.uniform(*self.timing.visible_after) if hidden is None else hidden
        boot = self.timing.of(self.timing.pending, parameters.instance_type, self.rng)
        return Machine(
            id=self.new_id("i"),
            serial=number,
            instance_type=parameters.instance_type,
            image_id=parameters.image_id,
            subnet_id=parameters.subnet_id,
            tags=dict(parameters.tags),
            launched_at=now,
            visible_at=now + delay,
            private_ip=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            public_ip=self.address(),
            due=now + boot,
            nested_virtualization=parameters.nested_virtualization,
        )

    def _zone(self, subnet_id: str | None) -> str:
        if subnet_id is None:
            return ""
        if self.subnets and subnet_id not in self.subnets:
            raise self._error(error_codes.BAD_SUBNET, "RunInstances", f"subnet {subnet_id} does not exist")
        return self.subnets.get(subnet_id, subnet_id)

    def _find(self, instance_id: str, operation: str, now: float) -> Machine:
        machine = self.machines.get(instance_id)
        if machine is None or not self.shown(machine, now):
            raise self._error(error_codes.NOT_FOUND, operation, f"the instance {instance_id} does not exist")
        return machine

    def _enter(
        self, machine: Machine, state: InstanceState, span: tuple[float, float], now: float, reason: str = ""
    ) -> InstanceState:
        due = now + self.timing.of(span, machine.instance_type, self.rng)
        machine.enter(state, now, due, f"{reason} ({to_datetime(now):%Y-%m-%d %H:%M:%S} UTC)" if reason else "")
        return state

    def _require_capacity(self, instance_type: str, subnet_id: str | None, operation: str, now: float) -> None:
        if self.faults.lacks_capacity(instance_type, subnet_id, now):
            raise self._error(error_codes.NO_CAPACITY, operation, f"there is no capacity for {instance_type}")

    def _wrong_state(self, machine: Machine, operation: str) -> CloudError:
        return self._error(error_codes.WRONG_STATE, operation, f"the instance {machine.id} is {machine.state.value}")

    def _error(self, code: str, operation: str, message: str) -> CloudError:
        return error_codes.error_for_code(code, f"{self.name}: {message}", operation)
