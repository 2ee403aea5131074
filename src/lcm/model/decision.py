"""What a controller decided for a worker, in the form that explains it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from lcm.model.base import Answer, Moment, Text

MOST_INPUTS = 30


class DecisionReport(Answer):
    """The last decision: the rule that applied, why, from what, what is done, and when to look again."""

    rule: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*$", max_length=100)]
    reason: Annotated[Text, Field(max_length=1000)]
    inputs: Annotated[dict[str, Any], Field(max_length=MOST_INPUTS)] = Field(default_factory=dict)
    actions: Annotated[tuple[Annotated[Text, Field(max_length=300)], ...], Field(max_length=20)] = ()
    decided_at: Moment
    next_look_at: Moment | None = None
