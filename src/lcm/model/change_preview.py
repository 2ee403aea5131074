"""A preview of a change: what would happen, how long that takes, what it costs, and what would be lost."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from lcm.model.base import LenientModel, RequestedTime, StrictBool, StrictModel
from lcm.model.worker.requests import UpdateWorkerRequest
from lcm.model.worker.template import WorkerTemplate


class WorkerAction(StrEnum):
    """What can be done with a worker."""

    START = "start"
    STOP = "stop"
    DRAIN = "drain"
    CANCEL_DRAIN = "cancel-drain"
    RETRY = "retry"
    TRUST = "trust"
    HOLD = "hold"
    RELEASE = "release"
    TERMINATE = "terminate"
    EDIT = "edit"


class PreviewWorkerRequest(StrictModel):
    """The action to preview. `changes` are those of an edit."""

    action: WorkerAction
    release_license: StrictBool = Field(
        default=True, description="Whether a termination deregisters a registered license first."
    )
    until: RequestedTime | None = Field(
        default=None, description="Until when policies do not change what a start or stop requested."
    )
    changes: UpdateWorkerRequest | None = None


class TemplateAction(StrEnum):
    """What can be done with a worker template."""

    APPLY = "apply"
    ENABLE = "enable"
    DISABLE = "disable"


class PreviewTemplateRequest(StrictModel):
    """The action to preview. Only `apply` reads `template`: the one to create or to replace the stored one with."""

    action: TemplateAction
    template: WorkerTemplate | None = None


class DefinitionAction(StrEnum):
    """What can be done with a version of a lablet definition."""

    ENABLE = "enable"
    DISABLE = "disable"


class PreviewDefinitionRequest(StrictModel):
    """The action to preview."""

    action: DefinitionAction


class ChangePreview(LenientModel):
    """What a change would do now. Nothing is changed by the preview."""

    action: str
    refusal: str = Field(default="", description="Why the change would be rejected; empty if it would be accepted.")
    changes: bool = Field(default=True, description="False if nothing would change.")
    change: str = Field(default="", description="What changes in the record, such as its status, before and after.")
    effect: str = Field(default="", description="What then happens.")
    takes: str = Field(default="", description="How long that takes.")
    cost: str = Field(default="", description="What it costs or saves.")
    cost_change_usd: float = Field(
        default=0.0, description="The change of the hourly cost: positive if it costs more, negative if it saves."
    )
    losses: dict[str, str] = Field(default_factory=dict, description="What would be lost or interrupted.")
    can_leak_license: bool = Field(
        default=False, description="Whether a registered license would be deregistered first, which can be skipped."
    )
