"""Conditions of a worker: what is true of it besides its status, since when and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lcm.model.base import CARRIED, CaseInsensitiveEnum, Record, SingleLineText, UtcDatetime

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


NOT_VISIBLE = "NotVisible"
"""The reason of InstanceReady while EC2 does not list the instance, which alone proves nothing."""
INSTANCE_MISSING = "InstanceMissing"
"""The reason of InstanceReady while the instance is gone and the worker is not marked as lost."""
STOPPED = "Stopped"
"""The reason of InstanceReady while the instance is stopped."""


class ConditionType(CaseInsensitiveEnum):
    """The type of a condition."""

    INSTANCE_READY = "InstanceReady"
    CML_READY = "CmlReady"
    LICENSED = "Licensed"
    IDLE = "Idle"
    TELEMETRY_MISSING = "TelemetryMissing"
    NO_KVM = "NoKvm"
    MAINTENANCE = "Maintenance"
    IMPAIRED = "Impaired"
    DRAINING = "Draining"
    WAITING = "Waiting"
    HELD = "Held"
    STUCK = "Stuck"


TYPE_NOT_OFFERED = "TypeNotOffered"
"""The reason of InstanceReady for a worker that FAILED because no configured zone of its region offers its type."""
STILL_WAITING = "StillWaiting"
"""The reason of Stuck for a worker that waits longer than CAPACITY_WAIT_LIMIT; its condition Waiting says for what."""
CAPACITY_LACKING = "CapacityLacking"
LICENSE_PENDING = "LicensePending"
"""Reasons of Waiting on which the scheduler acts."""


class ConditionStatus(CaseInsensitiveEnum):
    """Whether the condition holds; Unknown if that could not be determined."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Record):
    """One condition. `since` changes with the status of the condition, not with its reason or message."""

    type: Annotated[ConditionType, CARRIED]
    status: Annotated[ConditionStatus, CARRIED]
    reason: Annotated[SingleLineText, Field(max_length=100)] = ""
    message: Annotated[SingleLineText, Field(max_length=1000)] = ""
    since: UtcDatetime


def with_condition(
    conditions: Iterable[Condition],
    kind: ConditionType,
    status: ConditionStatus,
    *,
    now: datetime,
    reason: str = "",
    message: str = "",
) -> tuple[Condition, ...]:
    """Return the conditions with this one set, in the order of `ConditionType`; those of a newer version come last."""
    others = {condition.type: condition for condition in conditions}
    before = others.get(kind)
    since = before.since if before is not None and before.status is status else now
    others[kind] = Condition(type=kind, status=status, reason=reason, message=message, since=since)
    newer = (condition for condition in others.values() if not condition.type.is_known)
    return (*(others[known] for known in ConditionType if known in others), *newer)


def without_condition(conditions: Iterable[Condition], kind: ConditionType) -> tuple[Condition, ...]:
    """Return the conditions without those of this type."""
    return tuple(condition for condition in conditions if condition.type is not kind)


def find_condition(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of this type, if there is one."""
    return next((condition for condition in conditions if condition.type is kind), None)


def is_instance_missing(conditions: Iterable[Condition]) -> bool:
    """Whether EC2 did not list the instance when it was last observed."""
    found = find_condition(conditions, ConditionType.INSTANCE_READY)
    return found is not None and found.reason in (NOT_VISIBLE, INSTANCE_MISSING)


def overdue_wait(conditions: Iterable[Condition]) -> Condition | None:
    """Return the condition Waiting of a worker that has waited for too long, so that nobody should count on it."""
    everything = tuple(conditions)
    stuck = find_condition(everything, ConditionType.STUCK)
    if stuck is None or stuck.status is not ConditionStatus.TRUE or stuck.reason != STILL_WAITING:
        return None
    return find_condition(everything, ConditionType.WAITING)


def is_condition_true(conditions: Iterable[Condition], kind: ConditionType) -> bool:
    """Whether the condition is known to be true; a missing condition is not."""
    found = find_condition(conditions, kind)
    return found is not None and found.status is ConditionStatus.TRUE
