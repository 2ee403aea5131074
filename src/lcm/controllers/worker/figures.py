"""What a worker controller knows of itself, for people at /admin/stats."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.controllers.common.figures import machinery_figures
from lcm.core import clock

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.controller import WorkerReconciler
    from lcm.controllers.worker.discovery.region_monitor import RegionWatch


def figures_of(reconciler: WorkerReconciler) -> dict[str, Any]:
    """The twelve counters, and beside them how it stands with leading, queue, regions, discovery and figures."""
    return {
        **reconciler.stats(),
        **machinery_figures(reconciler),
        "regions": {name: _region(watch) for name, watch in sorted(reconciler.regions.items())},
        "discovery": None if reconciler.discovery is None else reconciler.discovery.figures(),
        "metrics": {"rounds": reconciler.metrics.rounds, "samples_kept": reconciler.metrics.collected},
    }


def _region(watch: RegionWatch) -> dict[str, Any]:
    breaker = watch.breaker
    return {
        "last_sweep": _last_sweep(watch),
        "calls_last_cycle": dict(sorted(watch.observer.calls_last_cycle.items())),
        "calls_total": dict(sorted(watch.observer.calls_total.items())),
        "followed_closely": len(watch.observer.tracked),
        "breaker": {
            "open": watch.breaker_open,
            "reason": breaker.reason,
            "only_a_person_closes": breaker.is_open and breaker.only_a_person,
        },
    }


def _last_sweep(watch: RegionWatch) -> dict[str, Any] | None:
    sweep = watch.observer.latest
    if sweep is None:
        return None
    return {
        "began_at": _text(clock.now() - timedelta(seconds=clock.boottime() - sweep.began_at)),
        "complete": sweep.complete,
        "instances": len(sweep.instances),
        "calls": sweep.calls,
        "account_id": sweep.account_id,
        "trouble": sweep.trouble,
    }


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
