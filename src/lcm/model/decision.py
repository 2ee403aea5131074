"""What a controller decided for a worker, in the form that explains it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from lcm.model.base import LenientModel, SingleLineText, UtcDatetime

MAX_DECISION_INPUTS = 30


class DecisionReport(LenientModel):
    """The last decision: the rule that applied, why, from what, what is done, and when to look again."""

    rule: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*$", max_length=100)]
    reason: Annotated[SingleLineText, Field(max_length=1000)]
    inputs: Annotated[dict[str, Any], Field(max_length=MAX_DECISION_INPUTS)] = Field(default_factory=dict)
    actions: Annotated[tuple[Annotated[SingleLineText, Field(max_length=300)], ...], Field(max_length=20)] = ()
    decided_at: UtcDatetime
    next_look_at: UtcDatetime | None = None
