"""Whether anything may be placed now: not before the workers were verified, and not while the fleet is on hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.core import clock
from lcm.model.formatting import as_clause

if TYPE_CHECKING:
    from lcm.client.resources.internal import InternalApi

WORKER_CONTROLLER = "worker-controller"


@dataclass(frozen=True, slots=True)
class PlacementBlocked:
    """Nothing is placed. `passing`: it is expected to end by itself within seconds, and not worth a word at once."""

    reason: str
    passing: bool = False


async def find_placement_block(internal: InternalApi) -> PlacementBlocked | None:
    """Why nothing may be placed now; None: it may."""
    hold = (await internal.fleet()).hold
    if hold is not None and hold.active(clock.now()):
        return PlacementBlocked(f"the fleet is on hold by {hold.by}: {as_clause(hold.reason)}")
    leaders = {leader.controller: leader for leader in await internal.leaders()}
    verifier = leaders.get(WORKER_CONTROLLER)
    if verifier is None or not verifier.startup_sweep_done:
        return PlacementBlocked("nothing is placed until the worker controller has verified all workers", passing=True)
    return None
