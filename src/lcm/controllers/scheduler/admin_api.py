"""The resource scheduler's own HTTP surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.controllers.common import surface
from lcm.controllers.common.figures import machinery_figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from lcm.controllers.common.admin_auth import Doorkeeper
    from lcm.controllers.scheduler.scheduler import SchedulerHostedService
    from lcm.core.hosting import HostedService


def make_surface(
    scheduler: SchedulerHostedService,
    doorkeeper: Doorkeeper,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    registry: CollectorRegistry = REGISTRY,
) -> FastAPI:
    """The app. `services` are those whose readiness counts, the scheduler among them."""
    told = surface.Told("resource scheduler", "lablet", lambda: figures_of(scheduler), scheduler.internal.lablet)
    return surface.make_surface(scheduler, doorkeeper, services, info, told, registry)


def figures_of(scheduler: SchedulerHostedService) -> dict[str, Any]:
    """The counters, and beside them how it stands with leading, the queue and the gate."""
    return {
        **scheduler.counters.as_dict(),
        **machinery_figures(scheduler),
        "standing_still": scheduler.rounds.closed or None,
    }
