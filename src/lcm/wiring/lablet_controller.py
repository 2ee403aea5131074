"""Assembles the lablet controller, for its own process or as part of another."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.cml.types import Credentials
from lcm.controllers.common.admin_api import make_admin_app
from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.controllers.lablet.controller import LabletReconciler
from lcm.controllers.lablet.deps import LabletControllerConfig, LabletDependencies, LabletPolicy
from lcm.controllers.lablet.metrics import LabletGauges
from lcm.core.hosting import Host, HostedService
from lcm.core.version import installed_version
from lcm.settings import CmlSettings, LabletControllerSettings
from lcm.wiring.connections import CoordinationConnection, StartedNotification, connect_cml, connect_coordination
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
    from lcm.wiring.connections import CmlConnection, OnStarted

SERVICE: Final = "lablet-controller"
LABLETS_PREFIX: Final = "/instances/"  # the control plane mirrors lablets, not EC2 instances, under this prefix


class LabletControllerComponentSettings(LabletControllerSettings, CmlSettings, ControlPlaneClientSettings):
    """Settings of a lablet controller, besides those of every controller."""


class LabletControllerProcessSettings(BuiltinControllerSettings, LabletControllerComponentSettings):
    """Settings of a lablet controller in its own process."""


@dataclass(frozen=True, slots=True)
class LabletControllerAssembly:
    """An assembled lablet controller. Start its HTTP server first, then `services` in this order."""

    reconciler: LabletReconciler
    services: Sequence[HostedService]
    app: FastAPI
    about: Mapping[str, object]


def controller_config(settings: LabletControllerComponentSettings) -> LabletControllerConfig:
    """The controller configuration from the settings."""
    names = [each.name for each in fields(LabletPolicy)]
    timeouts = [name for name in names if f"lablet_{name}" in LabletControllerSettings.model_fields]
    return LabletControllerConfig(
        account=Credentials(settings.cml_default_username, settings.cml_default_password.get_secret_value()),
        policy=LabletPolicy(**{name: getattr(settings, f"lablet_{name}") for name in timeouts}),
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
    """Assemble a lablet controller for any process. It owns and closes its arguments."""
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
        "version": installed_version(),
        "instance_id": reconciler.election.instance_id,
        "coordination": runtime.coordination.description,
        "control_plane": settings.control_plane_api_url,
    }
    authenticator = AdminAuthenticator(control.access.whoami)
    app = make_admin_app(reconciler, authenticator, [reconciler, plane], about, reconciler.admin_info(), registry)
    cleanup = CloseOnStop({"CML servers": cml.close, "control plane": control.aclose})
    return LabletControllerAssembly(reconciler, [cleanup, plane, reconciler], app, about)


async def serve_lablet_controller(settings: LabletControllerProcessSettings, started: OnStarted) -> int:
    """Run a lablet controller until it is stopped; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    cml = connect_cml(settings)
    control = make_control_plane_client(settings)
    coordination = connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    assembly = make_lablet_controller(ControllerRuntime(coordination, settings), settings, control, cml)
    port = settings.lablet_controller_port
    server = make_http_server(assembly.app, settings, port, "LABLET_CONTROLLER_PORT")
    notification = StartedNotification(lambda: started(server.url, assembly.about))
    return await Host([CoordinationConnection(coordination), server, *assembly.services, notification]).run()
