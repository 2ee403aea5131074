"""What acting means for every controller: the nature of a step, calls that change the world, and what ends a pass."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from lcm.client.errors import VersionConflictError
from lcm.core.controller.resources import ReconciliationResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

R = TypeVar("R")
REQUEUE_SOON_SECONDS: Final = 0.2
"""Seconds until the next pass, where somebody came between."""


class ActionKind(Enum):
    """What kind of a step an action is; a hold lets only records pass, an open breaker no losses."""

    RECORD = "record"  # writes down what has happened already
    INTENT = "intent"  # writes down what we are about to do
    WORLD = "world"  # changes something outside
    LOSS = "loss"  # gives up an instance, or a lab that cannot be reached


class Effect(Protocol):
    """Makes a call that changes the world outside, while we lead for the whole of its deadline."""

    async def __call__(self, call: Callable[[], Awaitable[R]], *, timeout: float | None = None) -> R:
        """Once, and waited for until its deadline."""


class PassInterruptedError(Exception):
    """Something changed or was decided anew while we were about to act: nothing more is done in this pass."""


async def requeue_if_interrupted(steps: Awaitable[R]) -> R | ReconciliationResult:
    """What comes of these steps; if somebody came between them, another pass soon, which starts from what is then."""
    try:
        return await steps
    except VersionConflictError:
        return ReconciliationResult.requeue("it was changed meanwhile", after=REQUEUE_SOON_SECONDS)
    except PassInterruptedError as interruption:
        return ReconciliationResult.requeue(str(interruption), after=REQUEUE_SOON_SECONDS)
