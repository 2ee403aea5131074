"""What a leader remembers of workers between passes. Losing it costs a read, never correctness."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lcm.cloud.types import InstanceState
from lcm.controllers.worker.observe.observation import LaunchCalls
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.cloud.errors import CloudError
    from lcm.controllers.worker.observe.observation import InstanceObservation
    from lcm.controllers.worker.steady import SteadyDecision
    from lcm.model.worker.record import Worker
    from lcm.model.worker.status import WorkerStatus

_STARTED_STATES = (InstanceState.PENDING, InstanceState.RUNNING)


@dataclass(slots=True)
class AttemptCalls:
    """The launch calls of one attempt. Without it a call must be assumed to have been made."""

    attempt: int
    deadline: float
    uncertain: bool
    refusal: CloudError | None = None

    @property
    def as_observed(self) -> LaunchCalls:
        """As part of an observation."""
        return LaunchCalls(self.deadline, self.uncertain, self.refusal)


class CapacityRefusal(NamedTuple):
    """A start or launch that found no capacity, with the worker's generation: a person's request does not wait."""

    generation: int
    at: float


class UnsupportedLaunch(NamedTuple):
    """A launch of a type that the zone of the subnet does not offer. A new generation, such as a retry, tries again."""

    generation: int
    instance_type: str
    subnet_id: str | None


@dataclass(slots=True)
class WorkerMemory:
    """What is remembered of one worker. Times are of the boot-time clock."""

    changed_at: float  # an observation that began earlier does not count
    status: WorkerStatus
    since: datetime
    has_started: bool = False
    calls: AttemptCalls | None = None
    idle_checked_at: float = float("-inf")
    drift: str = ""
    steady: SteadyDecision | None = None  # that nothing is to be done, as long as nothing changes
    not_observed: bool = False  # whether its instance could not be read in the last pass
    reported_key: tuple[object, ...] = field(default=())
    capacity_refusal: CapacityRefusal | None = None
    unsupported: dict[UnsupportedLaunch, str] = field(default_factory=dict)  # with EC2's message

    def no_capacity_at(self, worker: Worker) -> float | None:
        """When a start or launch of this generation last found no capacity."""
        refused = self.capacity_refusal
        return refused.at if refused is not None and refused.generation == worker.generation else None

    def unsupported_launches(self, generation: int) -> dict[tuple[str, str | None], str]:
        """The messages of EC2 for types and subnets that were refused in this generation."""
        return {
            (launch.instance_type, launch.subnet_id): message
            for launch, message in self.unsupported.items()
            if launch.generation == generation
        }

    def record_unsupported(self, launch: UnsupportedLaunch, message: str) -> None:
        """EC2 does not offer the type in the zone of the subnet. Those of earlier generations are dropped."""
        kept = {each: text for each, text in self.unsupported.items() if each.generation == launch.generation}
        self.unsupported = {**kept, launch: message}


class WorkerMemories:
    """The memories of one term. `began` is its start: all calls of earlier leaders had ended by then."""

    def __init__(self) -> None:
        self.began = clock.boottime()
        self._memories: dict[str, WorkerMemory] = {}

    def get(self, worker: Worker, at: float | None = None) -> WorkerMemory:
        """The memory of a worker. A status written by another process outdates observations from before `at`."""
        moment = clock.boottime() if at is None else at
        memory = self._memories.get(worker.id)
        if memory is None:
            memory = self._memories[worker.id] = WorkerMemory(moment, worker.status, worker.status_since)
        elif (memory.status, memory.since) != (worker.status, worker.status_since):
            self.enter_status(memory, worker, moment)
        return memory

    def refresh(self, workers: Iterable[Worker], at: float) -> None:
        """Update from a list of all workers that was requested at `at`, and drop workers that no longer exist."""
        present = set()
        for worker in workers:
            present.add(worker.id)
            self.get(worker, at)
        for worker_id in self._memories.keys() - present:
            del self._memories[worker_id]

    @staticmethod
    def enter_status(memory: WorkerMemory, worker: Worker, at: float) -> None:
        """The worker has entered another status."""
        memory.status, memory.since, memory.has_started = worker.status, worker.status_since, False
        memory.changed_at = max(memory.changed_at, at)

    def record_observation(self, memory: WorkerMemory, instance: InstanceObservation) -> None:
        """Remember what later passes need of an observation."""
        if instance.state in _STARTED_STATES:
            memory.has_started = True

    def calls(self, worker: Worker, memory: WorkerMemory) -> LaunchCalls:
        """The launch calls of the worker's current attempt, as far as this leader knows them."""
        intent = worker.launch_intent
        if intent is not None and memory.calls is not None and memory.calls.attempt == intent.attempt:
            return memory.calls.as_observed
        return LaunchCalls(self.began, uncertain=True)

    def is_verified(self, worker_id: str) -> bool:
        """Whether the last pass could read the worker's instance, if it has one."""
        memory = self._memories.get(worker_id)
        return memory is None or not memory.not_observed

    def drift_count(self) -> int:
        """The number of workers whose last pass found drift that is not resolved yet."""
        return sum(1 for memory in self._memories.values() if memory.drift)
