"""The worker controller's own HTTP surface."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.controllers.common import admin_api
from lcm.controllers.common.stats import leadership_and_queue_stats
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from fastapi import FastAPI

    from lcm.controllers.common.admin_auth import AdminAuthenticator
    from lcm.controllers.worker.controller import WorkerReconciler
    from lcm.controllers.worker.discovery.region_monitor import RegionMonitor
    from lcm.core.hosting import HostedService


def create_admin_app(
    reconciler: WorkerReconciler,
    doorkeeper: AdminAuthenticator,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    registry: CollectorRegistry = REGISTRY,
) -> FastAPI:
    """The app. `services` are those whose readiness counts, the reconciler among them."""

    async def find(worker_id: str) -> object:
        return reconciler.known.records.get(worker_id) or await reconciler.internal.worker(worker_id)

    told = admin_api.AdminInfo("worker controller", "worker", lambda: controller_stats(reconciler), find)
    return admin_api.make_admin_app(reconciler, doorkeeper, services, info, told, registry)


def controller_stats(reconciler: WorkerReconciler) -> dict[str, Any]:
    """The twelve counters, and beside them how it stands with leading, queue, regions, discovery and figures."""
    return {
        **reconciler.stats(),
        **leadership_and_queue_stats(reconciler),
        "regions": {name: _region_stats(watch) for name, watch in sorted(reconciler.regions.items())},
        "discovery": None if reconciler.discovery is None else reconciler.discovery.figures(),
        "metrics": {"rounds": reconciler.metrics.rounds, "samples_kept": reconciler.metrics.collected},
    }


def _region_stats(watch: RegionMonitor) -> dict[str, Any]:
    breaker = watch.breaker
    return {
        "last_sweep": _last_sweep(watch),
        "calls_last_cycle": dict(sorted(watch.observer.calls_last_cycle.items())),
        "calls_total": dict(sorted(watch.observer.calls_total.items())),
        "followed_closely": len(watch.observer.tracked),
        "breaker": {
            "open": watch.breaker_open,
            "reason": breaker.reason,
            "only_a_person_closes": breaker.is_open and breaker.manual_reset_only,
        },
    }


def _last_sweep(watch: RegionMonitor) -> dict[str, Any] | None:
    sweep = watch.observer.latest
    if sweep is None:
        return None
    return {
        "began_at": _timestamp(clock.now() - timedelta(seconds=clock.boottime() - sweep.began_at)),
        "complete": sweep.complete,
        "instances": len(sweep.instances),
        "calls": sweep.calls,
        "account_id": sweep.account_id,
        "trouble": sweep.trouble,
    }


def _timestamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
