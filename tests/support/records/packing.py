"""How many workers a set of lablets needs by first-fit decreasing: independent of the scheduler's code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.model.worker.template import DEFAULT_TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.model.lablet.record import LabletRequirements


def first_fit_decreasing(requirements: Sequence[LabletRequirements]) -> int:
    """The number of workers: largest lablet first, on the first with room, else a new one of the cheapest template."""
    sizes = {
        each.name: (each.capacity.cpu_cores, each.capacity.memory_gb, each.capacity.storage_gb, each.capacity.max_nodes)
        for each in sorted(DEFAULT_TEMPLATES, key=lambda template: template.cost_per_hour_usd)
    }
    most = [max(size[place] for size in sizes.values()) for place in range(4)]
    vectors = [(each.cpu_cores, each.memory_gb, each.storage_gb, each.nodes) for each in requirements]
    vectors.sort(key=lambda vector: max(need / all_ for need, all_ in zip(vector, most, strict=True)), reverse=True)
    bins: list[list[float]] = []
    for vector in vectors:
        for left in [*bins, *(list(size) for size in sizes.values())]:
            if all(need <= have for need, have in zip(vector, left, strict=True)):
                break
        if not any(left is known for known in bins):
            bins.append(left)
        for place, need in enumerate(vector):
            left[place] -= need
    return len(bins)
