"""Actions of a controller: their kinds, calls with external effects, and interrupted passes."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from lcm.client.errors import BreakerOpenError, HeldError, VersionConflictError
from lcm.core.controller.resources import ReconciliationResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.core.authorization import SendAuthorization

R = TypeVar("R")
REQUEUE_SOON_SECONDS: Final = 0.2
"""Seconds until the next pass after an interruption."""

BREAKER_RECHECK_SECONDS: Final = 10.0
"""Seconds until the next pass after the control plane has opened the breaker instead of recording a loss."""


class ActionKind(Enum):
    """The kind of an action. A hold allows only RECORD; an open breaker forbids LOSS."""

    RECORD = "record"  # records what has already happened
    INTENT = "intent"  # records what is about to be done
    WORLD = "world"  # has an external effect
    LOSS = "loss"  # gives up an instance, or a lab that cannot be reached


class Effect(Protocol):
    """Makes a call with an external effect, if the lease outlasts its deadline."""

    async def __call__(self, call: Callable[[], Awaitable[R]], *, authorization: SendAuthorization | None = None) -> R:
        """Make the call once and wait for it until its deadline. By default it is authorized now."""


class PassInterruptedError(Exception):
    """The record or a decision changed before the action: nothing more is done in this pass."""


async def requeue_if_interrupted(steps: Awaitable[R]) -> R | ReconciliationResult:
    """The result of the steps; if they were interrupted, a requeue soon, which starts from the new state."""
    try:
        return await steps
    except VersionConflictError:
        return ReconciliationResult.requeue("the record changed meanwhile", after=REQUEUE_SOON_SECONDS)
    except HeldError as held:
        return ReconciliationResult.requeue(str(held), after=REQUEUE_SOON_SECONDS)
    except BreakerOpenError as refusal:
        return ReconciliationResult.requeue(str(refusal), after=BREAKER_RECHECK_SECONDS)
    except PassInterruptedError as interruption:
        return ReconciliationResult.requeue(str(interruption), after=REQUEUE_SOON_SECONDS)
