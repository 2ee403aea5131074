"""A hold: what has happened is written down, nothing is changed."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from lcm.controllers.common.actions import Nature
from lcm.controllers.lablet.decide.decision import wait
from lcm.controllers.lablet.decide.predicates import SOON
from lcm.model.lablet.urgency import HELD

if TYPE_CHECKING:
    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.model.worker.record import Hold


def under_hold(decided: Decision, hold: Hold) -> Decision:
    """What is left of a decision while somebody wants everything to stay as it is."""
    allowed = tuple(takewhile(lambda action: action.nature is Nature.RECORD, decided.actions))
    if len(allowed) == len(decided.actions):
        return decided
    held = f"{HELD}{hold.by}: {hold.reason}"
    put_off = decided.actions[len(allowed)]
    reason = f"{held}; otherwise: {put_off} ({decided.reason})"
    return wait(f"{decided.rule}.held", reason, *allowed, after=SOON, message=held)
