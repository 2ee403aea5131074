"""What a request for one more worker leads to: a worker that is resumed or launched, or none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.model.formatting import count_with_verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.model.lablet.scheduling.planner import CapacityNeed
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import WorkerTemplate


@dataclass(frozen=True, slots=True)
class ScaleUpLimits:
    """What bounds scale-up."""

    default_region: str
    max_workers_per_region: int


@dataclass(frozen=True, slots=True)
class ScaleUpOutcome:
    """What follows from a need: `worker` is resumed, or else a new worker is launched; with a `refusal` neither."""

    need: CapacityNeed
    aws_region: str
    template: WorkerTemplate | None = None
    worker: Worker | None = None
    refusal: str = ""

    @property
    def cost_per_hour_usd(self) -> float:
        """What is paid in addition."""
        if self.refusal:
            return 0.0
        if self.worker is not None and self.worker.cost_per_hour_usd is not None:
            return self.worker.cost_per_hour_usd
        return 0.0 if self.template is None else self.template.cost_per_hour_usd


def max_workers_refusal(region: str, present: int, maximum: int) -> str | None:
    """Why no more worker is launched in the region; None if one may be."""
    if present < maximum:
        return None
    return f"{count_with_verb(present, 'worker')} in {region} and MAX_WORKERS_PER_REGION is {maximum}"


def scale_up_outcomes(
    needs: Sequence[CapacityNeed],
    workers: Sequence[Worker],
    templates: Sequence[WorkerTemplate],
    limits: ScaleUpLimits,
) -> list[ScaleUpOutcome]:
    """What follows from each need, if they are requested in this order now.

    `workers` are all that are not TERMINATED.
    """
    by_id = {worker.id: worker for worker in workers}
    by_need = {worker.requested_for: worker for worker in workers if worker.requested_for is not None}
    by_name = {template.name: template for template in templates}
    present = Counter(worker.aws_region for worker in workers)
    outcomes: list[ScaleUpOutcome] = []
    for need in needs:
        region = need.aws_region or limits.default_region
        template = by_name.get(need.template)
        existing = by_need.get(need.key)
        if existing is not None:
            refusal = f"worker {existing.name}, which was requested, is {existing.status}"
            outcomes.append(ScaleUpOutcome(need, region, template, refusal=refusal))
            continue
        resumed = None if need.resumes is None else by_id.get(need.resumes)
        refusal = ""
        if resumed is None:
            refusal = max_workers_refusal(region, present[region], limits.max_workers_per_region) or ""
            present[region] += not refusal
        outcomes.append(ScaleUpOutcome(need, region, template, resumed, refusal))
    return outcomes
