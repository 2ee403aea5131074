"""The first change of a key passes at once; what follows within the window is gathered into one at its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

V = TypeVar("V")


class Debouncer(Generic[V]):
    """One window per key, so that one busy key does not delay another. Of what is gathered the latest value counts."""

    def __init__(self, window: float, sink: Callable[[str, V], None]) -> None:
        self._window = window
        self._sink = sink
        self._open: dict[str, asyncio.TimerHandle] = {}
        self._gathered: dict[str, V] = {}

    def touch(self, key: str, value: V) -> None:
        """Pass the change on now, or at the end of the window that an earlier one opened."""
        if key in self._open:
            self._gathered[key] = value
            return
        self._pass_on(key, value)

    def cancel(self) -> None:
        """Forget what was gathered and close all windows."""
        for timer in self._open.values():
            timer.cancel()
        self._open.clear()
        self._gathered.clear()

    def _pass_on(self, key: str, value: V) -> None:
        if self._window > 0:
            self._open[key] = asyncio.get_running_loop().call_later(self._window, self._close, key)
        self._sink(key, value)

    def _close(self, key: str) -> None:
        del self._open[key]
        if key in self._gathered:
            self._pass_on(key, self._gathered.pop(key))
