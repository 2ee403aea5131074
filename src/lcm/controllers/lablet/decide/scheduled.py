"""SCHEDULED: the lablet has a worker, and CML has not been called yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.lablet.decide.decision import WriteStatus, act_and_continue
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.observation import Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker


def decide(_lablet: Lablet, worker: Worker, _seen: Observation, _policy: LabletPolicy, _now: datetime) -> Decision:
    """Record that a lab is about to be created, and on which instance, before CML is called."""
    reason = f"creating its lab on worker {worker.name}"
    fields = {"instance_id": worker.instance_id}
    return act_and_continue(
        "scheduled.begin", reason, WriteStatus(LabletStatus.INSTANTIATING, reason, ActionKind.INTENT, fields)
    )
