"""What only the worker controller says of itself in its reports: regions, leaks and looks at the cloud."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.core import clock
from lcm.core.text import single_line
from lcm.model.system import LeakedInstanceReport, RegionReport

if TYPE_CHECKING:
    from lcm.controllers.worker.controller import WorkerReconciler
    from lcm.controllers.worker.discovery.region_monitor import RegionMonitor

CALLED_SERVICES = ("aws", "cml", "control-plane")
MAX_LEAKS = 100
_MAX_LINE = 500


def status_details(reconciler: WorkerReconciler) -> dict[str, Any]:
    """How it stands with what it looks after."""
    leaks = () if reconciler.discovery is None else reconciler.discovery.leaks.current
    return {
        "resources": len(reconciler.known.records),
        "counters": {name: max(0, value) for name, value in reconciler.stats().items()},
        "regions": tuple(_region_report(name, watch) for name, watch in sorted(reconciler.regions.items())),
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
    }


def simulated_cloud_calls(reconciler: WorkerReconciler) -> dict[str, dict[str, int]]:
    """What a simulated cloud was asked for: it counts by purpose, and nowhere else."""
    made: dict[str, int] = {}
    for watch in reconciler.regions.values():
        for purpose, count in watch.observer.calls_total.items():
            made[purpose] = made.get(purpose, 0) + count
    return {purpose: {"made": count} for purpose, count in sorted(made.items())}


def _region_report(name: str, watch: RegionMonitor) -> RegionReport:
    sweep = watch.observer.latest
    if sweep is None:
        return RegionReport(name=name, breaker_open=watch.breaker.is_open)
    return RegionReport(
        name=name,
        last_sweep_at=clock.now() - timedelta(seconds=clock.boottime() - sweep.began_at),
        complete=sweep.complete,
        instances=len(sweep.instances),
        breaker_open=watch.breaker.is_open,
        trouble=single_line(sweep.trouble or "", _MAX_LINE),
    )
