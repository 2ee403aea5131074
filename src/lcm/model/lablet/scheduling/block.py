"""Why nothing is placed at present."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.model.formatting import as_clause

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.model.fleet.state import FleetState, LeadershipTerm

WORKER_CONTROLLER = "worker-controller"


@dataclass(frozen=True, slots=True)
class PlacementBlock:
    """Placement is blocked. `is_transient`: expected to end within seconds, so it is not reported at once."""

    reason: str
    is_transient: bool = False


def hold_block(fleet: FleetState, now: datetime) -> PlacementBlock | None:
    """Whether the fleet's hold blocks placement."""
    hold = fleet.hold
    if hold is None or not hold.active(now):
        return None
    return PlacementBlock(f"the fleet is on hold by {hold.by}: {as_clause(hold.reason)}")


def verification_block(leaders: Iterable[LeadershipTerm]) -> PlacementBlock | None:
    """Whether placement waits until the leading worker controller has verified all workers."""
    verifier = next((each for each in leaders if each.controller == WORKER_CONTROLLER), None)
    if verifier is not None and verifier.startup_sweep_done:
        return None
    return PlacementBlock("placement waits until the worker controller has verified all workers", is_transient=True)
