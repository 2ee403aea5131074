"""When Python may look at all objects for garbage: that stops the process for as long as it takes.

With the records of 10,000 workers one full collection takes 0.2 s or more, and reading them all anew starts one. They
hold hardly any garbage: what is no longer used is freed at once, except what refers to itself.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARE: Final = 0.001
"""The part of the time that full collections may take. Those of a small process are too short to be delayed."""
_FULL: Final = 2
_NEVER: Final = 2**30


class FullCollectionPacing:
    """A callback of the garbage collector: after a full collection, the next one waits a thousand times as long."""

    def __init__(self) -> None:
        self._thresholds = gc.get_threshold()
        self._began = self._next = 0.0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        now = clock.boottime()
        if info["generation"] < _FULL:
            if phase == "stop" and now >= self._next:
                gc.set_threshold(*self._thresholds)
        elif phase == "start":
            self._began = now
        else:
            self._next = now + (now - self._began) / SHARE
            young, middle, _ = self._thresholds
            gc.set_threshold(young, middle, _NEVER)


def pace_full_collections() -> None:
    """Let full collections take only a small part of the time of this process."""
    if not any(isinstance(callback, FullCollectionPacing) for callback in gc.callbacks):
        gc.callbacks.append(FullCollectionPacing())
