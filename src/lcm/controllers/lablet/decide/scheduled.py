"""SCHEDULED: it has a worker, and nothing was asked of CML yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.lablet.decide.decision import WriteStatus, then
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.observation import Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker


def decide(_lablet: Lablet, worker: Worker, _seen: Observation, _policy: LabletPolicy, _now: datetime) -> Decision:
    """Write down that a lab is about to be made, and on which machine, before anything is asked of CML."""
    reason = f"its lab is made on worker {worker.name}"
    fields = {"instance_id": worker.instance_id}
    return then("scheduled.begin", reason, WriteStatus(LabletStatus.INSTANTIATING, reason, ActionKind.INTENT, fields))
