"""The losses of a region: which count, how many are too many, and which a closed breaker has accepted. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from lcm.model.base import Record, UtcDatetime

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

LOSS_WINDOW: Final = timedelta(minutes=30)
"""How long a loss counts."""
LOSSES_ALWAYS_ALLOWED: Final = 1
LOSS_DIVISOR: Final = 5


def loss_limit(workers: int) -> float:
    """How many of the workers may be lost within the window: one or a fifth of them, whichever is more."""
    return max(LOSSES_ALWAYS_ALLOWED, workers / LOSS_DIVISOR)


class Loss(Record):
    """A worker that lost its instance. `ended`: it is TERMINATED since, and no longer among the live workers."""

    worker_id: str
    at: UtcDatetime
    ended: bool


class RegionLosses(Record):
    """What the breaker of a region remembers, whichever controller leads."""

    counted: tuple[Loss, ...] = ()
    withheld: tuple[str, ...] = ()  # the workers for which the breaker is open
    accepted: tuple[str, ...] = ()  # the workers whose loss a closed breaker has accepted: it does not count again

    def recent(self, now: datetime) -> RegionLosses:
        """Without the losses that no longer count."""
        return self.model_copy(update={"counted": tuple(loss for loss in self.counted if now - loss.at < LOSS_WINDOW)})

    def with_loss(self, worker_id: str, now: datetime, *, ended: bool) -> RegionLosses:
        """With one more loss. Each worker counts once."""
        others = tuple(loss for loss in self.counted if loss.worker_id != worker_id)
        return self.model_copy(update={"counted": (*others, Loss(worker_id=worker_id, at=now, ended=ended))})

    def ended_besides(self, worker_id: str) -> int:
        """How many other workers have ended by a loss."""
        return sum(loss.ended for loss in self.counted if loss.worker_id != worker_id)

    def with_withheld(self, worker_ids: Iterable[str]) -> RegionLosses:
        """With workers for which the breaker is open."""
        return self.model_copy(update={"withheld": tuple(sorted({*self.withheld, *worker_ids}))})

    def closed(self) -> RegionLosses:
        """After the breaker was closed: all that it counted or withheld is accepted."""
        return RegionLosses(accepted=tuple(sorted({*self.accepted, *self.withheld})))

    def without(self, worker_id: str) -> RegionLosses:
        """Without a worker that has ended, or whose instance was seen again: its next loss counts."""
        withheld = tuple(each for each in self.withheld if each != worker_id)
        accepted = tuple(each for each in self.accepted if each != worker_id)
        return self.model_copy(update={"withheld": withheld, "accepted": accepted})
