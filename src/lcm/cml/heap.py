"""Memory that the process has freed, and that the C library keeps for later."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def release_free_memory() -> None:
    """Give free pages back to the system; nothing happens where the C library has no such call.

    glibc only gives back the end of its heap. After a burst of connections, one small block that lives on keeps all the
    memory before it.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found
