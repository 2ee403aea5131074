"""What is lost when a worker ends, for whoever is about to end it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.cli.durations import short
from lcm.cli.worker_views import cost_so_far, money
from lcm.core import clock

if TYPE_CHECKING:
    from lcm.cli.session import Session
    from lcm.model.metrics import MetricsSample
    from lcm.model.worker import Worker

_RECENT = timedelta(minutes=30)


async def show_losses(session: Session, worker: Worker) -> None:
    """The worker, and what goes with it."""
    now = clock.now()
    samples = await session.client.workers.metrics(worker.id, since=now - _RECENT)
    session.screen.say(f"{worker.name} ({worker.id}) in {worker.aws_region}, {worker.status}", style="bold")
    facts = [
        (
            "instance",
            worker.instance_id or "none",
        ),
        ("running", running_words(samples[-1] if samples else None, worker)),
        ("licence", licence_words(worker)),
    ]
    cost = cost_so_far(worker, now)
    if cost is not None:
        rate = money(worker.cost_per_hour_usd)
        facts.append(("cost", f"about ${cost:.2f} so far, ${rate} an hour; its disks and all on them are deleted"))
    if worker.last_activity_at is not None:
        facts.append(("last used", f"{short(now - worker.last_activity_at)} ago"))
    session.screen.facts(facts)


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
