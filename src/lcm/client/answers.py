"""Answers and requests that belong to the API alone and to no record."""

from __future__ import annotations

from pydantic import SecretStr

from lcm.model.access import TokenInfo
from lcm.model.base import Answer, Data
from lcm.model.conditions import Condition
from lcm.model.decisions import DecisionReport
from lcm.model.status import DesiredStatus, WorkerStatus
from lcm.model.worker import Hold


class Explanation(Answer):
    """Why a worker is as it is, and what happens next."""

    worker_id: str
    status: WorkerStatus
    desired_status: DesiredStatus
    ready: bool
    conditions: tuple[Condition, ...] = ()
    hold: Hold | None = None
    decision: DecisionReport | None = None


class MadeToken(Answer):
    """A token that was made. It is shown this once."""

    token: SecretStr
    info: TokenInfo


class LicenseToken(Answer):
    """A worker's licence token."""

    token: SecretStr


class CmlCredentials(Answer):
    """What a controller signs in to CML with."""

    username: str
    password: SecretStr


class DrainReason(Data):
    """Why scale-down takes a worker out of service."""

    reason: str


class AuditLine(Data):
    """A decision of a controller that changes no record."""

    action: str
    subject: str
    reason: str = ""


class Kept(Answer):
    """That something was kept."""

    kept: bool


class ResetLeadership(Answer):
    """Whose newest term was forgotten."""

    controller: str


class Readiness(Answer):
    """Whether the control plane can do its work now, and if not, why."""

    ready: bool
    reasons: tuple[str, ...] = ()


class Facts(Answer, extra="allow"):
    """What a process says of itself."""
