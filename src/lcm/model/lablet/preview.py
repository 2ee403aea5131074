"""What would become of a lablet: who could take it, who could not and why, and what would be launched for it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lcm.model.base import CaseInsensitiveEnum, LenientModel, SingleLineText
from lcm.model.lablet.record import MAX_REJECTIONS, LabletRequirements, Rejection


class PreviewOutcome(CaseInsensitiveEnum):
    """What would be done with it now."""

    PLACE = "place"
    WAIT = "wait"
    RESUME = "resume"
    LAUNCH = "launch"
    REFUSE = "refuse"


class PlacementCandidate(LenientModel):
    """A worker that could take it."""

    worker_id: str
    worker_name: str
    score: float


class LabletPreview(LenientModel):
    """A dry run: nothing is reserved, launched or written."""

    definition: str = Field(description="name@version")
    requirements: LabletRequirements
    outcome: PreviewOutcome
    reason: Annotated[SingleLineText, Field(max_length=1000)]
    candidates: Annotated[tuple[PlacementCandidate, ...], Field(max_length=MAX_REJECTIONS)] = Field(
        default=(), description="The best first."
    )
    candidates_in_all: int = 0
    rejections: Annotated[tuple[Rejection, ...], Field(max_length=MAX_REJECTIONS)] = ()
    rejected: int = Field(default=0, description="How many in all; the list may be cut.")
    template: str | None = Field(default=None, description="What would be launched or resumed.")
    worker_id: str | None = Field(default=None, description="Who would take it, be waited for or be resumed.")
    aws_region: str | None = None
    cost_per_hour_usd: float = Field(default=0, description="What it would cost more than now.")
