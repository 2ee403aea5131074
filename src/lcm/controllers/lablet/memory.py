"""What a leader remembers of lablets between passes. It is only memory: losing it costs a look, never correctness."""

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
"""For how long an import whose answer nobody heard may still make a lab, after its caller gave up or died."""
REPEAT_DELAY_SECONDS: Final = 30.0
"""For how long a call that CML took is not repeated, while its effect does not show."""

_MAY_HAVE_IMPORTED = (LabletStatus.INSTANTIATING, LabletStatus.STOPPING)


@dataclass(slots=True)
class LabletMemory:
    """One lablet's memory. Moments are of the boot-time clock where nothing else is said."""

    attempt: int
    unsure: bool  # whether an import may have made a lab without anybody having heard of it
    import_ended: float  # when the last import that anybody can have asked for was certainly given up
    asked: dict[LabOperation, float] = field(default_factory=dict)
    refusal: str = ""
    looked: float = -math.inf
    unready_since: datetime | None = None

    @property
    def import_may_complete(self) -> bool:
        """Whether a lab may still appear that nobody knows of."""
        return self.unsure and clock.boottime() < self.import_ended + IMPORT_GRACE_SECONDS

    @property
    def recent_operations(self) -> frozenset[str]:
        """Calls that CML took a moment ago."""
        earliest = clock.boottime() - REPEAT_DELAY_SECONDS
        return frozenset(call.value for call, at in self.asked.items() if at >= earliest)

    def took(self, call: LabOperation) -> None:
        """CML took a call."""
        self.asked[call] = clock.boottime()
        self.refusal = ""

    def update_unready_since(self, worker: Worker | None, now: datetime) -> datetime | None:
        """Since when its worker cannot be used. A worker that goes from one trouble to the next stays in trouble."""
        if worker is None or worker.ready:
            self.unready_since = None
        elif self.unready_since is None:
            self.unready_since = min(now, _not_ready_since(worker))
        return self.unready_since


class LabletMemories:
    """The memory of one term. `began` is when it began: whatever earlier leaders asked was asked before."""

    def __init__(self) -> None:
        self.began = clock.boottime()
        self._notes: dict[str, LabletMemory] = {}

    def of(self, lablet: Lablet) -> LabletMemory:
        """The note on a lablet, a new one for each worker that it is given."""
        note = self._notes.get(lablet.id)
        if note is None or note.attempt != lablet.placement_attempt:
            # Without memory of the attempt, and past its beginning, another leader may have asked for the import.
            unsure = lablet.status in _MAY_HAVE_IMPORTED and lablet.lab_id is None
            note = self._notes[lablet.id] = LabletMemory(lablet.placement_attempt, unsure, self.began)
        return note

    def keep_only(self, lablet_ids: Iterable[str]) -> None:
        """Forget lablets that have ended."""
        present = set(lablet_ids)
        for gone in self._notes.keys() - present:
            del self._notes[gone]


def _not_ready_since(worker: Worker) -> datetime:
    """When the record first says so: a new leader must not begin to count anew."""
    if worker.status is not WorkerStatus.RUNNING:
        return worker.status_since
    condition = find_condition(worker.conditions, ConditionType.CML_READY)
    if condition is not None and condition.status.value != "True":
        return condition.since
    return worker.updated_at
