"""The resource scheduler's own HTTP surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.controllers.common import admin_api
from lcm.controllers.common.stats import leadership_and_queue_stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from lcm.controllers.common.admin_auth import AdminAuthenticator
    from lcm.controllers.scheduler.controller import SchedulerHostedService
    from lcm.core.hosting import HostedService


def make_scheduler_admin_app(
    scheduler: SchedulerHostedService,
    doorkeeper: AdminAuthenticator,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    registry: CollectorRegistry = REGISTRY,
) -> FastAPI:
    """The app. `services` are those whose readiness counts, the scheduler among them."""
    told = admin_api.AdminInfo(
        "resource scheduler", "lablet", lambda: scheduler_stats(scheduler), scheduler.internal.lablet
    )
    return admin_api.make_admin_app(scheduler, doorkeeper, services, info, told, registry)


def scheduler_stats(scheduler: SchedulerHostedService) -> dict[str, Any]:
    """The counters, and beside them how it stands with leading, the queue and the gate."""
    return {
        **scheduler.counters.as_dict(),
        **leadership_and_queue_stats(scheduler),
        "standing_still": scheduler.rounds.closed or None,
    }
