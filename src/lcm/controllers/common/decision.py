"""What the decisions of all controllers share. A decision is data that is executed, reported and tested."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lcm.controllers.common.actions import ActionKind
from lcm.core.controller.resources import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

ActionT = TypeVar("ActionT")
StatusT = TypeVar("StatusT")


@dataclass(frozen=True, slots=True)
class BaseWriteStatus(Generic[StatusT]):
    """Write a status and fields of the record. With the current status only the fields change."""

    status: StatusT
    reason: str
    kind: ActionKind = ActionKind.RECORD
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"record {self.status}"


@dataclass(frozen=True, slots=True)
class BaseDecision(Generic[ActionT]):
    """The rule that applied, the reason, the actions, and when to check again."""

    rule: str
    reason: str
    actions: tuple[ActionT, ...] = ()
    outcome: Outcome = Outcome.SUCCESS
    after: float | None = None  # seconds until the next check, with REQUEUE

    @classmethod
    def success(cls, rule: str, reason: str, *actions: ActionT, **more: Any) -> Self:
        """The desired state is reached, or these actions reach it."""
        return cls(rule, reason, actions, **more)

    @classmethod
    def wait(cls, rule: str, reason: str, *actions: ActionT, after: float | None = None, **more: Any) -> Self:
        """Still in progress, as expected."""
        return cls(rule, reason, actions, outcome=Outcome.REQUEUE, after=after, **more)

    @classmethod
    def retry(cls, rule: str, reason: str, *actions: ActionT, **more: Any) -> Self:
        """Something failed that may succeed later."""
        return cls(rule, reason, actions, outcome=Outcome.RETRY, **more)

    @classmethod
    def skip(cls, rule: str, reason: str) -> Self:
        """This controller has nothing to do."""
        return cls(rule, reason, outcome=Outcome.SKIP)
