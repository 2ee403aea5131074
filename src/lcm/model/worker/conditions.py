"""Conditions of a worker: what is true of it besides its status, since when and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lcm.model.base import CaseInsensitiveEnum, LenientModel, SingleLineText, UtcDatetime

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


class ConditionType(CaseInsensitiveEnum):
    """The type of a condition."""

    INSTANCE_READY = "InstanceReady"
    CML_READY = "CmlReady"
    LICENSED = "Licensed"
    IDLE = "Idle"
    TELEMETRY_MISSING = "TelemetryMissing"
    DRAINING = "Draining"
    STUCK = "Stuck"


class ConditionStatus(CaseInsensitiveEnum):
    """Whether the condition holds; Unknown if that could not be determined."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(LenientModel):
    """One condition. `since` changes with the status of the condition, not with its reason or message."""

    type: ConditionType
    status: ConditionStatus
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
    """Return the conditions with this one set, in the order of `ConditionType`."""
    others = {condition.type: condition for condition in conditions}
    before = others.get(kind)
    since = before.since if before is not None and before.status is status else now
    others[kind] = Condition(type=kind, status=status, reason=reason, message=message, since=since)
    return tuple(others[known] for known in ConditionType if known in others)


def without_condition(conditions: Iterable[Condition], kind: ConditionType) -> tuple[Condition, ...]:
    """Return the conditions without those of this type."""
    return tuple(condition for condition in conditions if condition.type is not kind)


def find_condition(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of this type, if there is one."""
    return next((condition for condition in conditions if condition.type is kind), None)


def is_condition_true(conditions: Iterable[Condition], kind: ConditionType) -> bool:
    """Whether the condition is known to be true; a missing condition is not."""
    found = find_condition(conditions, kind)
    return found is not None and found.status is ConditionStatus.TRUE
