"""Requests of people about lablets that exist: extend the end, reset the lab, and preview either or the termination."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from lcm.model.base import RequestedTime, StrictModel
from lcm.model.worker.requests import CommandRequest

ExtensionMinutes = Annotated[float, Field(gt=0, le=525_600, strict=True)]


class LabletAction(StrEnum):
    """What can be done with a lablet."""

    END = "end"
    EXTEND = "extend"
    RESET = "reset"


class ExtendLabletRequest(CommandRequest):
    """Move the end of a lablet to a later time: by some minutes, or to a time."""

    minutes: ExtensionMinutes | None = Field(default=None, description="By how much the end is moved.")
    ends_at: RequestedTime | None = Field(default=None, description="The new end, instead of minutes.")

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.minutes is None) == (self.ends_at is None):
            raise ValueError("give either minutes or ends_at")
        return self


class PreviewLabletRequest(StrictModel):
    """The action to preview. An extension names minutes or a new end; without either, the preview names the limit."""

    action: LabletAction = LabletAction.END
    minutes: ExtensionMinutes | None = None
    ends_at: RequestedTime | None = None

    @model_validator(mode="after")
    def _check_at_most_one(self) -> Self:
        if self.minutes is not None and self.ends_at is not None:
            raise ValueError("give either minutes or ends_at")
        return self
