"""Applies a hold to a decision: what has happened is recorded, nothing new is started."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decision import ChangeInstance, CheckIdle, Launch, WriteStatus
from lcm.core.controller.resources import Outcome
from lcm.model.worker.conditions import INSTANCE_MISSING

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Action, ConditionUpdate, Decision
    from lcm.model.worker.record import Hold


HELD_RULE = "held"


def apply_hold(decision: Decision, hold: Hold, now: datetime) -> Decision:
    """The decision without actions that change something or give up an instance.

    Records after the first held action depend on it and are held as well. An idle check is always allowed: the control
    plane does not pause a worker on hold.
    """
    allowed: list[Action] = []
    held: list[Action] = []
    for action in decision.actions:
        passes = isinstance(action, CheckIdle) or (not held and action.kind is ActionKind.RECORD)
        (allowed if passes else held).append(action)
    if not held:
        return decision
    planned = ", ".join(str(action) for action in held)
    after = None if hold.until is None else max(0.0, (hold.until - now).total_seconds())
    # Conditions of the instance belong to the action that is held, unless they say only what was observed.
    changes_instance = any(isinstance(action, WriteStatus | ChangeInstance | Launch) for action in held)
    return replace(
        decision,
        rule=HELD_RULE,
        reason=f"on hold by {hold.by} ({hold.reason}); it would: {planned}, because {decision.reason}",
        actions=tuple(allowed),
        held=tuple(held),
        conditions=_observed_only(decision) if changes_instance else decision.conditions,
        outcome=Outcome.REQUEUE,
        after=after,
        inputs={**decision.inputs, "without_hold": decision.rule},
    )


def _observed_only(decision: Decision) -> tuple[ConditionUpdate, ...]:
    return tuple(each for each in decision.conditions if each.reason == INSTANCE_MISSING)
