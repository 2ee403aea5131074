"""What is kept of every decision and change: who, what, why, when."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from lcm.model.base import Answer, Choice, Moment
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.status import WorkerStatus


class ActorKind(Choice):
    """Who can change things."""

    PERSON = "person"
    CONTROLLER = "controller"
    POLICY = "policy"
    SYSTEM = "system"


class Actor(Answer):
    """Who did it: a person by the name of a token or sign-in, a controller by its service, a policy by its name."""

    kind: ActorKind
    name: str


class AuditEntry(Answer):
    """One line of the audit."""

    at: Moment
    actor: Actor
    action: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)]
    subject: str
    reason: str = ""
    details: dict[str, Any] = Field(default_factory=dict)


class HistoryEntry(Answer):
    """One step of a worker's life: written with the status, by the same write."""

    at: Moment
    worker_id: str
    from_status: WorkerStatus | None
    to_status: WorkerStatus
    reason: str
    actor: Actor
    version: int
    stopped_by_policy: bool | None = Field(
        default=None, description="Where it begins or ends a time in STOPPED: whether a policy wanted that."
    )


class LabletHistoryEntry(Answer):
    """One step of a lablet's life: written with the status, by the same write."""

    at: Moment
    lablet_id: str
    from_status: LabletStatus | None
    to_status: LabletStatus
    reason: str
    actor: Actor
    version: int
    worker_id: str | None = None
