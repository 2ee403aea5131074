"""The audit log, the status history and the last decision: who changed what, when and why."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from lcm.model.base import CARRIED, WHOLE_NUMBER, CaseInsensitiveEnum, Record, SingleLineText, UtcDatetime
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.status import WorkerStatus


class ActorKind(CaseInsensitiveEnum):
    """The kind of actor behind a change."""

    PERSON = "person"
    CONTROLLER = "controller"
    POLICY = "policy"
    SYSTEM = "system"


class Actor(Record):
    """Who made a change: a person (by token or sign-in name), a controller (by service) or a policy (by name)."""

    kind: Annotated[ActorKind, CARRIED]
    name: str
    identity: str = Field(
        default="",
        description="What proves the name: token: and its id, setting: and its name, or oidc: with issuer and subject.",
    )


class AuditEntry(Record):
    """One entry of the audit log."""

    at: UtcDatetime
    actor: Actor
    action: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)]
    subject: str
    reason: str = ""
    details: dict[str, Any] = Field(default_factory=dict)


class WorkerHistoryEntry(Record):
    """One status transition of a worker, written in the same commit as the status."""

    at: UtcDatetime
    worker_id: str
    from_status: Annotated[WorkerStatus, CARRIED] | None
    to_status: Annotated[WorkerStatus, CARRIED]
    reason: str
    actor: Actor
    version: int
    stopped_by_policy: bool | None = Field(
        default=None, description="For a transition into or out of STOPPED: whether a policy requested the stop."
    )


class LabletHistoryEntry(Record):
    """One status transition of a lablet, written in the same commit as the status."""

    at: UtcDatetime
    lablet_id: str
    from_status: Annotated[LabletStatus, CARRIED] | None
    to_status: Annotated[LabletStatus, CARRIED]
    reason: str
    actor: Actor
    version: int
    worker_id: str | None = None


MAX_DECISION_INPUTS = 30
MAX_DECISION_ACTIONS = 20


class ActionType(CaseInsensitiveEnum):
    """What a planned action does."""

    LAUNCH_INSTANCE = "launch_instance"
    START_INSTANCE = "start_instance"
    STOP_INSTANCE = "stop_instance"
    TERMINATE_INSTANCE = "terminate_instance"
    REGISTER_LICENSE = "register_license"
    DEREGISTER_LICENSE = "deregister_license"
    DRAIN = "drain"
    CHANGE_HOST = "change_host"
    FOLLOW_SCHEDULE = "follow_schedule"
    RECORD_STATUS = "record_status"
    RECORD_LICENSE = "record_license"
    OTHER = "other"


class PlannedAction(Record):
    """An action that a controller will take. `detail` is the recorded status, or what is launched and where."""

    type: Annotated[ActionType, CARRIED]
    text: Annotated[SingleLineText, Field(max_length=300)] = Field(description="Such as: stop the instance.")
    detail: Annotated[SingleLineText, Field(max_length=200)] = ""


class DecisionReport(Record):
    """The last decision: the rule that applied, the reason, the inputs, the actions, and the time of the next check.

    `generation`, `version` and `term` say for which state of the record it was made, and by which leader.
    """

    rule: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*$", max_length=100)]
    reason: Annotated[SingleLineText, Field(max_length=1000)]
    inputs: Annotated[dict[str, Any], Field(max_length=MAX_DECISION_INPUTS)] = Field(default_factory=dict)
    actions: Annotated[tuple[Annotated[SingleLineText, Field(max_length=300)], ...], Field(max_length=20)] = ()
    held_actions: Annotated[tuple[PlannedAction, ...], Field(max_length=MAX_DECISION_ACTIONS)] = Field(
        default=(), description="Actions that wait for the end of a hold."
    )
    next_actions: Annotated[tuple[PlannedAction, ...], Field(max_length=MAX_DECISION_ACTIONS)] | None = Field(
        default=None,
        description="Actions of the next check if nothing changes until then; null if that has to be observed first.",
    )
    decided_at: UtcDatetime
    next_look_at: UtcDatetime | None = None
    generation: Annotated[int, WHOLE_NUMBER] | None = None
    version: Annotated[int, WHOLE_NUMBER] | None = None
    term: Annotated[int, WHOLE_NUMBER] | None = None
