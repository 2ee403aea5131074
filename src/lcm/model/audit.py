"""What is kept of every decision and change: who, what, why, when."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from lcm.model.base import CaseInsensitiveEnum, LenientModel, UtcDatetime
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.status import WorkerStatus


class ActorKind(CaseInsensitiveEnum):
    """Who can change things."""

    PERSON = "person"
    CONTROLLER = "controller"
    POLICY = "policy"
    SYSTEM = "system"


class Actor(LenientModel):
    """Who did it: a person by the name of a token or sign-in, a controller by its service, a policy by its name."""

    kind: ActorKind
    name: str


class AuditEntry(LenientModel):
    """One line of the audit."""

    at: UtcDatetime
    actor: Actor
    action: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)]
    subject: str
    reason: str = ""
    details: dict[str, Any] = Field(default_factory=dict)


class WorkerHistoryEntry(LenientModel):
    """One step of a worker's life: written with the status, by the same write."""

    at: UtcDatetime
    worker_id: str
    from_status: WorkerStatus | None
    to_status: WorkerStatus
    reason: str
    actor: Actor
    version: int
    stopped_by_policy: bool | None = Field(
        default=None, description="Where it begins or ends a time in STOPPED: whether a policy wanted that."
    )


class LabletHistoryEntry(LenientModel):
    """One step of a lablet's life: written with the status, by the same write."""

    at: UtcDatetime
    lablet_id: str
    from_status: LabletStatus | None
    to_status: LabletStatus
    reason: str
    actor: Actor
    version: int
    worker_id: str | None = None
