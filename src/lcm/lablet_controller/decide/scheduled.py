"""SCHEDULED: it has a worker, and nothing was asked of CML yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.acting import Nature
from lcm.lablet_controller.decision import WriteStatus, then
from lcm.model.lablet_status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.lablet_controller.decision import Decision
    from lcm.lablet_controller.observation import Observation
    from lcm.lablet_controller.policy import Policy
    from lcm.model.lablet import Lablet
    from lcm.model.worker import Worker


def decide(_lablet: Lablet, worker: Worker, _seen: Observation, _policy: Policy, _now: datetime) -> Decision:
    """Write down that a lab is about to be made, and on which machine, before anything is asked of CML."""
    reason = f"its lab is made on worker {worker.name}"
    fields = {"instance_id": worker.instance_id}
    return then("scheduled.begin", reason, WriteStatus(LabletStatus.INSTANTIATING, reason, Nature.INTENT, fields))
