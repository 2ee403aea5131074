"""The resource scheduler as a process, and as a part of one that runs others too."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.controllers.scheduler.admin_api import make_scheduler_admin_app
from lcm.controllers.scheduler.controller import SchedulerHostedService
from lcm.controllers.scheduler.plan import SchedulerConfig
from lcm.core.hosting import Host, HostedService
from lcm.http.server import HttpServer
from lcm.model.lablet.ports import parse_port_range
from lcm.settings import LabletPortSettings, ResourceSchedulerSettings
from lcm.wiring.connections import CoordinationConnection, StartedNotification, connect_coordination
from lcm.wiring.control_plane_access import (
    BuiltinControllerSettings,
    CloseOnStop,
    ControlPlaneCheck,
    ControlPlaneClientSettings,
    make_control_plane_client,
)
from lcm.wiring.controllers import ControllerRuntime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from lcm.client.client import Client
    from lcm.wiring.connections import OnStarted

SERVICE: Final = "resource-scheduler"
LABLETS_PREFIX: Final = "/instances/"


class ResourceSchedulerComponentSettings(ResourceSchedulerSettings, LabletPortSettings, ControlPlaneClientSettings):
    """What a resource scheduler is told, besides what every controller is."""


class ResourceSchedulerProcessSettings(BuiltinControllerSettings, ResourceSchedulerComponentSettings):
    """What a resource scheduler in a process of its own is told."""


@dataclass(frozen=True, slots=True)
class ResourceSchedulerAssembly:
    """A resource scheduler that was put together. `services` are to be started in this order, after its surface."""

    scheduler: SchedulerHostedService
    services: Sequence[HostedService]
    app: FastAPI
    about: Mapping[str, object]


def scheduler_config(settings: ResourceSchedulerComponentSettings) -> SchedulerConfig:
    """What the scheduler is told once."""
    return SchedulerConfig(
        ports=parse_port_range(settings.lablet_port_range),
        lead_time=settings.lablet_lead_time,
        scale_up_cooldown=settings.scale_up_cooldown_seconds,
    )


def make_resource_scheduler(
    runtime: ControllerRuntime,
    settings: ResourceSchedulerComponentSettings,
    control: Client,
    *,
    registry: CollectorRegistry = REGISTRY,
) -> ResourceSchedulerAssembly:
    """Put a resource scheduler together, for whichever process runs it. It owns what it is given, and closes it."""
    scheduler = SchedulerHostedService(
        runtime.coordination,
        runtime.election(SERVICE),
        runtime.watch(LABLETS_PREFIX),
        runtime.reconciliation,
        control,
        scheduler_config(settings),
        registry=registry,
    )
    plane = ControlPlaneCheck(control)
    about: dict[str, object] = {
        "service": SERVICE,
        "version": version("lcm"),
        "instance_id": scheduler.election.instance_id,
        "coordination": runtime.coordination.description,
        "control_plane": settings.control_plane_api_url,
    }
    app = make_scheduler_admin_app(
        scheduler, AdminAuthenticator(control.access.whoami), [scheduler, plane], about, registry
    )
    ties = CloseOnStop({"control plane": control.aclose})
    return ResourceSchedulerAssembly(scheduler, [ties, plane, scheduler], app, about)


async def serve_resource_scheduler(settings: ResourceSchedulerProcessSettings, started: OnStarted) -> int:
    """Run a resource scheduler until told to stop; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    control = make_control_plane_client(settings)
    coordination = connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    made = make_resource_scheduler(ControllerRuntime(coordination, settings), settings, control)
    port = settings.resource_scheduler_port
    surface = HttpServer(made.app, settings.bind_host, port, port_setting="RESOURCE_SCHEDULER_PORT")
    greeting = StartedNotification(lambda: started(surface.url, made.about))
    return await Host([CoordinationConnection(coordination), surface, *made.services, greeting]).run()
