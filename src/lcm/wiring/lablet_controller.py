"""The lablet controller as a process, and as a part of one that runs others too."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.cml.types import Credentials
from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.controllers.lablet.admin_api import make_lablet_admin_app
from lcm.controllers.lablet.controller import LabletReconciler
from lcm.controllers.lablet.deps import LabletControllerConfig, LabletDependencies, LabletPolicy
from lcm.controllers.lablet.metrics import LabletGauges
from lcm.core.hosting import Host, HostedService
from lcm.http.server import HttpServer
from lcm.settings import CmlSettings, LabletControllerSettings
from lcm.wiring.cml_servers import connect_cml
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
    from lcm.wiring.cml_servers import CmlConnection
    from lcm.wiring.connections import OnStarted

SERVICE: Final = "lablet-controller"
LABLETS_PREFIX: Final = "/instances/"


class LabletControllerComponentSettings(LabletControllerSettings, CmlSettings, ControlPlaneClientSettings):
    """What a lablet controller is told, besides what every controller is."""


class LabletControllerProcessSettings(BuiltinControllerSettings, LabletControllerComponentSettings):
    """What a lablet controller in a process of its own is told."""


@dataclass(frozen=True, slots=True)
class LabletControllerAssembly:
    """A lablet controller that was put together. `services` are to be started in this order, after its surface."""

    reconciler: LabletReconciler
    services: Sequence[HostedService]
    app: FastAPI
    about: Mapping[str, object]


def controller_config(settings: LabletControllerComponentSettings) -> LabletControllerConfig:
    """What the reconciler is told once."""
    return LabletControllerConfig(
        account=Credentials(settings.cml_default_username, settings.cml_default_password.get_secret_value()),
        policy=LabletPolicy(
            start_timeout=settings.lablet_start_timeout,
            stop_timeout=settings.lablet_stop_timeout,
            worker_timeout=settings.lablet_worker_timeout,
        ),
        sweep_interval=settings.lablet_sweep_interval,
        private_addresses=settings.cml_use_private_address,
    )


def make_lablet_controller(
    runtime: ControllerRuntime,
    settings: LabletControllerComponentSettings,
    control: Client,
    cml: CmlConnection,
    *,
    registry: CollectorRegistry = REGISTRY,
) -> LabletControllerAssembly:
    """Put a lablet controller together, for whichever process runs it. It owns what it is given, and closes it."""
    if cml.session is None:
        raise ValueError("the lablet controller needs the session of the CML servers")
    reconciler = LabletReconciler(
        runtime.coordination,
        runtime.election(SERVICE),
        runtime.watch(LABLETS_PREFIX),
        runtime.reconciliation,
        LabletDependencies(control, cml.session, cml.system.forget),
        controller_config(settings),
        registry=registry,
    )
    LabletGauges(reconciler, registry)
    plane = ControlPlaneCheck(control)
    about: dict[str, object] = {
        "service": SERVICE,
        "version": version("lcm"),
        "instance_id": reconciler.election.instance_id,
        "coordination": runtime.coordination.description,
        "control_plane": settings.control_plane_api_url,
    }
    app = make_lablet_admin_app(
        reconciler, AdminAuthenticator(control.access.whoami), [reconciler, plane], about, registry
    )
    ties = CloseOnStop({"CML servers": cml.close, "control plane": control.aclose})
    return LabletControllerAssembly(reconciler, [ties, plane, reconciler], app, about)


async def serve_lablet_controller(settings: LabletControllerProcessSettings, started: OnStarted) -> int:
    """Run a lablet controller until told to stop; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    cml = connect_cml(settings)
    control = make_control_plane_client(settings)
    coordination = connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    made = make_lablet_controller(ControllerRuntime(coordination, settings), settings, control, cml)
    port = settings.lablet_controller_port
    surface = HttpServer(made.app, settings.bind_host, port, port_setting="LABLET_CONTROLLER_PORT")
    greeting = StartedNotification(lambda: started(surface.url, made.about))
    return await Host([CoordinationConnection(coordination), surface, *made.services, greeting]).run()
