"""The parts of the control plane that routes call, as the app carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.control_plane.fleet.activity_summary import ActivitySummaryService
from lcm.control_plane.fleet.service import FleetService
from lcm.control_plane.fleet.system import ProcessDetails, SystemService
from lcm.control_plane.lablets.controller_writes import LabletControllerWrites
from lcm.control_plane.lablets.service import LabletService
from lcm.control_plane.workers.controller_writes import WorkerControllerWrites
from lcm.control_plane.workers.metrics import MetricsService
from lcm.control_plane.workers.service import WorkerService

if TYPE_CHECKING:
    from fastapi import Request

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.http.deps import Authenticator
    from lcm.control_plane.journal.sse import EventStream


@dataclass(frozen=True, slots=True)
class Services:
    """What does the work."""

    plane: ControlPlaneContext
    gate: Authenticator
    workers: WorkerService
    reports: WorkerControllerWrites
    fleet: FleetService
    metrics: MetricsService
    stream: EventStream
    nights: ActivitySummaryService
    system: SystemService
    lablets: LabletService
    lablet_reports: LabletControllerWrites

    @classmethod
    def of(
        cls,
        plane: ControlPlaneContext,
        gate: Authenticator,
        stream: EventStream,
        *,
        metrics_retention_hours: float = 48.0,
        process: ProcessDetails | None = None,
    ) -> Services:
        """All of them over one store."""
        fleet = FleetService(plane)
        return cls(
            plane=plane,
            gate=gate,
            workers=WorkerService(plane),
            reports=WorkerControllerWrites(plane),
            fleet=fleet,
            metrics=MetricsService(plane, metrics_retention_hours),
            stream=stream,
            nights=ActivitySummaryService(plane),
            system=SystemService(plane, fleet, stream, process or ProcessDetails({})),
            lablets=LabletService(plane),
            lablet_reports=LabletControllerWrites(plane),
        )


def get_services(request: Request) -> Services:
    """The parts behind the app that serves this request."""
    carried: Services = request.app.state.parts
    return carried
