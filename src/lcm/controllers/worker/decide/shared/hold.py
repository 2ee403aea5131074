"""What is left of a decision while a hold counts: what has happened is recorded, nothing is begun."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decision import ChangeInstance, CheckIdle, Launch, WriteStatus
from lcm.core.controller.resources import Outcome

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Action, Decision
    from lcm.model.worker.record import Hold


HELD_RULE = "held"


def apply_hold(decision: Decision, hold: Hold, now: datetime) -> Decision:
    """The same without anything that changes the world or gives an instance up.

    What comes after a step that is held back must not happen without it, so records count only up to there; to look
    for idleness is no such consequence, and the control plane pauses nobody who is on hold.
    """
    kept: list[Action] = []
    held: list[Action] = []
    for action in decision.actions:
        passes = isinstance(action, CheckIdle) or (not held and action.nature is ActionKind.RECORD)
        (kept if passes else held).append(action)
    if not held:
        return decision
    would = ", ".join(str(action) for action in held)
    after = None if hold.until is None else max(0.0, (hold.until - now).total_seconds())
    # What would be said of the instance belongs to the step that is held back.
    begun = any(isinstance(action, WriteStatus | ChangeInstance | Launch) for action in held)
    return replace(
        decision,
        rule=HELD_RULE,
        reason=f"on hold by {hold.by} ({hold.reason}); it would: {would}, because {decision.reason}",
        actions=tuple(kept),
        conditions=() if begun else decision.conditions,
        outcome=Outcome.REQUEUE,
        after=after,
        inputs={**decision.inputs, "without_hold": decision.rule},
    )
