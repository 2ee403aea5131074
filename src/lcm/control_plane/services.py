"""The parts of the control plane that routes call, as the app carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.control_plane.fleet.activity_summary import Nights
from lcm.control_plane.fleet.service import Fleet
from lcm.control_plane.fleet.system import Process, System
from lcm.control_plane.lablets.controller_writes import LabletReports
from lcm.control_plane.lablets.service import Lablets
from lcm.control_plane.workers.controller_writes import Reports
from lcm.control_plane.workers.metrics import Metrics
from lcm.control_plane.workers.service import Workers

if TYPE_CHECKING:
    from fastapi import Request

    from lcm.control_plane.context import Plane
    from lcm.control_plane.http.deps import Gate
    from lcm.control_plane.journal.sse import EventStream


@dataclass(frozen=True, slots=True)
class Parts:
    """What does the work."""

    plane: Plane
    gate: Gate
    workers: Workers
    reports: Reports
    fleet: Fleet
    metrics: Metrics
    stream: EventStream
    nights: Nights
    system: System
    lablets: Lablets
    lablet_reports: LabletReports

    @classmethod
    def of(
        cls,
        plane: Plane,
        gate: Gate,
        stream: EventStream,
        *,
        metrics_retention_hours: float = 48.0,
        process: Process | None = None,
    ) -> Parts:
        """All of them over one store."""
        fleet = Fleet(plane)
        return cls(
            plane=plane,
            gate=gate,
            workers=Workers(plane),
            reports=Reports(plane),
            fleet=fleet,
            metrics=Metrics(plane, metrics_retention_hours),
            stream=stream,
            nights=Nights(plane),
            system=System(plane, fleet, stream, process or Process({})),
            lablets=Lablets(plane),
            lablet_reports=LabletReports(plane),
        )


def parts(request: Request) -> Parts:
    """The parts behind the app that serves this request."""
    carried: Parts = request.app.state.parts
    return carried
