"""Assembles the resource scheduler, for its own process or as part of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.controllers.common.admin_api import make_admin_app
from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.controllers.scheduler.config import SchedulerConfig
from lcm.controllers.scheduler.controller import SchedulerHostedService
from lcm.core.hosting import Host, HostedService
from lcm.core.version import installed_version
from lcm.model.lablet.ports import parse_port_range
from lcm.settings import LabletPlanningSettings, ResourceSchedulerSettings
from lcm.wiring.connections import CoordinationConnection, StartedNotification, connect_coordination
from lcm.wiring.controllers import (
    BuiltinControllerSettings,
    CloseOnStop,
    ControllerRuntime,
    ControlPlaneCheck,
    ControlPlaneClientSettings,
    make_control_plane_client,
)
from lcm.wiring.listener import make_http_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from lcm.client.client import Client
    from lcm.wiring.connections import OnStarted

SERVICE: Final = "resource-scheduler"
LABLETS_PREFIX: Final = "/instances/"  # the control plane mirrors lablets, not EC2 instances, under this prefix


class ResourceSchedulerComponentSettings(ResourceSchedulerSettings, LabletPlanningSettings, ControlPlaneClientSettings):
    """Settings of a resource scheduler, besides those of every controller."""


class ResourceSchedulerProcessSettings(BuiltinControllerSettings, ResourceSchedulerComponentSettings):
    """Settings of a resource scheduler in its own process."""


@dataclass(frozen=True, slots=True)
class ResourceSchedulerAssembly:
    """An assembled resource scheduler. Start its HTTP server first, then `services` in this order."""

    scheduler: SchedulerHostedService
    services: Sequence[HostedService]
    app: FastAPI
    about: Mapping[str, object]


def scheduler_config(settings: ResourceSchedulerComponentSettings) -> SchedulerConfig:
    """The scheduler configuration from the settings."""
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
    """Assemble a resource scheduler for any process. It owns and closes its arguments."""
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
        "version": installed_version(),
        "instance_id": scheduler.election.instance_id,
        "coordination": runtime.coordination.description,
        "control_plane": settings.control_plane_api_url,
    }
    authenticator = AdminAuthenticator(control.access.whoami)
    app = make_admin_app(scheduler, authenticator, [scheduler, plane], about, scheduler.admin_info(), registry)
    cleanup = CloseOnStop({"control plane": control.aclose})
    return ResourceSchedulerAssembly(scheduler, [cleanup, plane, scheduler], app, about)


async def serve_resource_scheduler(settings: ResourceSchedulerProcessSettings, started: OnStarted) -> int:
    """Run a resource scheduler until it is stopped; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    control = make_control_plane_client(settings)
    coordination = connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    assembly = make_resource_scheduler(ControllerRuntime(coordination, settings), settings, control)
    port = settings.resource_scheduler_port
    server = make_http_server(assembly.app, settings, port, "RESOURCE_SCHEDULER_PORT")
    notification = StartedNotification(lambda: started(server.url, assembly.about))
    return await Host([CoordinationConnection(coordination), server, *assembly.services, notification]).run()
