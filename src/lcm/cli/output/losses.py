"""What is lost when a worker ends, for whoever is about to end it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.output.durations import short
from lcm.cli.output.worker_views import money
from lcm.core import clock
from lcm.model.worker.cost import RECENT, cost_so_far, licence_words, running_words

if TYPE_CHECKING:
    from lcm.cli.runtime.session import Session
    from lcm.model.worker.record import Worker


async def show_losses(session: Session, worker: Worker) -> None:
    """The worker, and what goes with it."""
    now = clock.now()
    samples = await session.client.workers.metrics(worker.id, since=now - RECENT)
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
