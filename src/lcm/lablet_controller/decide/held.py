"""A hold: what has happened is written down, nothing is changed."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from lcm.controllers.acting import Nature
from lcm.lablet_controller.decide.facts import SOON
from lcm.lablet_controller.decision import wait
from lcm.model.lablet_attention import HELD

if TYPE_CHECKING:
    from lcm.lablet_controller.decision import Decision
    from lcm.model.worker import Hold


def under_hold(decided: Decision, hold: Hold) -> Decision:
    """What is left of a decision while somebody wants everything to stay as it is."""
    allowed = tuple(takewhile(lambda action: action.nature is Nature.RECORD, decided.actions))
    if len(allowed) == len(decided.actions):
        return decided
    held = f"{HELD}{hold.by}: {hold.reason}"
    put_off = decided.actions[len(allowed)]
    reason = f"{held}; otherwise: {put_off} ({decided.reason})"
    return wait(f"{decided.rule}.held", reason, *allowed, after=SOON, message=held)
