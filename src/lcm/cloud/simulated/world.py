"""The simulated cloud: its regions, clock and random numbers, the handling of requests, and its stored form."""

from __future__ import annotations

import asyncio
import contextvars
import ipaddress
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lcm.cloud.errors import CloudError, CloudOutcomeUnknownError, CloudUnreachableError, InvalidCloudRequestError
from lcm.cloud.simulated import error_codes, fault_injection, persistence
from lcm.cloud.simulated.faults import FaultScript
from lcm.cloud.simulated.machine import Timing
from lcm.cloud.simulated.region import ImageRecord, SimulatedRegion
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from lcm.cloud.simulated.faults import Fault, ScriptedFault

T = TypeVar("T")

ACCOUNT_ID: Final = "123456789012"
# Reserved for benchmarks (RFC 2544), so that it never collides with a real address.
PUBLIC_NETWORK: Final = "198.18.0.0/15"


class SimulatedCloud:
    """A simulated cloud on the clock of the running loop; it must be created inside that loop.

    `seed` fixes all random decisions. `load`: whether machines generate metrics.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        timing: Timing | None = None,
        page_size: int = 1000,
        public_network: str = PUBLIC_NETWORK,
        load: bool = True,
        restarts: int = 0,
    ) -> None:
        self.seed = seed
        self.timing = timing or Timing()
        self.page_size = page_size
        self.load = load
        self.restarts = restarts
        self.addresses_assigned = 0
        self.regions: dict[str, SimulatedRegion] = {}
        self.rng = random.Random(f"{seed}:{restarts}")  # noqa: S311 - a simulation must be reproducible
        self._network = ipaddress.ip_network(public_network)
        self._script = FaultScript((), 0.0)
        self._loop = asyncio.get_running_loop()
        self._epoch = clock.now().timestamp() - self._loop.time()
        # A request in progress belongs to the server: it is executed even if its client is cancelled or crashes.
        self._context = contextvars.copy_context()

    # Setup and control

    def time(self) -> float:
        """Return seconds since 1970, by the clock of the loop."""
        return self._epoch + self._loop.time()

    def add_region(
        self, name: str, *, account_id: str = ACCOUNT_ID, subnets: Mapping[str, str] | None = None
    ) -> SimulatedRegion:
        """Add a region with the zone of each subnet. Without subnets, any subnet is accepted, each in its own zone."""
        region = SimulatedRegion(
            name=name,
            account_id=account_id,
            timing=self.timing,
            rng=self.rng,
            subnets=dict(subnets or {}),
            address=self._next_address,
            page_size=self.page_size,
        )
        self.regions[name] = region
        return region

    def region(self, name: str) -> SimulatedRegion:
        """Return a region by name, after applying due faults of the script."""
        self._play_script(self.time())
        try:
            return self.regions[name]
        except KeyError:
            raise InvalidCloudRequestError(f"region {name} does not exist in the simulated cloud") from None

    def add_image(
        self, region: str, name: str, *, owner_id: str = "", created_at: datetime, state: str = "available"
    ) -> str:
        """Add an image to a region's catalog; without an owner it belongs to the account."""
        place = self.region(region)
        record = ImageRecord(place.new_id("ami"), name, owner_id or place.account_id, created_at.timestamp(), state)
        place.images[record.id] = record
        return record.id

    def inject_fault(self, region: str, fault: Fault) -> None:
        """Inject a fault now."""
        fault_injection.inject(self.region(region), fault, self.time())

    def play(self, steps: Iterable[ScriptedFault]) -> FaultScript:
        """Start a script of faults, replacing an earlier one.

        Timed faults are applied when the simulation is next used, with the effect of having happened at their time.
        """
        planned = list(steps)
        for step in planned:
            self.region(step.region)
        self._script = FaultScript(planned, self.time())
        return self._script

    def live_instances(self) -> list[str]:
        """Return the sorted ids of all instances that are not terminated or shutting down, visible or not."""
        now = self.time()
        return sorted(machine.id for name in self.regions for machine in self.region(name).live(now))

    def calls(self) -> Counter[str]:
        """Return the number of requests so far by operation, including failed ones."""
        return sum((region.calls for region in self.regions.values()), Counter())

    # Requests

    async def request(
        self, region: str, operation: str, work: Callable[[SimulatedRegion, float], T], *, instances: int = 0
    ) -> T:
        """Send a request, execute it in the region, and wait for the response."""
        place = self.region(region)
        response: asyncio.Future[T] = self._loop.create_future()

        def arrive() -> None:
            self._serve(place, operation, work, instances, response)

        self._loop.call_later(self._latency(operation), arrive, context=self._context)
        return await response

    def _serve(
        self,
        region: SimulatedRegion,
        operation: str,
        work: Callable[[SimulatedRegion, float], T],
        instances: int,
        response: asyncio.Future[T],
    ) -> None:
        now = self.time()
        self._play_script(now)
        delay = self._latency(operation)
        result: T | CloudError
        mutating = operation in error_codes.MUTATING_OPERATIONS
        if now < region.faults.outage_until and region.faults.outage_is_silent:
            lost = CloudOutcomeUnknownError if mutating else CloudUnreachableError
            result = lost(f"{operation}: no response from {region.name}", operation=operation)
            delay = self.timing.read_timeout if mutating else self.timing.read_deadline
        elif now < region.faults.outage_until:
            result = CloudUnreachableError(f"{operation}: {region.name} accepts no connection", operation=operation)
        else:
            result = self._done(region, operation, work, instances, now)
            if mutating and region.faults.loses_response():
                result = CloudOutcomeUnknownError(f"{operation}: no response from {region.name}", operation=operation)
                delay = self.timing.read_timeout if region.faults.silent else delay
        self._loop.call_later(delay, _deliver, response, result, context=self._context)

    def _done(
        self,
        region: SimulatedRegion,
        operation: str,
        work: Callable[[SimulatedRegion, float], T],
        instances: int,
        now: float,
    ) -> T | CloudError:
        region.calls[operation] += 1
        for step in self._script.at_call(region.name, operation):
            fault_injection.inject_if_possible(region, step.fault, now)
        code = region.faults.rejected_credentials_code(now) or region.faults.next_refusal_code(operation)
        if code is None and not region.buckets.try_take(operation, instances):
            code = error_codes.THROTTLED
        if code is not None:
            return error_codes.error_for_code(code, f"{region.name} rejected the call", operation)
        try:
            return work(region, now)
        except CloudError as error:
            return error

    def _latency(self, operation: str) -> float:
        span = self.timing.page_latency if operation == "DescribeInstances" else self.timing.latency
        return self.rng.uniform(*span) / 2

    def _play_script(self, now: float) -> None:
        for due_at, scripted in self._script.due(now):
            fault_injection.inject_if_possible(self.regions[scripted.region], scripted.fault, due_at)

    def _next_address(self) -> str:
        self.addresses_assigned += 1
        return str(self._network[1 + self.addresses_assigned % (self._network.num_addresses - 2)])

    # Stored form

    def to_json(self) -> dict[str, Any]:
        """Return the state for a restart: everything but faults, rate limits and stored metrics."""
        return {
            "format": persistence.FORMAT_VERSION,
            "seed": self.seed,
            "restarts": self.restarts,
            "addresses_given": self.addresses_assigned,
            "regions": {name: persistence.region_to_json(self.region(name)) for name in self.regions},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], **settings: Any) -> SimulatedCloud:
        """Restore the simulation from `to_json`; the time since then has passed. Settings as for a new one."""
        persistence.check_format(stored)
        world = cls(**{**settings, "seed": stored["seed"], "restarts": stored["restarts"] + 1})
        world.addresses_assigned = stored["addresses_given"]
        for name, region in stored["regions"].items():
            place = world.add_region(name, account_id=region["account_id"], subnets=region["subnets"])
            persistence.fill_region(place, region)
        return world


def _deliver(response: asyncio.Future[T], result: T | CloudError) -> None:
    if response.done():
        return
    if isinstance(result, CloudError):
        response.set_exception(result)
    else:
        response.set_result(result)
