"""The lablet controller as a process, and as a part of one that runs others too."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.cml.types import Credentials
from lcm.controllers.common.admin_auth import Doorkeeper
from lcm.controllers.lablet.admin_api import make_surface
from lcm.controllers.lablet.controller import LabletReconciler
from lcm.controllers.lablet.deps import Policy
from lcm.controllers.lablet.figures import Gauges
from lcm.controllers.lablet.given import Outside, Rules
from lcm.core.hosting import Host, HostedService
from lcm.http.server import HttpServer
from lcm.settings import CmlSettings, LabletControllerSettings
from lcm.wiring.cml_servers import cml_servers
from lcm.wiring.connections import Connection, Greeting, connect
from lcm.wiring.control_plane_access import PlaneCheck, PlaneSideSettings, StandaloneController, Ties, plane_client
from lcm.wiring.controllers import Runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from lcm.client.client import Client
    from lcm.wiring.cml_servers import CmlServers
    from lcm.wiring.connections import Started

SERVICE: Final = "lablet-controller"
LABLETS: Final = "/instances/"


class LabletControllerParts(LabletControllerSettings, CmlSettings, PlaneSideSettings):
    """What a lablet controller is told, besides what every controller is."""


class LabletControllerProcess(StandaloneController, LabletControllerParts):
    """What a lablet controller in a process of its own is told."""


@dataclass(frozen=True, slots=True)
class LabletController:
    """A lablet controller that was put together. `services` are to be started in this order, after its surface."""

    reconciler: LabletReconciler
    services: Sequence[HostedService]
    app: FastAPI
    about: Mapping[str, object]


def rules_of(settings: LabletControllerParts) -> Rules:
    """What the reconciler is told once."""
    return Rules(
        account=Credentials(settings.cml_default_username, settings.cml_default_password.get_secret_value()),
        policy=Policy(
            start_timeout=settings.lablet_start_timeout,
            stop_timeout=settings.lablet_stop_timeout,
            worker_timeout=settings.lablet_worker_timeout,
        ),
        sweep_interval=settings.lablet_sweep_interval,
        private_addresses=settings.cml_use_private_address,
    )


def make_lablet_controller(
    runtime: Runtime,
    settings: LabletControllerParts,
    control: Client,
    cml: CmlServers,
    *,
    registry: CollectorRegistry = REGISTRY,
) -> LabletController:
    """Put a lablet controller together, for whichever process runs it. It owns what it is given, and closes it."""
    if cml.session is None:
        raise ValueError("the lablet controller needs the session of the CML servers")
    reconciler = LabletReconciler(
        runtime.coordination,
        runtime.election(SERVICE),
        runtime.watch(LABLETS),
        runtime.reconciliation,
        Outside(control, cml.session, cml.system.forget),
        rules_of(settings),
        registry=registry,
    )
    Gauges(reconciler, registry)
    plane = PlaneCheck(control)
    about: dict[str, object] = {
        "service": SERVICE,
        "version": version("lcm"),
        "instance_id": reconciler.election.instance_id,
        "coordination": runtime.coordination.description,
        "control_plane": settings.control_plane_api_url,
    }
    app = make_surface(reconciler, Doorkeeper(control.access.whoami), [reconciler, plane], about, registry)
    ties = Ties({"CML servers": cml.close, "control plane": control.aclose})
    return LabletController(reconciler, [ties, plane, reconciler], app, about)


async def serve_lablet_controller(settings: LabletControllerProcess, started: Started) -> int:
    """Run a lablet controller until told to stop; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    cml = cml_servers(settings)
    control = plane_client(settings)
    coordination = connect(settings, lease_ttl=settings.leader_lease_ttl)
    made = make_lablet_controller(Runtime(coordination, settings), settings, control, cml)
    port = settings.lablet_controller_port
    surface = HttpServer(made.app, settings.bind_host, port, port_setting="LABLET_CONTROLLER_PORT")
    greeting = Greeting(lambda: started(surface.url, made.about))
    return await Host([Connection(coordination), surface, *made.services, greeting]).run()
