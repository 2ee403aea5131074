"""The simulated cloud as a whole: regions, time, chance, the way of a request, a picture of it all to go on from."""

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
# Reserved for measurements between networks: nobody's address, whatever the demo runs on.
PUBLIC_NETWORK: Final = "198.18.0.0/15"


class SimulatedCloud:
    """A world with a clock of its own, the running loop's; it must be made where that loop runs.

    `seed` fixes everything that chance decides. `load`: whether machines have figures by themselves.
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
        self.addresses_given = 0
        self.regions: dict[str, SimulatedRegion] = {}
        self.rng = random.Random(f"{seed}:{restarts}")  # noqa: S311 - a simulation is meant to be foretold
        self._network = ipaddress.ip_network(public_network)
        self._script = FaultScript((), 0.0)
        self._loop = asyncio.get_running_loop()
        self._epoch = clock.now().timestamp() - self._loop.time()
        # Requests under way belong to the server: a client that is given up or crashes does not take them back.
        self._context = contextvars.copy_context()

    # The world and who may change it

    def time(self) -> float:
        """Seconds since 1970, by the loop's clock."""
        return self._epoch + self._loop.time()

    def add_region(
        self, name: str, *, account_id: str = ACCOUNT_ID, subnets: Mapping[str, str] | None = None
    ) -> SimulatedRegion:
        """A region, with the zone of each subnet. Without any it takes every subnet, each as a zone of its own."""
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
        """A region by name, caught up with the fault script."""
        self._play_script(self.time())
        try:
            return self.regions[name]
        except KeyError:
            raise InvalidCloudRequestError(f"there is no region {name} in the simulated cloud") from None

    def add_image(
        self, region: str, name: str, *, owner_id: str = "", created_at: datetime, state: str = "available"
    ) -> str:
        """Put an image into a region's catalogue; without an owner it is the account's own."""
        place = self.region(region)
        record = ImageRecord(place.new_id("ami"), name, owner_id or place.account_id, created_at.timestamp(), state)
        place.images[record.id] = record
        return record.id

    def strike(self, region: str, fault: Fault) -> None:
        """Let a fault happen now."""
        fault_injection.inject(self.region(region), fault, self.time())

    def play(self, steps: Iterable[ScriptedFault]) -> FaultScript:
        """Follow a script from now on, in place of an earlier one.

        Its timed steps strike when the world is next used, but with the effect of having struck at their moment.
        """
        planned = list(steps)
        for step in planned:
            self.region(step.region)
        self._script = FaultScript(planned, self.time())
        return self._script

    def live_instances(self) -> list[str]:
        """Ids of all that exist and have not begun to end, visible or not, sorted."""
        now = self.time()
        return sorted(machine.id for name in self.regions for machine in self.region(name).live(now))

    def calls(self) -> Counter[str]:
        """Requests served since the beginning, refused ones included, by operation."""
        return sum((region.calls for region in self.regions.values()), Counter())

    # The way of a request

    async def request(
        self, region: str, operation: str, work: Callable[[SimulatedRegion, float], T], *, instances: int = 0
    ) -> T:
        """Send a request, let the region do it, and wait for the answer."""
        place = self.region(region)
        reply: asyncio.Future[T] = self._loop.create_future()

        def arrive() -> None:
            self._serve(place, operation, work, instances, reply)

        self._loop.call_later(self._latency(operation), arrive, context=self._context)
        return await reply

    def _serve(
        self,
        region: SimulatedRegion,
        operation: str,
        work: Callable[[SimulatedRegion, float], T],
        instances: int,
        reply: asyncio.Future[T],
    ) -> None:
        now = self.time()
        self._play_script(now)
        delay = self._latency(operation)
        result: T | CloudError
        if now < region.faults.outage_until:
            result = CloudUnreachableError(f"{operation}: {region.name} accepts no connection", operation=operation)
        else:
            result = self._done(region, operation, work, instances, now)
            if operation in error_codes.MUTATING_OPERATIONS and region.faults.loses_reply():
                result = CloudOutcomeUnknownError(f"{operation}: no answer from {region.name}", operation=operation)
                delay = self.timing.read_timeout if region.faults.silent else delay
        self._loop.call_later(delay, _deliver, reply, result, context=self._context)

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
        code = region.faults.next_refusal_code(operation)
        if code is None and not region.buckets.try_take(operation, instances):
            code = error_codes.THROTTLED
        if code is not None:
            return error_codes.error_for_code(code, f"{region.name} refused", operation)
        try:
            return work(region, now)
        except CloudError as error:
            return error

    def _latency(self, operation: str) -> float:
        span = self.timing.page_latency if operation == "DescribeInstances" else self.timing.latency
        return self.rng.uniform(*span) / 2

    def _play_script(self, now: float) -> None:
        for moment, step in self._script.due(now):
            fault_injection.inject_if_possible(self.regions[step.region], step.fault, moment)

    def _next_address(self) -> str:
        self.addresses_given += 1
        return str(self._network[1 + self.addresses_given % (self._network.num_addresses - 2)])

    # A picture of it all

    def to_json(self) -> dict[str, Any]:
        """Everything but faults, buckets and figures that were put there: what a restart goes on from."""
        return {
            "format": persistence.FORMAT_VERSION,
            "seed": self.seed,
            "restarts": self.restarts,
            "addresses_given": self.addresses_given,
            "regions": {name: persistence.region_to_json(self.region(name)) for name in self.regions},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], **settings: Any) -> SimulatedCloud:
        """The world that `to_json` pictured, older by the time that has passed since; settings as for a new one."""
        persistence.check_format(stored)
        world = cls(**{**settings, "seed": stored["seed"], "restarts": stored["restarts"] + 1})
        world.addresses_given = stored["addresses_given"]
        for name, region in stored["regions"].items():
            place = world.add_region(name, account_id=region["account_id"], subnets=region["subnets"])
            persistence.fill_region(place, region)
        return world


def _deliver(reply: asyncio.Future[T], result: T | CloudError) -> None:
    if reply.done():
        return
    if isinstance(result, CloudError):
        reply.set_exception(result)
    else:
        reply.set_result(result)
