"""What a leader remembers about lablets between passes. Losing it costs an extra query, never correctness."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lcm.cml.client.transport import IMPORT_TIMEOUT
from lcm.core import clock
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.conditions import ConditionType, find_condition
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import LabOperation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

IMPORT_GRACE_SECONDS: Final = IMPORT_TIMEOUT + 30.0
"""How long an import whose response was lost may still create a lab after its caller gave up or died."""
REPEAT_DELAY_SECONDS: Final = 30.0
"""How long an accepted operation is not repeated while its effect does not show."""

_MAY_HAVE_IMPORTED = (LabletStatus.INSTANTIATING, LabletStatus.STOPPING)


@dataclass(slots=True)
class LabletMemory:
    """The memory about one lablet. Times are of the boot-time clock unless noted."""

    attempt: int
    import_uncertain: bool  # whether an import may have created a lab whose response was lost
    import_ended: float  # when the last possible import had certainly been given up
    operations: dict[LabOperation, float] = field(default_factory=dict)
    last_error: str = ""
    last_observed: float = -math.inf
    unready_since: datetime | None = None
    unknown_since: datetime | None = None

    @property
    def import_may_complete(self) -> bool:
        """Whether an import with a lost response may still create a lab."""
        return self.import_uncertain and clock.boottime() < self.import_ended + IMPORT_GRACE_SECONDS

    @property
    def recent_operations(self) -> frozenset[str]:
        """Operations that CML accepted recently."""
        earliest = clock.boottime() - REPEAT_DELAY_SECONDS
        return frozenset(call.value for call, at in self.operations.items() if at >= earliest)

    def record_operation(self, call: LabOperation) -> None:
        """Record that CML accepted an operation."""
        self.operations[call] = clock.boottime()
        self.last_error = ""

    def update_unready_since(self, worker: Worker | None, now: datetime) -> datetime | None:
        """Update since when the worker has not been ready. Another problem does not restart it."""
        if worker is None or worker.ready:
            self.unready_since = None
        elif self.unready_since is None:
            self.unready_since = min(now, _not_ready_since(worker))
        return self.unready_since

    def update_unknown_since(self, worker: Worker | None, now: datetime) -> datetime | None:
        """Update since when the record of the worker has words that only a newer version knows."""
        if worker is None or not worker.unknown_words:
            self.unknown_since = None
        elif self.unknown_since is None:
            self.unknown_since = min(now, worker.updated_at)
        return self.unknown_since


class LabletMemories:
    """The memory of one term. `began` is its start: all requests of earlier leaders were sent before."""

    def __init__(self) -> None:
        self.began = clock.boottime()
        self._memories: dict[str, LabletMemory] = {}

    def get(self, lablet: Lablet) -> LabletMemory:
        """The memory about a lablet; a new one for each placement."""
        memory = self._memories.get(lablet.id)
        if memory is None or memory.attempt != lablet.placement_attempt:
            # Without a memory of this placement, and after its start, another leader may have sent the import.
            import_uncertain = lablet.status in _MAY_HAVE_IMPORTED and lablet.lab_id is None
            memory = self._memories[lablet.id] = LabletMemory(lablet.placement_attempt, import_uncertain, self.began)
        return memory

    def keep_only(self, lablet_ids: Iterable[str]) -> None:
        """Drop the memory about all other lablets."""
        present = set(lablet_ids)
        for gone in self._memories.keys() - present:
            del self._memories[gone]


def _not_ready_since(worker: Worker) -> datetime:
    """The time from the record: a new leader must not restart the timeout."""
    if worker.status is not WorkerStatus.RUNNING:
        return worker.status_since
    condition = find_condition(worker.conditions, ConditionType.CML_READY)
    if condition is not None and condition.status.value != "True":
        return condition.since
    return worker.updated_at
