"""The result of a reconciliation pass, and the state kept between passes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


class Outcome(Enum):
    """The outcome of a reconciliation pass."""

    SUCCESS = "success"
    REQUEUE = "requeue"
    RETRY = "retry"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ReconciliationResult:
    """The result of a pass. `reason` is for display; `after` is for REQUEUE: None means the next polling cycle."""

    outcome: Outcome
    reason: str = ""
    after: float | None = None
    read_only: bool = False  # nothing was written or called: copies read meanwhile are still valid
    version: int | None = None  # of the resource after own writes that need no further pass

    @classmethod
    def success(cls, reason: str = "") -> ReconciliationResult:
        """The resource is in its desired state."""
        return cls(Outcome.SUCCESS, reason)

    @classmethod
    def requeue(cls, reason: str = "", *, after: float | None = None) -> ReconciliationResult:
        """In progress as expected: check again."""
        return cls(Outcome.REQUEUE, reason, after)

    @classmethod
    def retry(cls, reason: str) -> ReconciliationResult:
        """Something failed: retry with growing delays."""
        return cls(Outcome.RETRY, reason)

    @classmethod
    def skip(cls, reason: str = "") -> ReconciliationResult:
        """There is nothing for this controller to do."""
        return cls(Outcome.SKIP, reason)


class ResourceStatus(Enum):
    """The reconciliation status of a resource."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


@dataclass(slots=True)
class ResourceState:
    """What is kept about a resource between passes. Losing it costs a pass, never correctness."""

    resource_id: str
    status: ResourceStatus = ResourceStatus.PENDING
    retry_count: int = 0
    next_retry_at: datetime | None = None  # set only during a backoff
    last_reconciled_at: datetime | None = None
    generation: int | None = None
    version: int | None = None  # changes up to this one need no further pass
    last_error: str = ""
    latest_generation: int | None = None  # the newest generation reported since the last pass began

    @property
    def has_new_generation(self) -> bool:
        """Whether the desired state is newer than what the last pass saw."""
        return _is_newer(self.latest_generation, self.generation)

    def begin_pass(self) -> None:
        """This pass handles all generations reported so far; only later ones count as new."""
        self.status, self.next_retry_at, self.latest_generation = ResourceStatus.IN_PROGRESS, None, None

    def note_generation(self, generation: int | None) -> None:
        """Record a generation; a late report of an older one changes nothing."""
        if self.latest_generation is None or _is_newer(generation, self.latest_generation):
            self.latest_generation = generation


def _is_newer(generation: int | None, than: int | None) -> bool:
    return generation is not None and (than is None or generation > than)
