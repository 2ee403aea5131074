"""The lablet controller's own HTTP surface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.controllers.common import surface
from lcm.controllers.lablet.figures import figures_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from lcm.controllers.common.admin_auth import Doorkeeper
    from lcm.controllers.lablet.controller import LabletReconciler
    from lcm.core.hosting import HostedService


def make_surface(
    reconciler: LabletReconciler,
    doorkeeper: Doorkeeper,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    registry: CollectorRegistry = REGISTRY,
) -> FastAPI:
    """The app. `services` are those whose readiness counts, the reconciler among them."""
    find = reconciler.internal.lablet
    told = surface.Told("lablet controller", "lablet", lambda: figures_of(reconciler), find)
    return surface.make_surface(reconciler, doorkeeper, services, info, told, registry)
