"""What a decision about a worker is made from, besides the world: one read gives a pass all of it."""

from __future__ import annotations

from pydantic import Field

from lcm.model.base import LenientModel
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.state import FleetState
from lcm.model.worker.record import Worker
from lcm.model.worker.template import WorkerTemplate


class WorkerContext(LenientModel):
    """A worker with the state and settings of the fleet, and the template if it is about to be launched."""

    worker: Worker
    fleet: FleetState
    settings: FleetSettings
    template: WorkerTemplate | None = Field(
        default=None, description="Only of a PENDING worker; null if there is no such template."
    )
