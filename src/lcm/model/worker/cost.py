"""What runs on a worker, what it has cost, and what becomes of its licence, for whoever is about to end it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.record import Worker

RECENT = timedelta(minutes=30)
"""How old figures of CML may be to say something about now."""


def cost_so_far(worker: Worker, now: datetime) -> float | None:
    """About what its instance has cost: while it was stopped it cost nothing."""
    since = worker.instance_since or worker.created_at
    if worker.cost_per_hour_usd is None or worker.instance_id is None:
        return None
    stopped = timedelta(seconds=worker.stopped_seconds)
    if worker.status == "STOPPED":
        stopped += now - worker.status_since
    hours = max(timedelta(), now - since - stopped) / timedelta(hours=1)
    return hours * worker.cost_per_hour_usd


def running_words(sample: MetricsSample | None, worker: Worker) -> str:
    """Labs and nodes, as they were last counted."""
    if worker.status not in ("RUNNING", "DRAINING"):
        return "nothing: it does not run"
    if sample is None or sample.labs_count is None:
        return "not known: CML has not been counted in the last 30 minutes"
    return f"{sample.running_nodes or 0} of {sample.nodes_count or 0} nodes, in {sample.labs_count} labs"


def licence_words(worker: Worker) -> str:
    """What becomes of the licence."""
    if worker.license_status == "registered":
        return "registered; it is given back first, while CML can be reached"
    return f"{worker.license_status}, nothing to give back"
