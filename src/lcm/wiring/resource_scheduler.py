"""The resource scheduler as a process, and as a part of one that runs others too."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.controllers.common.admin_auth import Doorkeeper
from lcm.controllers.scheduler.admin_api import make_surface
from lcm.controllers.scheduler.plan import Rules
from lcm.controllers.scheduler.scheduler import SchedulerHostedService
from lcm.core.hosting import Host, HostedService
from lcm.http.server import HttpServer
from lcm.model.lablet.ports import port_range
from lcm.settings import LabletPorts, ResourceSchedulerSettings
from lcm.wiring.connections import Connection, Greeting, connect
from lcm.wiring.control_plane_access import PlaneCheck, PlaneSideSettings, StandaloneController, Ties, plane_client
from lcm.wiring.controllers import Runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from lcm.client.client import Client
    from lcm.wiring.connections import Started

SERVICE: Final = "resource-scheduler"
LABLETS: Final = "/instances/"


class ResourceSchedulerParts(ResourceSchedulerSettings, LabletPorts, PlaneSideSettings):
    """What a resource scheduler is told, besides what every controller is."""


class ResourceSchedulerProcess(StandaloneController, ResourceSchedulerParts):
    """What a resource scheduler in a process of its own is told."""


@dataclass(frozen=True, slots=True)
class ResourceScheduler:
    """A resource scheduler that was put together. `services` are to be started in this order, after its surface."""

    scheduler: SchedulerHostedService
    services: Sequence[HostedService]
    app: FastAPI
    about: Mapping[str, object]


def rules_of(settings: ResourceSchedulerParts) -> Rules:
    """What the scheduler is told once."""
    return Rules(
        ports=port_range(settings.lablet_port_range),
        lead_time=settings.lablet_lead_time,
        scale_up_cooldown=settings.scale_up_cooldown_seconds,
    )


def make_resource_scheduler(
    runtime: Runtime,
    settings: ResourceSchedulerParts,
    control: Client,
    *,
    registry: CollectorRegistry = REGISTRY,
) -> ResourceScheduler:
    """Put a resource scheduler together, for whichever process runs it. It owns what it is given, and closes it."""
    scheduler = SchedulerHostedService(
        runtime.coordination,
        runtime.election(SERVICE),
        runtime.watch(LABLETS),
        runtime.reconciliation,
        control,
        rules_of(settings),
        registry=registry,
    )
    plane = PlaneCheck(control)
    about: dict[str, object] = {
        "service": SERVICE,
        "version": version("lcm"),
        "instance_id": scheduler.election.instance_id,
        "coordination": runtime.coordination.description,
        "control_plane": settings.control_plane_api_url,
    }
    app = make_surface(scheduler, Doorkeeper(control.access.whoami), [scheduler, plane], about, registry)
    ties = Ties({"control plane": control.aclose})
    return ResourceScheduler(scheduler, [ties, plane, scheduler], app, about)


async def serve_resource_scheduler(settings: ResourceSchedulerProcess, started: Started) -> int:
    """Run a resource scheduler until told to stop; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    control = plane_client(settings)
    coordination = connect(settings, lease_ttl=settings.leader_lease_ttl)
    made = make_resource_scheduler(Runtime(coordination, settings), settings, control)
    port = settings.resource_scheduler_port
    surface = HttpServer(made.app, settings.bind_host, port, port_setting="RESOURCE_SCHEDULER_PORT")
    greeting = Greeting(lambda: started(surface.url, made.about))
    return await Host([Connection(coordination), surface, *made.services, greeting]).run()
