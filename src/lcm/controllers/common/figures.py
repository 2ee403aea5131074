"""How it stands with a controller's leading and its queue, for people at /admin/stats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lcm.core.controller.watching import WatchTriggeredHostedService


def machinery_figures(controller: WatchTriggeredHostedService[Any]) -> dict[str, Any]:
    """Who leads, and how much waits."""
    queue = controller.queue
    return {
        "leadership": {
            "is_leader": controller.is_leader,
            "term": controller.term,
            "instance_id": controller.election.instance_id,
            "leader": controller.leader_seen,
            "watching": controller.watching,
        },
        "queue": {"depth": len(queue), "busy": queue.busy, "delayed": queue.delayed},
    }
