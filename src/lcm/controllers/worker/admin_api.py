"""What the worker controller publishes about itself: its admin API and the details of its status reports."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.controllers.common import admin_api
from lcm.controllers.common.status_report import leadership_and_queue_stats
from lcm.controllers.worker.readers.routes import MAX_READS_BYTES, READ_PATH, reader_routes
from lcm.core import clock
from lcm.core.text import single_line
from lcm.model.system import MAX_LEAKS, LeakedInstanceReport, RegionReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from fastapi import FastAPI

    from lcm.controllers.common.admin_auth import AdminAuthenticator
    from lcm.controllers.worker.controller import WorkerReconciler
    from lcm.controllers.worker.discovery.region_monitor import RegionMonitor
    from lcm.controllers.worker.readers.routes import ServerReader
    from lcm.core.hosting import HostedService


def make_worker_admin_app(
    reconciler: WorkerReconciler,
    authenticator: AdminAuthenticator,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    registry: CollectorRegistry = REGISTRY,
    *,
    reader: ServerReader | None = None,
) -> FastAPI:
    """The admin app. `services` are those whose readiness counts, including the reconciler."""

    async def find(worker_id: str) -> object:
        return reconciler.cache.records.get(worker_id) or await reconciler.internal.worker(worker_id)

    admin_info = admin_api.AdminInfo("worker controller", "worker", lambda: controller_stats(reconciler), find)
    return admin_api.make_admin_app(
        reconciler,
        authenticator,
        services,
        info,
        admin_info,
        registry,
        more=None if reader is None else reader_routes(reader, authenticator),
        max_body=lambda path: MAX_READS_BYTES if path == READ_PATH else admin_api.MAX_BODY_BYTES,
    )


def controller_stats(reconciler: WorkerReconciler) -> dict[str, Any]:
    """The counters, and the state of leadership, queue, regions, discovery and metrics."""
    return {
        **reconciler.stats(),
        **leadership_and_queue_stats(reconciler),
        "regions": {name: _region_stats(monitor) for name, monitor in sorted(reconciler.regions.items())},
        "discovery": None if reconciler.discovery is None else reconciler.discovery.stats(),
        "metrics": {"rounds": reconciler.metrics.rounds, "samples_kept": reconciler.metrics.collected},
    }


def _region_stats(monitor: RegionMonitor) -> dict[str, Any]:
    breaker = monitor.breaker
    return {
        "last_sweep": _last_sweep(monitor),
        "calls_last_cycle": dict(sorted(monitor.region_cache.calls_last_cycle.items())),
        "calls_total": dict(sorted(monitor.region_cache.calls_total.items())),
        "followed_closely": len(monitor.region_cache.tracked),
        "breaker": {
            "open": monitor.breaker_open,
            "reason": breaker.reason,
            "only_a_person_closes": breaker.is_open and breaker.manual_reset_only,
        },
    }


def _last_sweep(monitor: RegionMonitor) -> dict[str, Any] | None:
    sweep = monitor.region_cache.latest
    if sweep is None:
        return None
    return {
        "began_at": _timestamp(clock.now() - timedelta(seconds=clock.boottime() - sweep.began_at)),
        "complete": sweep.complete,
        "instances": len(sweep.instances),
        "calls": sweep.calls,
        "account_id": sweep.account_id,
        "trouble": sweep.error,
    }


def _timestamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


CALLED_SERVICES = ("aws", "cml", "control-plane")
_MAX_LINE = 500


def status_details(reconciler: WorkerReconciler) -> dict[str, Any]:
    """The part of a status report that only the worker controller has."""
    leaks = () if reconciler.discovery is None else reconciler.discovery.leaks.current
    return {
        "resources": len(reconciler.cache.records),
        "counters": {name: max(0, value) for name, value in reconciler.stats().items()},
        "regions": tuple(_region_report(name, monitor) for name, monitor in sorted(reconciler.regions.items())),
        "leaks": tuple(
            LeakedInstanceReport(
                instance_id=leak.instance_id,
                region=leak.region,
                since=leak.since,
                reason=single_line(leak.reason, _MAX_LINE),
            )
            for leak in leaks[:MAX_LEAKS]
        ),
        "leaks_total": len(leaks),
        "scanned_regions": () if reconciler.discovery is None else reconciler.discovery.leaks.scanned_regions,
        "discovery": None if reconciler.discovery is None else reconciler.discovery.plan(),
    }


def simulated_cloud_calls(reconciler: WorkerReconciler) -> dict[str, dict[str, int]]:
    """The calls to a simulated cloud by purpose; no metric counts them."""
    calls: dict[str, int] = {}
    for monitor in reconciler.regions.values():
        for purpose, count in monitor.region_cache.calls_total.items():
            calls[purpose] = calls.get(purpose, 0) + count
    return {purpose: {"made": count} for purpose, count in sorted(calls.items())}


def _region_report(name: str, monitor: RegionMonitor) -> RegionReport:
    sweep = monitor.region_cache.latest
    if sweep is None:
        return RegionReport(name=name, breaker_open=monitor.breaker.is_open)
    return RegionReport(
        name=name,
        last_sweep_at=clock.now() - timedelta(seconds=clock.boottime() - sweep.began_at),
        complete=sweep.complete,
        instances=len(sweep.instances),
        breaker_open=monitor.breaker.is_open,
        blind_seconds=monitor.region_cache.blind_seconds,
        trouble=single_line(sweep.error or "", _MAX_LINE),
    )
