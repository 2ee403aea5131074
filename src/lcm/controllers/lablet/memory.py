"""What a leader remembers of lablets between passes. It is only memory: losing it costs a look, never correctness."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lcm.cml.client.transport import IMPORT_SECONDS
from lcm.core import clock
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.conditions import ConditionType, find_condition
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import LabCall
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

LANDING_SECONDS: Final = IMPORT_SECONDS + 30.0
"""For how long an import whose answer nobody heard may still make a lab, after its caller gave up or died."""
BUSY_SECONDS: Final = 30.0
"""For how long a call that CML took is not repeated, while its effect does not show."""

_MAYBE_ASKED = (LabletStatus.INSTANTIATING, LabletStatus.STOPPING)


@dataclass(slots=True)
class Note:
    """One lablet's memory. Moments are of the boot-time clock where nothing else is said."""

    attempt: int
    unsure: bool  # whether an import may have made a lab without anybody having heard of it
    import_ended: float  # when the last import that anybody can have asked for was certainly given up
    asked: dict[LabCall, float] = field(default_factory=dict)
    refusal: str = ""
    looked: float = -math.inf
    unready_since: datetime | None = None

    @property
    def may_land(self) -> bool:
        """Whether a lab may still appear that nobody knows of."""
        return self.unsure and clock.boottime() < self.import_ended + LANDING_SECONDS

    @property
    def asked_recently(self) -> frozenset[str]:
        """Calls that CML took a moment ago."""
        earliest = clock.boottime() - BUSY_SECONDS
        return frozenset(call.value for call, at in self.asked.items() if at >= earliest)

    def took(self, call: LabCall) -> None:
        """CML took a call."""
        self.asked[call] = clock.boottime()
        self.refusal = ""

    def note_worker(self, worker: Worker | None, now: datetime) -> datetime | None:
        """Since when its worker cannot be used. A worker that goes from one trouble to the next stays in trouble."""
        if worker is None or worker.ready:
            self.unready_since = None
        elif self.unready_since is None:
            self.unready_since = min(now, _troubled_since(worker))
        return self.unready_since


class Notes:
    """The memory of one term. `began` is when it began: whatever earlier leaders asked was asked before."""

    def __init__(self) -> None:
        self.began = clock.boottime()
        self._notes: dict[str, Note] = {}

    def of(self, lablet: Lablet) -> Note:
        """The note on a lablet, a new one for each worker that it is given."""
        note = self._notes.get(lablet.id)
        if note is None or note.attempt != lablet.placement_attempt:
            # Without memory of the attempt, and past its beginning, another leader may have asked for the import.
            unsure = lablet.status in _MAYBE_ASKED and lablet.lab_id is None
            note = self._notes[lablet.id] = Note(lablet.placement_attempt, unsure, self.began)
        return note

    def keep_only(self, lablet_ids: Iterable[str]) -> None:
        """Forget lablets that have ended."""
        present = set(lablet_ids)
        for gone in self._notes.keys() - present:
            del self._notes[gone]


def _troubled_since(worker: Worker) -> datetime:
    """When the record first says so: a new leader must not begin to count anew."""
    if worker.status is not WorkerStatus.RUNNING:
        return worker.status_since
    condition = find_condition(worker.conditions, ConditionType.CML_READY)
    if condition is not None and condition.status.value != "True":
        return condition.since
    return worker.updated_at
