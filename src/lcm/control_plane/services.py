"""The services of the control plane that routes call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.control_plane.auth.seats.links import SeatLinkService
from lcm.control_plane.auth.seats.sessions import SeatSessionService
from lcm.control_plane.auth.teams import TeamDirectory
from lcm.control_plane.bookings.class_links import ClassLinkService
from lcm.control_plane.bookings.progress import BookingProgressService
from lcm.control_plane.bookings.service import BookingService
from lcm.control_plane.calendar.schedules import ScheduleService
from lcm.control_plane.fleet.activity_summary import ActivitySummaryService
from lcm.control_plane.fleet.history import FleetHistoryService
from lcm.control_plane.fleet.plan import PlanService
from lcm.control_plane.fleet.previews import FleetPreviewService
from lcm.control_plane.fleet.service import FleetService
from lcm.control_plane.fleet.system import ControlPlaneProcess, SystemService
from lcm.control_plane.lablets.controller_writes import LabletControllerWrites
from lcm.control_plane.lablets.service import LabletService
from lcm.control_plane.notifications.subscriptions import SubscriptionService
from lcm.control_plane.teams.service import TeamService
from lcm.control_plane.workers.controller_writes import WorkerControllerWrites
from lcm.control_plane.workers.metrics import MetricsService
from lcm.control_plane.workers.previews import PreviewService
from lcm.control_plane.workers.service import WorkerService

if TYPE_CHECKING:
    from fastapi import Request

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.http.deps import Authenticator
    from lcm.control_plane.journal.sse import EventStream
    from lcm.control_plane.notifications.sender import NotificationSender


@dataclass(frozen=True, slots=True)
class Services:
    """One object of each service, all over one store."""

    context: ControlPlaneContext
    authenticator: Authenticator
    workers: WorkerService
    worker_writes: WorkerControllerWrites
    fleet: FleetService
    plan: PlanService
    previews: PreviewService
    fleet_previews: FleetPreviewService
    fleet_history: FleetHistoryService
    metrics: MetricsService
    stream: EventStream
    activity_summary: ActivitySummaryService
    system: SystemService
    lablets: LabletService
    directory: TeamDirectory
    teams: TeamService
    lablet_writes: LabletControllerWrites
    seat_links: SeatLinkService
    seat_sessions: SeatSessionService
    subscriptions: SubscriptionService
    schedules: ScheduleService
    bookings: BookingService
    class_links: ClassLinkService
    booking_progress: BookingProgressService
    sender: NotificationSender | None

    @classmethod
    def create(
        cls,
        context: ControlPlaneContext,
        authenticator: Authenticator,
        stream: EventStream,
        *,
        metrics_retention_hours: float = 48.0,
        process: ControlPlaneProcess | None = None,
        sender: NotificationSender | None = None,
    ) -> Services:
        """Create all services over one store. Without a sender, subscriptions are kept and nothing is sent."""
        seat_links = SeatLinkService(context.store, context.unit_of_work)
        fleet, plan = FleetService(context), PlanService(context)
        directory = authenticator.teams or TeamDirectory(context.store)
        return cls(
            context=context,
            authenticator=authenticator,
            workers=WorkerService(context),
            worker_writes=WorkerControllerWrites(context),
            fleet=fleet,
            plan=plan,
            previews=PreviewService(context, plan),
            fleet_previews=FleetPreviewService(context.store, fleet, plan),
            fleet_history=FleetHistoryService(context.store, fleet),
            metrics=MetricsService(context, metrics_retention_hours),
            stream=stream,
            activity_summary=ActivitySummaryService(context),
            system=SystemService(context, fleet, stream, process or ControlPlaneProcess({})),
            lablets=LabletService(context, directory),
            directory=directory,
            teams=TeamService(context, directory),
            lablet_writes=LabletControllerWrites(context),
            seat_links=seat_links,
            seat_sessions=SeatSessionService(context.store, context.unit_of_work, authenticator.security_log),
            subscriptions=SubscriptionService(context),
            schedules=ScheduleService(context),
            bookings=BookingService(context, directory),
            class_links=ClassLinkService(context, seat_links),
            booking_progress=BookingProgressService(context),
            sender=sender,
        )


def get_services(request: Request) -> Services:
    """The services of the app that handles this request."""
    services: Services = request.app.state.services
    return services
