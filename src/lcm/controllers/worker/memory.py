"""What a leader remembers of workers between passes. It is only memory: losing it costs a look, never correctness."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.worker.observe.observation import LaunchCalls
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.cloud.errors import CloudError
    from lcm.controllers.worker.observe.observation import InstanceObservation
    from lcm.model.worker.record import Worker
    from lcm.model.worker.status import WorkerStatus

_STARTED_STATES = (InstanceState.PENDING, InstanceState.RUNNING)


@dataclass(slots=True)
class AttemptCalls:
    """The launch calls of one attempt. Without memory of an attempt it must be assumed that a call was made."""

    attempt: int
    deadline: float
    unsure: bool
    refusal: CloudError | None = None

    @property
    def known(self) -> LaunchCalls:
        """For a decision."""
        return LaunchCalls(self.deadline, self.unsure, self.refusal)


@dataclass(slots=True)
class WorkerMemory:
    """One worker's memory. Moments are of the boot-time clock."""

    touched: float  # an observation that began earlier decides nothing
    status: WorkerStatus
    since: datetime
    moved: bool = False
    calls: AttemptCalls | None = None
    idle_checked_at: float = float("-inf")
    drift: str = ""
    unseen: bool = False  # whether the cloud could not be asked for its instance in the last pass
    reported: tuple[str, ...] = field(default=())


class LeaderMemory:
    """The memory of one term. `began` is when it began: whatever earlier leaders did was over by then."""

    def __init__(self) -> None:
        self.began = clock.boottime()
        self._notes: dict[str, WorkerMemory] = {}

    def of(self, worker: Worker, at: float | None = None) -> WorkerMemory:
        """The note on a worker. A status that somebody else wrote outdates what was seen before `at`."""
        moment = clock.boottime() if at is None else at
        note = self._notes.get(worker.id)
        if note is None:
            note = self._notes[worker.id] = WorkerMemory(moment, worker.status, worker.status_since)
        elif (note.status, note.since) != (worker.status, worker.status_since):
            self.entered(note, worker, moment)
        return note

    def take_in(self, workers: Iterable[Worker], at: float) -> None:
        """Note all workers of a list that was asked for at a moment, and forget those that are no more."""
        present = set()
        for worker in workers:
            present.add(worker.id)
            self.of(worker, at)
        for worker_id in self._notes.keys() - present:
            del self._notes[worker_id]

    @staticmethod
    def entered(note: WorkerMemory, worker: Worker, at: float) -> None:
        """The worker is in another status than before."""
        note.status, note.since, note.moved = worker.status, worker.status_since, False
        note.touched = max(note.touched, at)

    def saw(self, note: WorkerMemory, sight: InstanceObservation) -> None:
        """Remember what matters of a sight later on."""
        if sight.state in _STARTED_STATES:
            note.moved = True

    def calls(self, worker: Worker, note: WorkerMemory) -> LaunchCalls:
        """What is known of the launch calls of the worker's current attempt."""
        intent = worker.launch_intent
        if intent is not None and note.calls is not None and note.calls.attempt == intent.attempt:
            return note.calls.known
        return LaunchCalls(self.began, unsure=True)

    def verified(self, worker_id: str) -> bool:
        """Whether the last pass over a worker saw what the cloud shows of it, if there is anything to see."""
        note = self._notes.get(worker_id)
        return note is None or not note.unseen

    def drifting(self) -> int:
        """How many workers' last pass found drift that is not undone yet."""
        return sum(1 for note in self._notes.values() if note.drift)
