"""What a controller says of a resource after a pass, and what is remembered of it until the next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lcm.core.backoff import Backoff

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class ReconciliationConfig:
    """How a controller polls, retries and counts."""

    interval_seconds: float = 30.0
    initial_delay: float = 5.0
    polling_enabled: bool = True
    max_concurrent: int = 10
    backoff_base: float = 1.0
    max_backoff: float = 60.0
    backoff_multiplier: float = 2.0
    metric_prefix: str = "reconciliation"
    reconcile_timeout: float = 60.0
    startup_reconcile_enabled: bool = True
    startup_sweep_delay: float = 2.0
    startup_sweep_timeout: float = 300.0

    @property
    def backoff(self) -> Backoff:
        """The delays between retries."""
        return Backoff(self.backoff_base, self.backoff_multiplier, self.max_backoff)


class Outcome(Enum):
    """How a pass over a resource ended."""

    SUCCESS = "success"
    REQUEUE = "requeue"
    RETRY = "retry"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ReconciliationResult:
    """The outcome of a pass. A reason is for people; `after` is for REQUEUE: None means the next polling cycle."""

    outcome: Outcome
    reason: str = ""
    after: float | None = None
    read_only: bool = False  # nothing was written and nobody called: what others have read of it still holds

    @classmethod
    def success(cls, reason: str = "") -> ReconciliationResult:
        """It is as it should be."""
        return cls(Outcome.SUCCESS, reason)

    @classmethod
    def requeue(cls, reason: str = "", *, after: float | None = None) -> ReconciliationResult:
        """Not there yet, and that is in order: look again."""
        return cls(Outcome.REQUEUE, reason, after)

    @classmethod
    def retry(cls, reason: str) -> ReconciliationResult:
        """Something failed that may work later: try again with growing delays."""
        return cls(Outcome.RETRY, reason)

    @classmethod
    def skip(cls, reason: str = "") -> ReconciliationResult:
        """Nothing here for this controller to do."""
        return cls(Outcome.SKIP, reason)


class ResourceStatus(Enum):
    """Where a resource stands with its reconciliation."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


@dataclass(slots=True)
class ResourceState:
    """What is remembered of a resource between passes. It is only memory: losing it costs a pass, never correctness."""

    resource_id: str
    status: ResourceStatus = ResourceStatus.PENDING
    retry_count: int = 0
    next_retry_at: datetime | None = None  # set while it waits out a backoff, and only then
    last_reconciled_at: datetime | None = None
    generation: int | None = None
    last_error: str = ""
    latest_generation: int | None = None  # the newest that anybody told us of since the last pass began

    @property
    def has_new_generation(self) -> bool:
        """Whether somebody has asked for something else than what the last pass saw."""
        return _is_newer(self.latest_generation, self.generation)

    def begin_pass(self) -> None:
        """What was heard so far is what this pass answers; only what is heard from now on is news."""
        self.status, self.next_retry_at, self.latest_generation = ResourceStatus.IN_PROGRESS, None, None

    def hear(self, generation: int | None) -> None:
        """Take note of a generation; news that come late never take it back."""
        if self.latest_generation is None or _is_newer(generation, self.latest_generation):
            self.latest_generation = generation


def _is_newer(generation: int | None, than: int | None) -> bool:
    return generation is not None and (than is None or generation > than)
