"""The worker controller's own HTTP surface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.controllers.common import surface
from lcm.controllers.worker.figures import figures_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from lcm.controllers.common.admin_auth import Doorkeeper
    from lcm.controllers.worker.controller import WorkerReconciler
    from lcm.core.hosting import HostedService


def make_surface(
    reconciler: WorkerReconciler,
    doorkeeper: Doorkeeper,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    registry: CollectorRegistry = REGISTRY,
) -> FastAPI:
    """The app. `services` are those whose readiness counts, the reconciler among them."""

    async def find(worker_id: str) -> object:
        return reconciler.known.records.get(worker_id) or await reconciler.internal.worker(worker_id)

    told = surface.Told("worker controller", "worker", lambda: figures_of(reconciler), find)
    return surface.make_surface(reconciler, doorkeeper, services, info, told, registry)
