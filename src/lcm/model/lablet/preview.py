"""What would become of a lablet: who could take it, who could not and why, and what would be launched for it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lcm.model.base import Answer, Choice, Text
from lcm.model.lablet.record import MOST_REJECTIONS, Rejection, Requirements


class PreviewOutcome(Choice):
    """What would be done with it now."""

    PLACE = "place"
    WAIT = "wait"
    RESUME = "resume"
    LAUNCH = "launch"
    REFUSE = "refuse"


class Candidate(Answer):
    """A worker that could take it."""

    worker_id: str
    worker_name: str
    score: float


class LabletPreview(Answer):
    """A dry run: nothing is reserved, launched or written."""

    definition: str = Field(description="name@version")
    requirements: Requirements
    outcome: PreviewOutcome
    reason: Annotated[Text, Field(max_length=1000)]
    candidates: Annotated[tuple[Candidate, ...], Field(max_length=MOST_REJECTIONS)] = Field(
        default=(), description="The best first."
    )
    candidates_in_all: int = 0
    rejections: Annotated[tuple[Rejection, ...], Field(max_length=MOST_REJECTIONS)] = ()
    rejected: int = Field(default=0, description="How many in all; the list may be cut.")
    template: str | None = Field(default=None, description="What would be launched or resumed.")
    worker_id: str | None = Field(default=None, description="Who would take it, be waited for or be resumed.")
    aws_region: str | None = None
    cost_per_hour_usd: float = Field(default=0, description="What it would cost more than now.")
